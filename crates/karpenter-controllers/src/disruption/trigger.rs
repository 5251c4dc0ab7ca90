//! Decides when the next evaluation is due. After an evaluation that found no commands, the next one runs only when an
//! input has changed, or at a time at which the result may be different.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels::ANNOTATION_PODS_MOVED;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_disruption::cluster::{Cluster, StateNode};
use karpenter_disruption::evaluate::Evaluation;
use karpenter_disruption::pool_policy::cool_down_until;
use karpenter_runtime::clock::after;
use karpenter_runtime::store::{Change, Store};
use karpenter_state::pod::Pod;

use super::{IDLE_POLL, REEVALUATE_AFTER_MAX};
use crate::buffers::{asks_for_same_pods, observe_referenced_objects};
use crate::planner_input::disruption::AnswerDeadlines;
use crate::stores::Stores;

/// Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct EvaluationTrigger {
    generation: Arc<AtomicU64>,
    /// The generation of the last evaluation that found no commands, and until when its result is valid.
    unchanged: Arc<Mutex<Option<(u64, Timestamp)>>>,
}

impl EvaluationTrigger {
    pub(super) fn watch(&self, stores: &Stores) {
        self.watch_store(&stores.pods, pod_differs);
        self.watch_store(&stores.nodes, node_differs);
        self.watch_store(&stores.node_claims, claim_differs);
        self.watch_store(&stores.node_pools, pool_differs);
        self.watch_store(&stores.budgets, budget_differs);
        self.watch_store(&stores.daemon_sets, |old, new| old.metadata.generation != new.metadata.generation);
        // CapacityBuffers and the objects that they refer to determine virtual pods.
        if let Some(buffers) = &stores.capacity_buffers {
            self.watch_store(buffers, |old, new| !asks_for_same_pods(old, new));
        }
        let trigger = self.clone();
        observe_referenced_objects(stores, move |_| trigger.record_change());
    }

