//! From a cluster to what should happen: claims to create, pods for nodes that exist, pods without a place and why.
//!
//! Pure, but for panics that are caught. Every plan is judged by the validator before anybody acts on it. A fault of the
//! planner costs the pods or the node concerned ([`plan_validated`]); so does a panic while the problem is put together.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Options;
use karpenter_model::reason::{Reason, Refusal, Scope};
use karpenter_model::requirements::Requirements;
use karpenter_model::resources::ResourceList;
use karpenter_scheduling::validated::{Planner, isolate, plan_validated};
use karpenter_state::buffers::is_virtual;
use karpenter_state::pod::Pod;
use karpenter_state::{AssembledProblem, ClusterInput, Host, assemble_cluster, replay};

use super::faults::{Faults, held};
use crate::claims;
use crate::compute::{CatchPanics, catch};
use crate::metrics::scheduler::{PodsByZone, effective_zone};
use crate::pods::is_bound;

/// A node to launch and the pods it is for.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) pool: Arc<NodePool>,
    /// What the pool's nodes use of its limits before this round.
    pub(super) usage: ResourceList,
    pub(super) claim: NodeClaim,
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) price_per_hour: f64,
    pub(super) instance_type: String,
}

/// Pods that fit on a node that is there or on its way.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) host: Host,
    pub(super) is_initialized: bool,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Pods without a place.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) why: String,
    /// Whether their owners should hear of it: not if they asked to be left alone or only wait for a reservation.
    pub(super) is_reported: bool,
    pub(super) kind: FailureKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Something about the pod itself: it was not planned at all.
    Ignored,
    /// Waits for a slot of a reservation.
    Reserved,
    Unschedulable,
}

#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) launches: Vec<Launch>,
    pub(super) placements: Vec<Placement>,
    pub(super) failures: Vec<Failure>,
    /// Pools whose own requirements leave nothing to buy; `true` if it is for want of distinct values.
    pub(super) pools_without_types: Vec<(Arc<NodePool>, bool)>,
    /// What the planner got wrong.
    pub(super) faults: Faults,
    pub(super) price_before_per_hour: f64,
    pub(super) price_after_per_hour: f64,
    /// Pods that wait, by the zone they must be in.
    pub(super) zones: PodsByZone,
}

/// Attempts to find the pods with which a problem cannot be put together.
const ASSEMBLY_ATTEMPTS_MAX: usize = 32;
/// The most that is written down of an input that the planner had a fault with.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// Decides, without the pods of the specs that were the cause of a fault before.
pub(super) fn decide(
    live: &ClusterInput,
    options: Options,
    suspects: &[Arc<PodSpec>],
    engine: &dyn Planner,
) -> Decided {
    let mode = options.mode;
    let (round, mut faults) = match catch(|| assemble_cluster(live)) {
        Ok(round) => (Some(round), Faults::default()),
        Err(fault) => {
            let mut faults = Faults::of_assembly(fault, mode);
            let found = isolate(&live.pending, ASSEMBLY_ATTEMPTS_MAX, |kept| {
                catch(|| assemble_cluster(&ClusterInput { pending: kept.to_vec(), ..live.clone() })).ok()
            });
            faults.pods = found.left_out;
            (found.best, faults)
        }
    };
    let unassembled = Failure {
        pods: faults.pods.clone(),
        why: Reason::PlannerFault.to_string(),
        is_reported: true,
        kind: FailureKind::Ignored,
    };
    let mut decided = match round {
        Some(mut round) => {
            round.problem.options = options;
            decide_round(round, suspects, engine, &mut faults)
        }
        None => Decided::default(),
    };
    if !unassembled.pods.is_empty() {
        decided.failures.push(unassembled);
    }
    if !faults.found.is_empty() {
        faults.input = catch(|| replay::manifests(live, &faults.pods, INPUT_BYTES_MAX).into()).ok();
    }
    decided.faults = faults;
    decided
}

fn decide_round(
    mut round: AssembledProblem,
    suspects: &[Arc<PodSpec>],
    engine: &dyn Planner,
    faults: &mut Faults,
) -> Decided {
    let held = held(&round.problem, suspects);
    let planned = plan_validated(&round.problem, &held, &CatchPanics(engine));
    faults.add(&round.problem, &planned);
    faults.pods.extend(planned.left_out.pods().flat_map(|run| round.pods_of(run)).cloned());
    round.problem.options.mode = planned.mode;
    let plan = planned.plan;
    let price_before_per_hour: f64 = round.problem.nodes.iter().filter_map(|node| node.price_per_hour).sum();
    Decided {
        launches: launches(&round, &plan),
        placements: placements(&round, &plan),
        failures: failures(&round, &plan),
        pools_without_types: pools_without_types(&round),
        faults: Faults::default(),
        price_before_per_hour,
        price_after_per_hour: price_before_per_hour + plan.price_per_hour,
        zones: pods_by_zone(&round),
    }
}

