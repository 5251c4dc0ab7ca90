//! Reads the input of an evaluation of disruption: stores, cluster state, and instance types of the provider. Decides
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_disruption::cluster::{ProposedCommand, Reason};
use karpenter_runtime::object::{is_deleting, name_of, uid_of};
use karpenter_state::claim::provider_id;
use karpenter_state::cost::unreadable_cost;
use karpenter_state::pod::Pod;
use karpenter_state::pool::is_launching_pool;
use karpenter_state::{ClusterInput, DisruptionInput, PoolInput};

use super::{PlannerReader, classify_pods_read_only, planning_input};
use crate::inputs::Reads;
use crate::nominations::expects_pods;
use crate::pods;

/// The input of one pass of the evaluation loop.
pub(crate) struct DisruptionFacts {
    pub(crate) live: ClusterInput,
    pub(crate) input: DisruptionInput,
    pub(crate) proposed_commands: Vec<ProposedCommand>,
    /// Candidates of started commands; set by the caller.
    pub(crate) disrupting_claims: BTreeSet<Arc<str>>,
    /// Claims in a hold-off, with the reasons; set by the caller.
    pub(crate) held_off: BTreeMap<Arc<str>, BTreeSet<Reason>>,
    pub(crate) deadlines: AnswerDeadlines,
    /// Pods with a do-not-disrupt annotation that is temporary, elapsed or invalid.
    pub(crate) annotated: Vec<Arc<Pod>>,
    /// Pods with an invalid deletion cost annotation.
    pub(crate) pods_with_unreadable_cost: Vec<Arc<Pod>>,
}

/// Whether the main stores that an evaluation reads are synced.
pub(crate) fn is_synced(reads: &Reads) -> bool {
    let stores = &reads.stores;
    stores.pods.is_synced()
        && stores.nodes.is_synced()
        && stores.node_claims.is_synced()
        && stores.node_pools.is_synced()
        && stores.budgets.is_synced()
        && stores.daemon_sets.is_synced()
}

/// Times at which the result of an evaluation may change although the cluster does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerDeadlines {
    /// When the first temporary do-not-disrupt annotation ends.
    pub(crate) protected_until: Option<Timestamp>,
    /// When the number of pods that were moved within the last hour next falls, by NodePool.
    pub(crate) move_limit_reopens_at: BTreeMap<String, Timestamp>,
}

/// Reads the input of an evaluation. Returns `None` while the stores are not synced, and while a claim that is not in
/// `own_launches` has no instance yet: until then, nodes that are needed may seem unnecessary.
pub(crate) async fn observe(
    reader: &PlannerReader,
    proposed_commands: Vec<ProposedCommand>,
    own_launches: &BTreeSet<String>,
) -> Option<DisruptionFacts> {
    if !is_synced(&reader.reads) {
        return None;
    }
    let stores = &reader.reads.stores;
    let now = reader.reads.clock.now();
    let is_unknown = |claim: &&Arc<karpenter_api::types::NodeClaim>| {
        reader.reads.is_managed(&claim.spec.node_class_ref)
            && provider_id(claim).is_none()
            && !is_deleting(&***claim)
            && !own_launches.contains(name_of(&***claim))
    };
    let claims = stores.node_claims.list();
    if claims.iter().any(|claim| is_unknown(&claim)) {
        return None;
    }
    let held = pools_in_launch_backoff(reader, now);
    let (launching, other_pools) = pools(reader, &held).await;
    let sorted = classify_pods_read_only(reader, now);
    let deletion_costs = reader.gates.deletion_costs();
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
    let live = planning_input(reader, sorted, launching);
    let state = &reader.reads.state;
    let moves = state.move_history();
    let mut input = DisruptionInput {
        now,
        other_pools,
        pools_in_launch_backoff: held,
        pod_budgets: stores.budgets.list(),
        nominated: state.nominated_nodes(now),
        deletion_costs,
        revision: stores.revision(),
        ..DisruptionInput::default()
    };
    input
        .nominated
        .extend(state.hosts_with_reservations().into_iter().filter(|host| expects_pods(&reader.reads, host)));
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
    let node_health = &reader.node_health;
    if node_health.is_enabled {
        input.repairs = node_health.repairs(now);
        input.unhealthy = node_health.unhealthy_nodes();
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

/// NodePools in launch back-off.
fn pools_in_launch_backoff(reader: &PlannerReader, now: Timestamp) -> BTreeSet<String> {
    let pools = reader.reads.stores.node_pools.list();
    let launch_backoff = reader.launch_backoff.lock();
    let names = pools.iter().map(|pool| name_of(&**pool));
    names.filter(|name| launch_backoff.held_until(name, now).is_some()).map(str::to_owned).collect()
}

/// Two lists: the NodePools that may launch nodes, and the other NodePools of this provider. A NodePool whose instance
/// types cannot be read is in neither list, so its nodes are not disrupted.
async fn pools(reader: &PlannerReader, held: &BTreeSet<String>) -> (Vec<PoolInput>, Vec<PoolInput>) {
    let (mut launching, mut others) = (Vec::new(), Vec::new());
    for pool in reader.reads.stores.node_pools.list() {
        if !reader.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        let instance_types = match reader.cloud.instance_types(&pool).await {
            Ok(instance_types) => instance_types,
            Err(error) => {
                let name = name_of(&*pool);
                if reader.log_throttle.is_due("prices", name, reader.reads.clock.now()) {
                    tracing::error!(nodepool = name, %error, "failed getting instance types, nodes of the nodepool are not disrupted");
                }
                continue;
            }
        };
        // A NodePool in launch back-off is not in the first list, because launches of replacements would fail.
        let is_launching = is_launching_pool(&pool) && !held.contains(name_of(&*pool));
        let list = if is_launching { &mut launching } else { &mut others };
        list.push(PoolInput { pool, instance_types });
    }
    (launching, others)
}
