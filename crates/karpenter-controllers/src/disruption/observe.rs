//! Reads the input of a pass: stores, cluster state, and instance types of the provider. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::NodePool;
use karpenter_cluster::controllers::context::{is_deleting, label, name_of, uid_of};
use karpenter_disruption::cluster::{ProposedCommand, Reason};
use karpenter_state::cost::unreadable_cost;
use karpenter_state::pod::Pod;
use karpenter_state::{ClusterInput, DeletionCosts, DisruptionInput, PoolInput};

use super::command_state::{ClaimId, ClaimObservation};
use super::trigger::AnswerDeadlines;
use crate::context::Context;
use crate::node::repair;
use crate::nodeclaim::{INITIALIZED, is_true, provider_id};
use crate::nomination::expects_pods;
use crate::pods;
use crate::provisioning::{self, is_launching_pool};
use crate::stores::BY_POOL;

/// The objects that a pass is assembled from.
pub(crate) struct DisruptionFacts {
    pub(crate) live: ClusterInput,
    pub(crate) input: DisruptionInput,
    pub(super) proposed_commands: Vec<ProposedCommand>,
    /// Candidates of started commands; set by the caller.
    pub(super) disrupting_claims: BTreeSet<Arc<str>>,
    /// Claims in a hold-off, with the reasons; set by the caller.
    pub(super) held_off: BTreeMap<Arc<str>, BTreeSet<Reason>>,
    pub(super) deadlines: AnswerDeadlines,
    /// Pods with a do-not-disrupt annotation that is temporary, elapsed or invalid.
    pub(super) annotated: Vec<Arc<Pod>>,
    /// Pods with an invalid deletion cost annotation.
    pub(super) pods_with_unreadable_cost: Vec<Arc<Pod>>,
}

/// Whether the stores are synced.
pub(super) fn is_synced(context: &Context) -> bool {
    let stores = &context.stores;
    stores.pods.is_synced()
        && stores.nodes.is_synced()
        && stores.node_claims.is_synced()
        && stores.node_pools.is_synced()
        && stores.budgets.is_synced()
        && stores.daemon_sets.is_synced()
}

/// Reads everything. `None` while the stores are not synced, or while a claim of provisioning has no instance yet:
/// until the instances of pending launches are known, needed nodes may seem unnecessary.
pub(crate) async fn observe(
    context: &Context,
    proposed_commands: Vec<ProposedCommand>,
    own_launches: &BTreeSet<String>,
) -> Option<DisruptionFacts> {
    if !is_synced(context) {
        return None;
    }
    let stores = &context.stores;
    let now = context.clock.now();
    let is_unknown = |claim: &&Arc<karpenter_api::types::NodeClaim>| {
        context.is_managed(&claim.spec.node_class_ref)
            && provider_id(claim).is_none()
            && !is_deleting(&***claim)
            && !own_launches.contains(name_of(&***claim))
    };
    let claims = stores.node_claims.list();
    if claims.iter().any(|claim| is_unknown(&claim)) {
        return None;
    }
    let held = pools_in_launch_backoff(context, now);
    let (launching, other_pools) = pools(context, &held).await;
    let sorted = provisioning::classify_pods_read_only(context, now);
    let deletion_costs = deletion_costs(context);
    let mut deadlines = AnswerDeadlines::default();
    let (mut annotated, mut pods_with_unreadable_cost) = (Vec::new(), Vec::new());
    for pod in &sorted.bound {
        if unreadable_cost(pod, deletion_costs).is_some() {
            pods_with_unreadable_cost.push(pod.clone());
        }
        match pods::do_not_disrupt(pod, now) {
            pods::DoNotDisrupt::Absent | pods::DoNotDisrupt::Always => continue,
            pods::DoNotDisrupt::Until(until) => {
                let earlier = deadlines.protected_until.unwrap_or(until);
                deadlines.protected_until = Some(until.min(earlier));
            }
            pods::DoNotDisrupt::Elapsed | pods::DoNotDisrupt::Invalid => {}
        }
        annotated.push(pod.clone());
    }
    let live = provisioning::planning_input(context, sorted, launching);
    let state = &context.state;
    let moves = state.move_history();
    let mut input = DisruptionInput {
        now,
        other_pools,
        pools_in_launch_backoff: held,
        pod_budgets: stores.budgets.list(),
        nominated: state.nominated_nodes(now),
        deletion_costs,
        revision: provisioning::revision(stores),
        ..DisruptionInput::default()
    };
    input
        .nominated
        .extend(state.hosts_with_reservations().into_iter().filter(|host| expects_pods(context, host)));
    for claim in &claims {
        if let Some(at) = moves.moved_onto_at(name_of(&**claim)) {
            input.claims_moved_onto_at_secs.insert(uid_of(&**claim).to_owned(), at.as_second());
        }
    }
    input.pods_moved_at_secs = moves.pods_moved_at_secs();
    for pool in live.pools.iter().chain(&input.other_pools) {
        let name = name_of(&*pool.pool);
        let moved = moves.pods_moved_in_last_hour(name, now);
        input.moved_last_hour.insert(name.to_owned(), moved);
        deadlines
            .move_limit_reopens_at
            .extend(moves.hourly_count_falls_at(name, now).map(|at| (name.to_owned(), at)));
    }
    if context.gates.node_repair && !context.settings.is_node_repair_legacy {
        input.repairs = repair::repairs(context, now);
        input.unhealthy = repair::unhealthy_nodes(context);
    }
    let (disrupting_claims, held_off) = (BTreeSet::new(), BTreeMap::new());
    Some(DisruptionFacts {
        live,
        input,
        proposed_commands,
        disrupting_claims,
        held_off,
        deadlines,
        annotated,
        pods_with_unreadable_cost,
    })
}