    fn watch_store<K: Send + Sync + 'static>(&self, store: &Store<K>, differs: fn(&K, &K) -> bool) {
        let generation = self.generation.clone();
        store.observe(move |change: &Change<K>| {
            let matters = match change {
                Change::Applied { old: Some(old), new } => differs(old, new),
                Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
            };
            if matters {
                generation.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Records a change of an input that is not in a store, such as prices.
    pub(super) fn record_change(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of changes so far. Read it before an evaluation, so that changes during the evaluation are noticed.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Records that the evaluation of this generation found no commands, and that its result is valid until `again_at`.
    pub(super) fn nothing_found(&self, generation: u64, again_at: Timestamp) {
        *self.unchanged.lock().unwrap_or_else(PoisonError::into_inner) = Some((generation, again_at));
    }

    /// Makes the next evaluation due at once, because a command started or ended.
    pub(super) fn reset(&self) {
        *self.unchanged.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Until when the last result is valid; `None` if an input changed since then.
    pub(super) fn unchanged_until(&self) -> Option<Timestamp> {
        let unchanged = *self.unchanged.lock().unwrap_or_else(PoisonError::into_inner);
        unchanged.filter(|(generation, _)| *generation == self.generation()).map(|(_, until)| until)
    }
}

/// The interval of evaluations while pods are nominated and not bound.
const NOMINATED_POLL: Duration = Duration::from_secs(5);

/// When an evaluation may find commands although nothing changed.
pub(super) fn next_evaluation_at(
    cluster: &Cluster,
    evaluation: &Evaluation,
    deadlines: &AnswerDeadlines,
    now: Timestamp,
) -> Timestamp {
    let mut next = after(now, REEVALUATE_AFTER_MAX);
    next = deadlines.protected_until.map_or(next, |until| next.min(until));
    // Repair and drift depend on how long conditions last and on PodDisruptionBudgets, so unhealthy and drifted nodes
    // are evaluated often.
    if cluster.state_nodes.iter().any(|one| {
        one.is_unhealthy
            || one.repair.is_some()
            || (one.drifted_since_secs.is_some() && !one.is_marked_for_deletion)
    }) {
        next = next.min(after(now, IDLE_POLL));
    }
    // Evaluations are repeated while a node is nominated, because no event is triggered when the nomination ends.
    if cluster.state_nodes.iter().any(|one| one.is_nominated && !one.is_marked_for_deletion) {
        next = next.min(after(now, NOMINATED_POLL));
    }
    // Schedules of budgets begin and end at full minutes.
    if evaluation.outcomes.iter().any(|outcome| outcome.is_constrained_by_budgets) {
        let past = now.as_second().rem_euclid(60);
        next = next.min(after(now, Duration::from_secs(u64::try_from(60 - past).unwrap_or(60))));
    }
    let settled = cluster.state_nodes.iter().filter_map(|state_node| {
        let wait = cluster.pools.get(state_node.pool.as_ref()?)?.consolidate_after_secs?;
        let at = Timestamp::from_second(state_node.last_pod_event_secs?.checked_add(wait)?).ok()?;
        // The planner truncates times to whole seconds: for it, a time within the current second has not passed yet.
        (at > now || at.as_second() >= now.as_second()).then_some(at.max(after(now, Duration::from_secs(1))))
    });
    let due = cluster.state_nodes.iter().flat_map(|state_node| legacy_deadlines(cluster, state_node));
    let due = due.filter_map(|at| Timestamp::from_second(at).ok()).filter(|at| *at > now);
    // PodDisruptionBudgets may block the disruption of an expired node, so expired nodes are evaluated again and again.
    let is_expired =
        |state_node: &StateNode| legacy_deadlines(cluster, state_node).any(|at| at <= now.as_second());
    if cluster
        .state_nodes
        .iter()
        .any(|state_node| !state_node.is_marked_for_deletion && is_expired(state_node))
    {
        next = next.min(after(now, IDLE_POLL));
    }
    settled
        .chain(due)
        .chain(cool_down_ends(cluster, now))
        .chain(move_limits_reopen(cluster, deadlines))
        .fold(next, Timestamp::min)
}

/// When the cool-downs of nodes end.
fn cool_down_ends(cluster: &Cluster, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    let staying = cluster.state_nodes.iter().filter(|state_node| !state_node.is_marked_for_deletion);
    staying.filter_map(move |state_node| {
        let pool = cluster.pools.get(state_node.pool.as_ref()?)?;
        Timestamp::from_second(cool_down_until(state_node, pool, now.as_second())?).ok()
    })
}

/// When NodePools that reached their maximum of moves per hour may move pods again.
fn move_limits_reopen(cluster: &Cluster, deadlines: &AnswerDeadlines) -> impl Iterator<Item = Timestamp> {
    let bounded = move |name: &str| {
        cluster.pools.get(name).is_some_and(|one| one.pool_policy.max_moves_per_hour.is_some())
    };
    deadlines.move_limit_reopens_at.iter().filter(move |(name, _)| bounded(name)).map(|(_, at)| *at)
}

/// When nodes expire, or were empty for long enough, under the rules of the v1alpha5 API.
fn legacy_deadlines(cluster: &Cluster, state_node: &StateNode) -> impl Iterator<Item = i64> {
    let rules =
        state_node.pool.as_ref().and_then(|pool| cluster.pools.get(pool)).and_then(|pool| pool.legacy_rules);
    let marks = state_node.legacy_marks;
    let rules = rules.unwrap_or_default();
    let sum = |since: Option<i64>, after: Option<i64>| Some(since?.saturating_add(after?));
    let age = sum(marks.node_created_at_secs, rules.expires_after_secs);
    // Times are truncated to whole seconds, so one second is added: the full TTL must have passed.
    let empty = sum(marks.empty_since_secs, rules.empty_after_secs).map(|at| at.saturating_add(1));
    age.into_iter().chain(empty)
}

fn pod_differs(old: &Pod, new: &Pod) -> bool {
    let ready = |pod: &Pod| pod.status.ready.map(|ready| (ready.is_true, ready.is_false));
    !old.has_equal_spec(new)
        || old.node_name != new.node_name
        || old.deleted_at != new.deleted_at
        || old.status.phase != new.status.phase
        || ready(old) != ready(new)
        || old.status.is_unschedulable != new.status.is_unschedulable
}

/// Whether the change of a node matters for an evaluation. Heartbeats and images do not.
fn node_differs(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    let conditions = |node: &Node| -> Vec<(String, String)> {
        let all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        all.into_iter().map(|one| (one.type_.clone(), one.status.clone())).collect()
    };
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || allocatable(old) != allocatable(new)
        || conditions(old) != conditions(new)
}

fn claim_differs(old: &NodeClaim, new: &NodeClaim) -> bool {
    old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.status != new.status
}

/// Whether the change of a NodePool matters for an evaluation. The annotation with moved pods does not, because this
/// controller writes it.
fn pool_differs(old: &NodePool, new: &NodePool) -> bool {
    let annotations = |pool: &NodePool| -> Vec<(String, String)> {
        let all = pool.metadata.annotations.iter().flatten();
        let all = all.filter(|(name, _)| *name != ANNOTATION_PODS_MOVED);
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let conditions = |pool: &NodePool| pool.status.as_ref().map(|status| status.conditions.clone());
    old.metadata.generation != new.metadata.generation
        || annotations(old) != annotations(new)
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || conditions(old) != conditions(new)
}

fn budget_differs(old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> bool {
    let allowed = |one: &PodDisruptionBudget| one.status.as_ref().map(|status| status.disruptions_allowed);
    old.spec != new.spec || allowed(old) != allowed(new)
}
