//! Whether it is worth looking again: a pass that found nothing finds nothing until something changes that it looks at,
//! or until time itself changes the answer.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels::ANNOTATION_PODS_MOVED;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cluster::store::{Change, Store};
use karpenter_disruption::controls::cool_down_until;
use karpenter_disruption::fleet::{Fleet, Machine};
use karpenter_disruption::propose::Proposal;
use karpenter_state::pod::Pod;

use super::flight::after;
use super::{IDLE_POLL, QUIET_MAX};
use crate::capacity_buffer::{asks_for_same_pods, observe_referenced_objects};
use crate::stores::Stores;

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    number: Arc<AtomicU64>,
    /// The number as it was when nothing was found, and until when that holds.
    quiet: Arc<Mutex<Option<(u64, Timestamp)>>>,
}

impl Changes {
    pub(super) fn watch(&self, stores: &Stores) {
        self.follow(&stores.pods, pod_differs);
        self.follow(&stores.nodes, node_differs);
        self.follow(&stores.node_claims, claim_differs);
        self.follow(&stores.node_pools, pool_differs);
        self.follow(&stores.budgets, budget_differs);
        self.follow(&stores.daemon_sets, |old, new| old.metadata.generation != new.metadata.generation);
        // Room that is kept for buffers makes nodes needed, and so do sizes of the pods that stand for them.
        if let Some(buffers) = &stores.capacity_buffers {
            self.follow(buffers, |old, new| !asks_for_same_pods(old, new));
        }
        let changes = self.clone();
        observe_referenced_objects(stores, move |_| changes.note());
    }

    fn follow<K: Send + Sync + 'static>(&self, store: &Store<K>, differs: fn(&K, &K) -> bool) {
        let number = self.number.clone();
        store.observe(move |change: &Change<K>| {
            let matters = match change {
                Change::Applied { old: Some(old), new } => differs(old, new),
                Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
            };
            if matters {
                number.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Something changed that no store shows.
    pub(super) fn note(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// To be remembered before looking.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Nothing was found by a look that began at `number`.
    pub(super) fn nothing_found(&self, number: u64, again_at: Timestamp) {
        *self.quiet.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, again_at));
    }

    /// Something was done, so it is worth looking again.
    pub(super) fn disturb(&self) {
        *self.quiet.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// When to look again if nothing changes; `None` if something has.
    pub(super) fn quiet_until(&self) -> Option<Timestamp> {
        let quiet = *self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.filter(|(number, _)| *number == self.number()).map(|(_, until)| until)
    }
}

/// Moments at which the answer may be another although nothing changes, and that no fleet knows of.
#[derive(Debug, Clone, Default)]
pub(super) struct Moments {
    /// The first at which a pod is no longer protected by its own annotation.
    pub(super) protected_until: Option<Timestamp>,
    /// By pool, when fewer pods will have been moved within the hour.
    pub(super) moves_fall_at: BTreeMap<String, Timestamp>,
}

/// How often is looked while pods are on their way to nodes.
const NOMINATED_POLL: Duration = Duration::from_secs(5);

/// When a pass that found nothing may find something although nothing changes.
pub(super) fn next_look(fleet: &Fleet, proposal: &Proposal, moments: &Moments, now: Timestamp) -> Timestamp {
    let mut next = after(now, QUIET_MAX);
    next = moments.protected_until.map_or(next, |until| next.min(until));
    // Whether a sick or drifted node may go depends on how long it has been so, and on other people's patience.
    if fleet.machines.iter().any(|one| {
        one.is_unhealthy || one.repair.is_some() || (one.drifted_since_secs.is_some() && !one.is_leaving)
    }) {
        next = next.min(after(now, IDLE_POLL));
    }
    // Nobody says when pods are no longer on their way to a node.
    if fleet.machines.iter().any(|one| one.is_nominated && !one.is_leaving) {
        next = next.min(after(now, NOMINATED_POLL));
    }
    // Schedules of budgets begin and end with a minute.
    if proposal.outcomes.iter().any(|outcome| outcome.is_constrained_by_budgets) {
        let past = now.as_second().rem_euclid(60);
        next = next.min(after(now, Duration::from_secs(u64::try_from(60 - past).unwrap_or(60))));
    }
    let settled = fleet.machines.iter().filter_map(|machine| {
        let wait = fleet.pools.get(machine.pool.as_ref()?)?.consolidate_after_secs?;
        let at = Timestamp::from_second(machine.quiet_since_secs?.checked_add(wait)?).ok()?;
        // Times in a fleet are whole seconds, rounded down: what ends within this one is not over for it.
        (at > now || at.as_second() >= now.as_second()).then_some(at.max(after(now, Duration::from_secs(1))))
    });
    let due = fleet.machines.iter().flat_map(|machine| old_deadlines(fleet, machine));
    let due = due.filter_map(|at| Timestamp::from_second(at).ok()).filter(|at| *at > now);
    // What is due already may wait for other people's patience.
    let is_expired = |machine: &Machine| old_deadlines(fleet, machine).any(|at| at <= now.as_second());
    if fleet.machines.iter().any(|machine| !machine.is_leaving && is_expired(machine)) {
        next = next.min(after(now, IDLE_POLL));
    }
    settled.chain(due).chain(cooled(fleet, now)).chain(open_again(fleet, moments)).fold(next, Timestamp::min)
}

/// When nodes are no longer left alone for what was moved to them.
fn cooled(fleet: &Fleet, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    let staying = fleet.machines.iter().filter(|machine| !machine.is_leaving);
    staying.filter_map(move |machine| {
        let pool = fleet.pools.get(machine.pool.as_ref()?)?;
        Timestamp::from_second(cool_down_until(machine, pool, now.as_second())?).ok()
    })
}

/// When pools that bound how many pods are moved within an hour may let more go.
fn open_again(fleet: &Fleet, moments: &Moments) -> impl Iterator<Item = Timestamp> {
    let bounded =
        move |name: &str| fleet.pools.get(name).is_some_and(|one| one.controls.max_moves_per_hour.is_some());
    moments.moves_fall_at.iter().filter(move |(name, _)| bounded(name)).map(|(_, at)| *at)
}

/// When the rules before v1 give a node's time up: for its age, and for being empty.
fn old_deadlines(fleet: &Fleet, machine: &Machine) -> impl Iterator<Item = i64> {
    let rules = machine.pool.as_ref().and_then(|pool| fleet.pools.get(pool)).and_then(|pool| pool.old_rules);
    let marks = machine.old_marks;
    let rules = rules.unwrap_or_default();
    let sum = |since: Option<i64>, after: Option<i64>| Some(since?.saturating_add(after?));
    let age = sum(marks.node_created_at_secs, rules.expires_after_secs);
    // A second more than the whole time has to be over.
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

/// Heartbeats and images are not worth a look.
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

/// What is written down there about moved pods is known already.
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
