//! Counts what happens to objects, from the mirrors. What was there before counting began is not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::labels;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::controllers::context::{annotation, label};
use karpenter_cluster::mirror::{Change, Mirror};

use super::Metrics;
use crate::disruption::created_for;
use crate::mirrors::Mirrors;

/// Why a claim was created that no command asked for.
const PROVISIONED: &str = "provisioned";

impl Metrics {
    /// Counts from now on.
    pub fn follow(&self, mirrors: &Mirrors, clock: Clock) {
        let metrics = self.clone();
        each_change(&mirrors.node_claims, move |change| metrics.count_claim(change, clock.now()));
        let metrics = self.clone();
        each_change(&mirrors.nodes, move |change| metrics.count_node(change, clock.now()));
        let metrics = self.clone();
        each_change(&mirrors.pods, move |change| metrics.count_pod(change, clock.now()));
    }

    fn count_claim(&self, change: &Change<NodeClaim>, now: Timestamp) {
        let claim = change.object();
        let pool = label(&**claim, labels::NODEPOOL).unwrap_or_default();
        let zone = label(&**claim, labels::ZONE).unwrap_or_default();
        match change {
            Change::Applied { old, new } => {
                if old.is_none() && new.metadata.deletion_timestamp.is_none() {
                    let relaxed = annotation(&**new, labels::ANNOTATION_MIN_VALUES_RELAXED) == Some("true");
                    let relaxed = if relaxed { "true" } else { "false" };
                    let reason = created_for(new).map_or(PROVISIONED, |reason| reason.label());
                    self.nodeclaims_created.with_label_values(&[reason, pool, relaxed]).inc();
                }
                let before = old.as_ref().map_or(&[][..], |old| conditions(old));
                self.count_conditions(before, conditions(new), pool, &new.spec.node_class_ref.name);
                let is_new = |kind| is_true(conditions(new), kind) && !is_true(before, kind);
                if is_new("Registered") {
                    self.nodes_created.with_label_values(&[pool, zone]).inc();
                }
            }
            Change::Deleted { old } => {
                let capacity_type = label(&**old, labels::CAPACITY_TYPE).unwrap_or_default();
                self.nodeclaims_terminated.with_label_values(&[pool, capacity_type, zone]).inc();
                if let Some(asked) = &old.metadata.deletion_timestamp {
                    let seconds = since(now, asked.0).as_secs_f64();
                    self.nodeclaims_termination_duration.with_label_values(&[pool]).observe(seconds);
                }
            }
        }
    }

    fn count_conditions(&self, before: &[Condition], after: &[Condition], pool: &str, class: &str) {
        for new in after {
            let old = before.iter().find(|old| old.type_ == new.type_);
            if old.is_some_and(|old| old.status == new.status) {
                continue;
            }
            let status = status_text(new.status);
            let series = [new.type_.as_str(), status, new.reason.as_str(), pool, class];
            self.nodeclaim_condition_transitions.with_label_values(&series).inc();
            let times = old.and_then(|old| Some((old, old.last_transition_time.as_ref()?)));
            if let (Some((old, from)), Some(to)) = (times, &new.last_transition_time) {
                let seconds = since(to.0, from.0).as_secs_f64();
                let series = [new.type_.as_str(), status_text(old.status), status, pool, class];
                self.nodeclaim_condition_transition_duration.with_label_values(&series).observe(seconds);
            }
        }
    }

    fn count_node(&self, change: &Change<Node>, now: Timestamp) {
        let Change::Deleted { old } = change else { return };
        let Some(pool) = label(&**old, labels::NODEPOOL) else { return };
        let zone = label(&**old, labels::ZONE).unwrap_or_default();
        self.nodes_terminated.with_label_values(&[pool, zone]).inc();
        if let Some(created) = &old.metadata.creation_timestamp {
            let seconds = since(now, created.0).as_secs_f64();
            self.nodes_lifetime_duration.with_label_values(&[pool]).observe(seconds);
        }
    }

    fn count_pod(&self, change: &Change<Pod>, now: Timestamp) {
        let Change::Applied { old: Some(old), new } = change else { return };
        if is_bound(old) || !is_bound(new) {
            return;
        }
        let claims = new.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
        let dynamic = if claims.is_some_and(|claims| !claims.is_empty()) { "true" } else { "false" };
        if let Some(created) = &new.metadata.creation_timestamp {
            let seconds = since(now, created.0).as_secs_f64();
            self.pods_bound_duration.with_label_values(&[dynamic]).observe(seconds);
        }
    }
}

fn each_change<K>(mirror: &Mirror<K>, count: impl Fn(&Change<K>) + Send + Sync + 'static)
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let counting = Arc::new(AtomicBool::new(false));
    let is_counting = counting.clone();
    mirror.observe(move |change| {
        if is_counting.load(Ordering::Relaxed) {
            count(change);
        }
    });
    counting.store(true, Ordering::Relaxed);
}

pub(super) fn conditions(claim: &NodeClaim) -> &[Condition] {
    claim.status.as_ref().map_or(&[][..], |status| &status.conditions)
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == ConditionStatus::True)
}

pub(super) fn status_text(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}
