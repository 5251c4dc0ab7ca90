//! Decides a provisioning pass: which NodeClaims to create, which pods to place on existing nodes, and which pods are
//! unschedulable for which reason.
//!
//! The functions are pure, except that they catch panics. The validator checks every plan before it is executed. After
//! a planner fault, the affected pods or nodes are left out and the rest is planned again ([`plan_validated`]). After a
//! panic while the problem is assembled, the affected pods are left out, too.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_explain::hints;
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

use super::faults::{Faults, suspect_groups};
use crate::claims;
use crate::compute::{CatchPanics, catch};
use crate::metrics::scheduler::{PodsByZone, effective_zone};
use crate::pods::is_bound;

/// A node to launch, with its pods.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) pool: Arc<NodePool>,
    /// The usage of the NodePool's limits before this pass.
    pub(super) usage: ResourceList,
    pub(super) claim: NodeClaim,
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) price_per_hour: f64,
    pub(super) instance_type: String,
}

/// Pods planned onto an existing or in-flight node.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) host: Host,
    pub(super) is_initialized: bool,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Unschedulable pods.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) why: String,
    /// For the event: the change by which the pods would become schedulable most easily.
    pub(super) fix: Option<String>,
    /// Whether to publish events and log lines. `false` for pods that opted out or that wait for a capacity
    /// reservation.
    pub(super) is_reported: bool,
    pub(super) kind: FailureKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The pod was not planned, because it is invalid, has opted out, or makes the planner panic.
    Ignored,
    /// The pod waits for free capacity in a capacity reservation.
    Reserved,
    Unschedulable,
}

#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) launches: Vec<Launch>,
    pub(super) placements: Vec<Placement>,
    pub(super) failures: Vec<Failure>,
    /// NodePools that cannot launch a node for any pod, because their own requirements exclude all available instance
    /// types. The value is `true` if only `minValues` is the cause.
    pub(super) pools_without_types: Vec<(Arc<NodePool>, bool)>,
    /// Planner faults.
    pub(super) faults: Faults,
    pub(super) price_before_per_hour: f64,
    pub(super) price_after_per_hour: f64,
    /// Pending pods by the zone that they require.
    pub(super) zones: PodsByZone,
}

/// The maximum number of attempts to find the pending pods for which `assemble_cluster` panics.
const ASSEMBLY_ATTEMPTS_MAX: usize = 32;
/// The maximum size of the planner input that is recorded after a planner fault.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// Decides the pass. Pods whose spec is in `suspects` are left out.
pub(super) fn decide(
    input: &ClusterInput,
    options: Options,
    suspects: &[Arc<PodSpec>],
    planner: &dyn Planner,
) -> Decided {
    let mode = options.mode;
    let (assembled, mut faults) = match catch(|| assemble_cluster(input)) {
        Ok(assembled) => (Some(assembled), Faults::default()),
        Err(fault) => {
            let mut faults = Faults::of_assembly(fault, mode);
            let found = isolate(&input.pending, ASSEMBLY_ATTEMPTS_MAX, |kept| {
                catch(|| assemble_cluster(&ClusterInput { pending: kept.to_vec(), ..input.clone() })).ok()
            });
            faults.pods = found.left_out;
            (found.best, faults)
        }
    };
    let unassembled = Failure {
        pods: faults.pods.clone(),
        why: Reason::PlannerFault.to_string(),
        fix: None,
        is_reported: true,
        kind: FailureKind::Ignored,
    };
    let mut decided = match assembled {
        Some(mut assembled) => {
            assembled.problem.options = options;
            let mut decided = decide_assembled(assembled, suspects, planner, &mut faults);
            add_not_ready(&mut decided.failures, input);
            decided
        }
        None => Decided::default(),
    };
    if !unassembled.pods.is_empty() {
        decided.failures.push(unassembled);
    }
    if !faults.found.is_empty() {
        faults.input = catch(|| replay::manifests(input, &faults.pods, INPUT_BYTES_MAX).into()).ok();
    }
    decided.faults = faults;
    decided
}

fn decide_assembled(
    mut assembled: AssembledProblem,
    suspects: &[Arc<PodSpec>],
    planner: &dyn Planner,
    faults: &mut Faults,
) -> Decided {
    let suspect_groups = suspect_groups(&assembled.problem, suspects);
    let planned = plan_validated(&assembled.problem, &suspect_groups, &CatchPanics(planner));
    faults.add(&assembled.problem, &planned);
    faults.pods.extend(planned.left_out.pods().flat_map(|run| assembled.pods_of(run)).cloned());
    assembled.problem.options.mode = planned.mode;
    let plan = planned.plan;
    let price_before_per_hour: f64 =
        assembled.problem.nodes.iter().filter_map(|node| node.price_per_hour).sum();
    Decided {
        launches: launches(&assembled, &plan),
        placements: placements(&assembled, &plan),
        failures: failures(&assembled, &plan),
        pools_without_types: pools_without_types(&assembled),
        faults: Faults::default(),
        price_before_per_hour,
        price_after_per_hour: price_before_per_hour + plan.price_per_hour,
        zones: pods_by_zone(&assembled),
    }
}

fn pods_by_zone(assembled: &AssembledProblem) -> PodsByZone {
    let mut zones = PodsByZone::new();
    for (group, pods) in assembled.problem.pods.iter().zip(&assembled.pods) {
        // Pods on terminating nodes are planned too, but they are bound and therefore not pending.
        let pending = pods.iter().filter(|pod| !is_bound(pod) && !is_virtual(pod)).count();
        if pending > 0 {
            *zones.entry(effective_zone(&group.spec)).or_default() += pending;
        }
    }
    zones
}

