//! Scores feasible nodes: kube-scheduler's default score plugins with their default weights.
//!
//! ImageLocality is omitted: simulated nodes have no images.
//!
//! Upstream: pkg/scheduler/framework/plugins/noderesources, podtopologyspread/scoring.go, interpodaffinity/scoring.go

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::selector::{LabelSelector, Match};

use super::cycle::Cycle;
use super::node::{Load, NodeFacts};
use super::pod::{HOSTNAME_LABEL, PodInfo, SpreadConstraint};
use super::snapshot::Snapshot;
use super::spread::{is_eligible, query_of};
use super::tables::{NodeIndex, PodQuery};

const SCORE_MAX: i64 = 100;
const TAINT_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const POD_AFFINITY_WEIGHT: i64 = 2;
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The nodes with the highest score, in the given order.
pub(super) fn best_of(cycle: &Cycle<'_>, feasible: Vec<NodeIndex>) -> Vec<NodeIndex> {
    if feasible.len() <= 1 {
        return feasible;
    }
    let totals = totals(cycle, &feasible);
    let best = totals.iter().copied().max();
    feasible.into_iter().zip(totals).filter(|(_, total)| Some(*total) == best).map(|(node, _)| node).collect()
}

fn totals(cycle: &Cycle<'_>, feasible: &[NodeIndex]) -> Vec<i64> {
    let mut totals: Vec<i64> = feasible.iter().map(|node| resources(cycle, *node)).collect();
    let mut add = |scores: Vec<i64>, weight: i64| {
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += weight * score;
        }
    };
    let taints = feasible.iter().map(|node| cycle.verdicts[*node].repelling_taints).collect();
    add(scaled(taints, true), TAINT_WEIGHT);
    if !cycle.pod.placement.preferred.is_empty() {
        let preferences = feasible.iter().map(|node| cycle.verdicts[*node].preference).collect();
        add(scaled(preferences, false), NODE_AFFINITY_WEIGHT);
    }
    if let Some(scores) = spread(cycle, feasible) {
        add(scores, SPREAD_WEIGHT);
    }
    if let Some(scores) = pod_affinity(cycle, feasible) {
        add(scores, POD_AFFINITY_WEIGHT);
    }
    totals
}

/// Scales scores so that the largest value becomes the highest score, or with `reverse` the lowest.
fn scaled(mut scores: Vec<i64>, reverse: bool) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in &mut scores {
        let share = if largest == 0 { 0 } else { SCORE_MAX * *score / largest };
        *score = if reverse { SCORE_MAX - share } else { share };
    }
    scores
}

/// The sum of the node's scores by LeastAllocated and by BalancedAllocation.
fn resources(cycle: &Cycle<'_>, node: NodeIndex) -> i64 {
    let entry = &cycle.snapshot.nodes[node];
    let Some(facts) = &entry.facts else { return 0 };
    least_allocated(cycle.pod, facts, &entry.load) + balanced(cycle.pod, facts, &entry.load)
}

fn least_allocated(pod: &PodInfo, facts: &NodeFacts, load: &Load) -> i64 {
    let resources = [
        (facts.allocatable.cpu_milli, load.scored_cpu_milli + pod.requests.scored_cpu_milli),
        (facts.allocatable.memory_bytes, load.scored_memory_bytes + pod.requests.scored_memory_bytes),
    ];
    let (mut sum, mut count) = (0, 0);
    for (there, taken) in resources.into_iter().filter(|(there, _)| *there != 0) {
        let free = there.saturating_sub(taken);
        sum +=
            if free < 0 { 0 } else { (i128::from(free) * i128::from(SCORE_MAX) / i128::from(there)) as i64 };
        count += 1;
    }
    if count == 0 { 0 } else { sum / count }
}