/// Whether and how deletion costs of pods are set in this cluster.
pub(super) fn deletion_costs(context: &Context) -> DeletionCosts {
    match context.gates.pod_deletion_cost_management {
        true => DeletionCosts::Managed,
        false => DeletionCosts::SetByUsers,
    }
}

/// NodePools in launch back-off.
fn pools_in_launch_backoff(context: &Context, now: Timestamp) -> BTreeSet<String> {
    let pools = context.stores.node_pools.list();
    let launch_backoff = context.launch_backoff.lock();
    let names = pools.iter().map(|pool| name_of(&**pool));
    names.filter(|name| launch_backoff.held_until(name, now).is_some()).map(str::to_owned).collect()
}

/// The NodePools that launch for pods, and all others of this provider. A NodePool whose instance types cannot be read is in
/// neither, so its nodes are not disrupted.
async fn pools(context: &Context, held: &BTreeSet<String>) -> (Vec<PoolInput>, Vec<PoolInput>) {
    let (mut launching, mut others) = (Vec::new(), Vec::new());
    for pool in context.stores.node_pools.list() {
        if !context.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        let instance_types = match context.cloud.instance_types(&pool).await {
            Ok(instance_types) => instance_types,
            Err(error) => {
                let name = name_of(&*pool);
                if context.log_throttle.is_due("prices", name, context.clock.now()) {
                    tracing::error!(nodepool = name, %error, "failed getting instance types, nodes of the nodepool are not disrupted");
                }
                continue;
            }
        };
        // Replacements from a NodePool in launch back-off would fail.
        let is_launching = is_launching_pool(&pool) && !held.contains(name_of(&*pool));
        let list = if is_launching { &mut launching } else { &mut others };
        list.push(PoolInput { pool, instance_types });
    }
    (launching, others)
}

/// Names of a NodePool's claims.
pub(super) fn claims_of(context: &Context, pool: &str) -> Vec<String> {
    let claims = context.stores.node_claims.by(BY_POOL, pool);
    claims.iter().map(|claim| name_of(&**claim).to_owned()).collect()
}

/// The state of a claim for a command.
pub(super) fn observe_claim(context: &Context, id: &ClaimId) -> ClaimObservation {
    let claim = context.stores.node_claims.get("", &id.name).filter(|claim| uid_of(&**claim) == id.uid);
    match claim {
        None => ClaimObservation::Gone,
        Some(claim) if is_deleting(&*claim) => ClaimObservation::Deleting,
        Some(claim) if is_true(&claim, INITIALIZED) || context.state.is_held_for_moved_pods(&id.name) => {
            ClaimObservation::Ready
        }
        Some(_) => ClaimObservation::NotReady,
    }
}

/// The NodePool from the store.
pub(super) fn find_pool(context: &Context, name: &str) -> Option<Arc<NodePool>> {
    context.stores.node_pools.get("", name)
}

/// The NodePool of a claim, by its label.
pub(super) fn pool_label(claim: &karpenter_api::types::NodeClaim) -> &str {
    label(claim, labels::NODEPOOL).unwrap_or_default()
}