fn pods_of(assembled: &AssembledProblem, runs: &[PodRun]) -> Vec<Arc<Pod>> {
    runs.iter().flat_map(|run| assembled.pods_of(*run)).cloned().collect()
}

fn launches(assembled: &AssembledProblem, plan: &Plan) -> Vec<Launch> {
    let problem = &assembled.problem;
    let launch = |planned: &karpenter_model::plan::PlannedNode| {
        let pool = assembled.pools.get(planned.pool)?;
        let definition = &problem.pools[planned.pool];
        let instance_type = problem.catalogs.get(definition.catalog)?.get(planned.instance_type)?;
        Some(Launch {
            pool: pool.clone(),
            usage: definition.usage.clone(),
            claim: claims::claim_from_plan(problem, planned, pool),
            pods: pods_of(assembled, &planned.pods),
            price_per_hour: planned.price_per_hour,
            instance_type: instance_type.name.to_string(),
        })
    };
    plan.new_nodes.iter().filter_map(launch).collect()
}

fn placements(assembled: &AssembledProblem, plan: &Plan) -> Vec<Placement> {
    let placement_of = |placement: &karpenter_model::plan::ExistingPlacement| Placement {
        host: assembled.hosts.get(placement.node).cloned().unwrap_or_default(),
        is_initialized: assembled.problem.nodes[placement.node].initialized,
        pods: pods_of(assembled, &placement.pods),
    };
    plan.existing.iter().map(placement_of).collect()
}

fn failures(assembled: &AssembledProblem, plan: &Plan) -> Vec<Failure> {
    let failure = |left: &karpenter_model::plan::Unschedulable| Failure {
        pods: pods_of(assembled, &[left.pods]),
        why: reasons_text(&left.reasons),
        fix: fix_of(&left.reasons),
        is_reported: left.reasons.iter().any(|refusal| is_reportable(&refusal.reason)),
        kind: kind_of(&left.reasons),
    };
    plan.unschedulable.iter().map(failure).collect()
}

/// The fix for the closest reason that has one. Reasons of existing nodes are skipped, because their fix does not name
/// an object to change.
fn fix_of(reasons: &[Refusal]) -> Option<String> {
    let mut reasons: Vec<&Refusal> =
        reasons.iter().filter(|refusal| !matches!(refusal.scope, Scope::ExistingNodes { .. })).collect();
    reasons.sort_by_key(|refusal| hints::distance(&refusal.reason));
    reasons.into_iter().find_map(hints::hint)
}

/// Adds NodePools that are not ready to the reasons of unschedulable pods. If no NodePool is ready, the fix is to
/// correct the conditions of the first of them.
fn add_not_ready(failures: &mut [Failure], input: &ClusterInput) {
    let pools = &input.not_ready_pools;
    let name = |pool: &NodePool| pool.metadata.name.clone().unwrap_or_default();
    let texts = pools.iter().map(|pool| {
        let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let cause = ready.map(|ready| ready.message.as_str()).filter(|message| !message.is_empty());
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("; nodepool {}: not ready{cause}", name(pool))
    });
    let text: String = texts.collect();
    let only = pools.first().filter(|_| input.pools.is_empty());
    for failure in failures.iter_mut().filter(|failure| failure.kind == FailureKind::Unschedulable) {
        failure.why.push_str(&text);
        if let Some(pool) = only {
            failure.fix = Some(format!("correct what the conditions of NodePool {} report", name(pool)));
        }
    }
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
    // Reasons that concern only the pod are printed without a prefix, in upstream's words.
    let text = |refusal: &Refusal| match refusal.scope {
        Scope::Pod => refusal.reason.to_string(),
        _ => refusal.to_string(),
    };
    let texts = reasons.iter().map(text).filter(|text| seen.insert(text.clone()));
    texts.collect::<Vec<_>>().join("; ")
}

/// NodePools that cannot launch a node for any pod; `true` if only `minValues` is the cause.
fn pools_without_types(assembled: &AssembledProblem) -> Vec<(Arc<NodePool>, bool)> {
    let problem = &assembled.problem;
    let mut found = Vec::new();
    for (pool, definition) in assembled.pools.iter().zip(&problem.pools) {
        let mut requirements = definition.requirements.clone();
        requirements.extend(&Requirements::from_labels(&definition.labels));
        let catalog = problem.catalogs.get(definition.catalog).map_or(&[][..], |types| types.as_slice());
        let is_offered = |one: &&karpenter_model::instance_type::InstanceType| {
            one.requirements.intersects(&requirements)
                && one
                    .offerings
                    .iter()
                    .any(|offering| offering.available && offering.requirements.intersects(&requirements))
        };
        let types: Vec<_> = catalog.iter().filter(is_offered).collect();
        let lacks_values = requirements.iter().any(|requirement| {
            let Some(min_values) = requirement.min_values else { return false };
            let values: BTreeSet<&str> = types
                .iter()
                .filter_map(|one| one.requirements.get(&requirement.key))
                .flat_map(|one| one.values.iter().map(AsRef::as_ref))
                .filter(|value| requirement.has(value))
                .collect();
            values.len() < min_values as usize
        });
        let is_strict =
            problem.options.min_values_policy == karpenter_model::problem::MinValuesPolicy::Strict;
        if types.is_empty() || (lacks_values && is_strict) {
            found.push((pool.clone(), !types.is_empty()));
        }
    }
    found
}