fn balanced(pod: &PodInfo, facts: &NodeFacts, load: &Load) -> i64 {
    let wanted = &pod.requests.total;
    if wanted.cpu_milli == 0 && wanted.memory_bytes == 0 {
        return 0;
    }
    let resources = [
        (facts.allocatable.cpu_milli, load.requested.cpu_milli + wanted.cpu_milli),
        (facts.allocatable.memory_bytes, load.requested.memory_bytes + wanted.memory_bytes),
    ];
    let shares: Vec<f64> = resources
        .into_iter()
        .filter(|(there, _)| *there != 0)
        .map(|(there, taken)| (taken as f64 / there as f64).min(1.0))
        .collect();
    let deviation = match shares[..] {
        [cpu, memory] => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * SCORE_MAX as f64) as i64
}

/// The default constraints for pods that belong to a Service or workload and have no constraints of their own.
pub(super) fn default_spread(snapshot: &Snapshot, pod: &PodInfo) -> Vec<SpreadConstraint> {
    if pod.has_spread() {
        return Vec::new();
    }
    let selector = workload_selector(snapshot, pod);
    if selector.is_empty() {
        return Vec::new();
    }
    let constraint = |key: &str, max_skew| SpreadConstraint {
        topology_key: key.into(),
        max_skew,
        min_domains: 1,
        selector: Some(selector.clone()),
        honors_affinity: true,
        honors_taints: false,
    };
    vec![constraint(HOSTNAME_LABEL, 3), constraint(ZONE_LABEL, 5)]
}

/// The selectors of the pod's services and owner, combined.
fn workload_selector(snapshot: &Snapshot, pod: &PodInfo) -> LabelSelector {
    let workloads = &snapshot.workloads;
    let mut selector = LabelSelector::everything();
    let services = workloads.services.get(pod.key.namespace.as_str()).into_iter().flat_map(BTreeMap::values);
    for wanted in
        services.filter(|wanted| wanted.iter().all(|(key, value)| pod.labels.get(key) == Some(value)))
    {
        for (key, value) in wanted {
            selector.require(key.clone(), Match::In([value.clone()].into()));
        }
    }
    let of_owner = pod.owner.as_ref().and_then(|owner| {
        let key = karpenter_runtime::object::ObjectKey::new(pod.key.namespace.as_str(), owner.name.as_str());
        match owner.kind.as_str() {
            "ReplicaSet" => workloads.replica_sets.get(&key),
            "StatefulSet" => workloads.stateful_sets.get(&key),
            _ => None,
        }
    });
    if let Some(of_owner) = of_owner {
        selector.require_all(of_owner);
    }
    selector
}