fn pods_by_zone(round: &AssembledProblem) -> PodsByZone {
    let mut zones = PodsByZone::new();
    for (group, pods) in round.problem.pods.iter().zip(&round.pods) {
        // Pods of nodes that are about to go are planned for too, but they run.
        let waiting = pods.iter().filter(|pod| !is_bound(pod) && !is_virtual(pod)).count();
        if waiting > 0 {
            *zones.entry(effective_zone(&group.spec)).or_default() += waiting;
        }
    }
    zones
}

fn pods_of(round: &AssembledProblem, runs: &[PodRun]) -> Vec<Arc<Pod>> {
    runs.iter().flat_map(|run| round.pods_of(*run)).cloned().collect()
}

fn launches(round: &AssembledProblem, plan: &Plan) -> Vec<Launch> {
    let problem = &round.problem;
    let launch = |planned: &karpenter_model::plan::PlannedNode| {
        let pool = round.pools.get(planned.pool)?;
        let definition = &problem.pools[planned.pool];
        let instance_type = problem.catalogs.get(definition.catalog)?.get(planned.instance_type)?;
        Some(Launch {
            pool: pool.clone(),
            usage: definition.usage.clone(),
            claim: claims::claim_from_plan(problem, planned, pool),
            pods: pods_of(round, &planned.pods),
            price_per_hour: planned.price_per_hour,
            instance_type: instance_type.name.to_string(),
        })
    };
    plan.new_nodes.iter().filter_map(launch).collect()
}

fn placements(round: &AssembledProblem, plan: &Plan) -> Vec<Placement> {
    let place = |placement: &karpenter_model::plan::ExistingPlacement| Placement {
        host: round.hosts.get(placement.node).cloned().unwrap_or_default(),
        is_initialized: round.problem.nodes[placement.node].initialized,
        pods: pods_of(round, &placement.pods),
    };
    plan.existing.iter().map(place).collect()
}

fn failures(round: &AssembledProblem, plan: &Plan) -> Vec<Failure> {
    let failure = |left: &karpenter_model::plan::Unschedulable| Failure {
        pods: pods_of(round, &[left.pods]),
        why: reasons_text(&left.reasons),
        is_reported: left.reasons.iter().any(|refusal| is_reportable(&refusal.reason)),
        kind: kind_of(&left.reasons),
    };
    plan.unschedulable.iter().map(failure).collect()
}

fn kind_of(reasons: &[Refusal]) -> FailureKind {
    if reasons.iter().any(|refusal| refusal.scope == Scope::Pod) {
        FailureKind::Ignored
    } else if reasons.iter().any(|refusal| refusal.reason == Reason::ReservationFull) {
        FailureKind::Reserved
    } else {
        FailureKind::Unschedulable
    }
}

fn is_reportable(reason: &Reason) -> bool {
    !matches!(reason, Reason::OptedOut | Reason::ReservationFull)
}

fn reasons_text(reasons: &[Refusal]) -> String {
    let mut seen = BTreeSet::new();
    // Whatever is wrong with the pod itself is told to the pod, in upstream's words.
    let text = |refusal: &Refusal| match refusal.scope {
        Scope::Pod => refusal.reason.to_string(),
        _ => refusal.to_string(),
    };
    let texts = reasons.iter().map(text).filter(|text| seen.insert(text.clone()));
    texts.collect::<Vec<_>>().join("; ")
}

/// Pools that could not launch a node for any pod.
fn pools_without_types(round: &AssembledProblem) -> Vec<(Arc<NodePool>, bool)> {
    let problem = &round.problem;
    let mut found = Vec::new();
    for (pool, definition) in round.pools.iter().zip(&problem.pools) {
        let mut wanted = definition.requirements.clone();
        wanted.extend(&Requirements::from_labels(&definition.labels));
        let catalog = problem.catalogs.get(definition.catalog).map_or(&[][..], |types| types.as_slice());
        let is_offered = |one: &&karpenter_model::instance_type::InstanceType| {
            one.requirements.intersects(&wanted)
                && one
                    .offerings
                    .iter()
                    .any(|offering| offering.available && offering.requirements.intersects(&wanted))
        };
        let types: Vec<_> = catalog.iter().filter(is_offered).collect();
        let lacks_values = wanted.iter().any(|requirement| {
            let Some(wanted) = requirement.min_values else { return false };
            let values: BTreeSet<&str> = types
                .iter()
                .filter_map(|one| one.requirements.get(&requirement.key))
                .flat_map(|one| one.values.iter().map(AsRef::as_ref))
                .filter(|value| requirement.has(value))
                .collect();
            values.len() < wanted as usize
        });
        let is_strict =
            problem.options.min_values_policy == karpenter_model::problem::MinValuesPolicy::Strict;
        if types.is_empty() || (lacks_values && is_strict) {
            found.push((pool.clone(), !types.is_empty()));
        }
    }
    found
}
