//! Preemption: which pods of lower priority must be deleted so that a pod fits, and on which node this disrupts least.
//!
//! Upstream: pkg/scheduler/framework/preemption/preemption.go,
//! pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_runtime::object::ObjectKey;

use super::cycle::{Cycle, Delta};
use super::node::NodeFacts;
use super::pod::PodInfo;
use super::snapshot::PodKey;
use super::tables::NodeIndex;
use super::verdict::{Histogram, Rejection};

pub(super) enum Preemption {
    Of { node: Arc<str>, victims: Vec<PodKey> },
    Useless { why: String, gives_up_nomination: bool },
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
/// The search for candidates may end early, but not before it has found this many.
const CANDIDATES_MIN: usize = 100;

struct Candidate {
    node: Arc<str>,
    /// The pods to delete, the most important first.
    victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

pub(super) fn preempt(cycle: &Cycle<'_>, rejected: &[(NodeIndex, Rejection)]) -> Preemption {
    let (snapshot, pod) = (cycle.snapshot, cycle.pod);
    if pod.never_preempts {
        return Preemption::Useless {
            why: "not eligible due to preemptionPolicy=Never.".to_owned(),
            gives_up_nomination: false,
        };
    }
    if waits_for_victims(cycle, rejected) {
        return Preemption::Useless {
            why: "not eligible due to a terminating pod on the nominated node.".to_owned(),
            gives_up_nomination: false,
        };
    }
    let promising: Vec<NodeIndex> =
        rejected.iter().filter(|(_, rejection)| rejection.resolvable).map(|(node, _)| *node).collect();
    let enough = (promising.len() / 10).max(CANDIDATES_MIN).min(promising.len());
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut histogram = Histogram::default();
    let mut judged = 0;
    for index in promising {
        let Some(facts) = &snapshot.nodes[index].facts else { continue };
        match select_victims(cycle, index, facts) {
            Ok(candidate) => candidates.push(candidate),
            Err(rejection) => {
                judged += 1;
                histogram.add(&rejection);
            }
        }
        if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.violations == 0) {
            break;
        }
    }
    match best_candidate(candidates) {
        Some(best) => Preemption::Of {
            node: best.node,
            victims: best.victims.iter().map(|victim| victim.key.clone()).collect(),
        },
        None => {
            let nodes = snapshot.node_count();
            histogram.add_times(NOT_HELPFUL.into(), nodes - judged);
            Preemption::Useless { why: histogram.message(nodes), gives_up_nomination: true }
        }
    }
}

/// Whether the pod waits for its victims to terminate: it has preempted before, and its nominated node is still
/// suitable.
fn waits_for_victims(cycle: &Cycle<'_>, rejected: &[(NodeIndex, Rejection)]) -> bool {
    let nominated = cycle.pod.nominated_node.as_ref();
    let Some(index) = nominated.and_then(|name| cycle.snapshot.live_node(name)) else { return false };
    let hopeless =
        rejected.iter().find(|(node, _)| *node == index).is_none_or(|(_, rejection)| !rejection.resolvable);
    let mut pods = cycle.snapshot.nodes[index].load.pods.iter();
    !hopeless && pods.any(|other| other.priority < cycle.pod.priority && other.deleting_for_preemption)
}

fn select_victims(cycle: &Cycle<'_>, index: NodeIndex, facts: &NodeFacts) -> Result<Candidate, Rejection> {
    let mut load = cycle.snapshot.nodes[index].load.clone();
    let mut delta = Delta::default();
    let mut potential: Vec<Arc<PodInfo>> =
        load.pods.iter().filter(|other| other.priority < cycle.pod.priority).cloned().collect();
    if potential.is_empty() {
        return Err(Rejection {
            plugin: None,
            resolvable: false,
            first: "No preemption victims found for incoming pod".into(),
            more: Vec::new(),
        });
    }
    potential.sort_by_cached_key(importance);
    for victim in &potential {
        load.remove(victim);
        cycle.change(&mut delta, victim, index, facts, -1);
    }
    cycle.filter(index, facts, &load, &delta)?;
    let (violating, others) = split_by_budget(cycle, potential);
    let mut victims = Vec::new();
    let mut violations = 0;
    let reprieved =
        violating.into_iter().map(|pod| (pod, true)).chain(others.into_iter().map(|pod| (pod, false)));
    for (victim, violates) in reprieved {
        load.add(&victim);
        cycle.change(&mut delta, &victim, index, facts, 1);
        if cycle.filter(index, facts, &load, &delta).is_err() {
            load.remove(&victim);
            cycle.change(&mut delta, &victim, index, facts, -1);
            violations += usize::from(violates);
            victims.push(victim);
        }
    }
    victims.sort_by_cached_key(importance);
    if victims.is_empty() {
        // The pod fits even if all pods are kept, so the reason for the rejection no longer holds.
        return Err(Rejection {
            plugin: None,
            resolvable: false,
            first: format!("expected at least one victim pod on node {:?}", &*facts.name).into(),
            more: Vec::new(),
        });
    }
    Ok(Candidate { node: facts.name.clone(), victims, violations })
}

/// The sort key by importance, most important first: by priority, then by age. Pods that have not started count as the
/// youngest.
fn importance(pod: &Arc<PodInfo>) -> (std::cmp::Reverse<i32>, Timestamp, PodKey) {
    (std::cmp::Reverse(pod.priority), started_at(pod), pod.key.clone())
}

fn started_at(pod: &PodInfo) -> Timestamp {
    pod.started_at.unwrap_or(Timestamp::MAX)
}

/// Splits pods into those whose removal violates a PodDisruptionBudget, and the others, in their order.
fn split_by_budget(cycle: &Cycle<'_>, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let budgets = &cycle.snapshot.budgets;
    let mut allowed: BTreeMap<&ObjectKey, i64> = BTreeMap::new();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (key, budget) in budgets.iter().filter(|(key, _)| key.namespace == pod.key.namespace) {
            let protects = !pod.labels.is_empty()
                && budget
                    .selector
                    .as_ref()
                    .is_some_and(|selector| !selector.is_empty() && selector.matches(&pod.labels));
            if !protects || budget.disrupted.contains(&pod.key.name) {
                continue;
            }
            let left = allowed.entry(key).or_insert(budget.disruptions_allowed);
            *left -= 1;
            violates |= *left < 0;
        }
        violates
    })
}

/// The best candidate, by these criteria in order: fewest PodDisruptionBudget violations, lowest priority of the most
/// important victim, lowest sum of the victims' priorities, fewest victims, latest start time, node name.
fn best_candidate(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let highest = candidate.victims.first().map_or(i32::MIN, |victim| victim.priority);
        let sum: i64 =
            candidate.victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum();
        let foremost = candidate.victims.iter().filter(|victim| victim.priority == highest);
        let oldest = foremost.map(|victim| started_at(victim)).min();
        (
            candidate.violations,
            highest,
            sum,
            candidate.victims.len(),
            std::cmp::Reverse(oldest),
            candidate.node.clone(),
        )
    })
}