/// The scores of nodes by soft topology spread constraints. `None` if the pod has none.
fn spread(cycle: &Cycle<'_>, feasible: &[NodeIndex]) -> Option<Vec<i64>> {
    let (snapshot, pod) = (cycle.snapshot, cycle.pod);
    let defaults = default_spread(snapshot, pod);
    let constraints = if pod.has_spread() { &pod.soft_spread } else { &defaults };
    if constraints.is_empty() {
        return None;
    }
    // With the default constraints, a node without a zone label still counts for the constraint on host names.
    let needs_all_keys = pod.has_spread();
    let columns: Vec<_> = constraints.iter().map(|it| snapshot.columns.get(&it.topology_key)).collect();
    let queries: Vec<_> = constraints.iter().map(|constraint| query_of(pod, constraint)).collect();
    let domain = |position: usize, node: NodeIndex| columns[position].and_then(|column| column.domain(node));
    let ignored = |node: NodeIndex| {
        needs_all_keys && (0..constraints.len()).any(|position| domain(position, node).is_none())
    };
    let mut weights = Vec::with_capacity(constraints.len());
    // Matching pods per domain of feasible nodes; the last entry is for nodes without the label.
    let mut counts: Vec<Vec<Option<i64>>> = Vec::with_capacity(constraints.len());
    for (position, constraint) in constraints.iter().enumerate() {
        let last = columns[position].map_or(0, |column| column.domains());
        let mut sums = vec![None; last + 1];
        let place = |node: NodeIndex| domain(position, node).map_or(last, |domain| domain as usize);
        let considered = feasible.iter().copied().filter(|node| !ignored(*node));
        let domains = if &*constraint.topology_key == HOSTNAME_LABEL {
            considered.count()
        } else {
            considered.for_each(|node| sums[place(node)] = Some(0));
            for (node, ..) in snapshot.live_nodes() {
                if ignored(node) || !is_eligible(constraint, &cycle.verdicts[node]) {
                    continue;
                }
                if let (Some(sum), Some(query)) = (&mut sums[place(node)], &queries[position]) {
                    *sum += snapshot.count(query, node);
                }
            }
            sums.iter().filter(|sum| sum.is_some()).count()
        };
        weights.push(((domains + 2) as f64).ln());
        counts.push(sums);
    }
    let raw = |node: NodeIndex| -> Option<i64> {
        if ignored(node) {
            return None;
        }
        let mut score = 0.0;
        for (position, constraint) in constraints.iter().enumerate() {
            let Some(domain) = domain(position, node) else { continue };
            let pods = if &*constraint.topology_key == HOSTNAME_LABEL {
                queries[position].as_ref().map_or(0, |query| snapshot.count(query, node))
            } else {
                counts[position][domain as usize].unwrap_or(0)
            };
            score += pods as f64 * weights[position] + (constraint.max_skew - 1) as f64;
        }
        Some(score.round() as i64)
    };
    let raw: Vec<Option<i64>> = feasible.iter().map(|node| raw(*node)).collect();
    let smallest = raw.iter().flatten().copied().min().unwrap_or(0);
    let largest = raw.iter().flatten().copied().max().unwrap_or(0).max(0);
    let normalised = |score: Option<i64>| match score {
        None => 0,
        Some(_) if largest == 0 => SCORE_MAX,
        Some(score) => SCORE_MAX * (largest + smallest - score) / largest,
    };
    Some(raw.into_iter().map(normalised).collect())
}

/// The scores of nodes by preferred affinity, of the pod and of existing pods. `None` if there is none.
fn pod_affinity(cycle: &Cycle<'_>, feasible: &[NodeIndex]) -> Option<Vec<i64>> {
    let (snapshot, pod) = (cycle.snapshot, cycle.pod);
    let mut sums: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
    let mut add = |key: &Arc<str>, node: NodeIndex, weight: i64| {
        let Some(column) = snapshot.columns.get(key) else { return };
        let Some(domain) = column.domain(node) else { return };
        let domains = match sums.get_mut(key) {
            Some(domains) => domains,
            None => sums.entry(key.clone()).or_insert_with(|| vec![0; column.domains()]),
        };
        domains[domain as usize] += weight;
    };
    for (weight, term) in &pod.preferred_affinity {
        let Some(query) = PodQuery::affinity(std::iter::once(term), &snapshot.namespaces) else { continue };
        for (node, pods) in snapshot.tally(&query).iter().enumerate().filter(|(_, pods)| **pods > 0) {
            add(&term.topology_key, node, weight * i64::from(*pods));
        }
    }
    let namespace_labels = snapshot.namespace_labels(&pod.key.namespace);
    for (term, nodes) in snapshot.scored_affinity.iter() {
        if term.matches(pod, &namespace_labels) {
            for (node, (_, weight)) in nodes {
                add(&term.topology_key, *node, *weight);
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let raw = |node: NodeIndex| -> i64 {
        let of_key = |(key, domains): (&Arc<str>, &Vec<i64>)| {
            let domain = snapshot.columns.get(key)?.domain(node)?;
            domains.get(domain as usize).copied()
        };
        sums.iter().filter_map(of_key).sum()
    };
    let raw: Vec<i64> = feasible.iter().map(|node| raw(*node)).collect();
    let smallest = raw.iter().copied().min().unwrap_or(0);
    let range = raw.iter().copied().max().unwrap_or(0) - smallest;
    let normalised = |score: i64| {
        if range == 0 { 0 } else { (SCORE_MAX as f64 * ((score - smallest) as f64 / range as f64)) as i64 }
    };
    Some(raw.into_iter().map(normalised).collect())
}
