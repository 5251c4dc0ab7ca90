//! Counts changes of objects in the stores, from the moment when counting begins.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim, NodePool};
use karpenter_runtime::clock::{Clock, since};
use karpenter_runtime::object::{annotation, label, name_of};
use karpenter_runtime::store::{Change, Store};
use prometheus::IntGaugeVec;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

use crate::annotations::created_for;
use crate::metrics::Metrics;
use crate::stores::Stores;

/// The value of the label `reason` for NodeClaims that provisioning created.
const PROVISIONED: &str = "provisioned";

impl Metrics {
    /// Starts to count changes of objects in the stores. Changes of conditions are counted only if `in_detail` is true.
    pub fn follow(&self, stores: &Stores, clock: Clock, in_detail: bool) {
        self.is_following.store(true, Ordering::Relaxed);
        let metrics = self.clone();
        each_change(&stores.node_claims, move |change| metrics.count_claim(change, clock.now()));
        let metrics = self.clone();
        each_change(&stores.nodes, move |change| metrics.count_node(change, clock.now()));
        let metrics = self.clone();
        each_change(&stores.pods, move |change| metrics.pods.count(change, clock.now()));
        self.pods.begin(&stores.pods.list());
        let metrics = self.clone();
        each_change(&stores.node_pools, move |change| metrics.count_pool(change));
        if in_detail {
            self.follow_conditions(stores, clock);
        }
    }

    fn follow_conditions(&self, stores: &Stores, clock: Clock) {
        let of = self.conditions.claims.clone();
        each_change(&stores.node_claims, move |change| of.follow(change, clock.now()));
        let of = self.conditions.pools.clone();
        each_change(&stores.node_pools, move |change| of.follow(change, clock.now()));
        let of = self.conditions.nodes.clone();
        each_change(&stores.nodes, move |change| of.follow(change, clock.now()));
        if let Some(buffers) = &stores.capacity_buffers {
            let of = self.conditions.buffers.clone();
            each_change(buffers, move |change| of.follow(change, clock.now()));
        }
        for (of, (_, store)) in self.conditions.classes.iter().zip(&stores.node_classes) {
            let of = of.clone();
            each_change(store, move |change| of.follow(change, clock.now()));
        }
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

    fn count_node(&self, change: &Change<Node>, now: Timestamp) {
        let Change::Deleted { old } = change else { return };
        let Some(pool) = label(&**old, labels::NODEPOOL) else { return };
        let zone = label(&**old, labels::ZONE).unwrap_or_default();
        self.nodes_terminated.with_label_values(&[pool, zone]).inc();
        if let Some(asked) = &old.metadata.deletion_timestamp {
            self.nodes_termination_duration.observe(&[pool], since(now, asked.0).as_secs_f64(), now);
        }
        if let Some(created) = &old.metadata.creation_timestamp {
            let seconds = since(now, created.0).as_secs_f64();
            self.nodes_lifetime_duration.with_label_values(&[pool]).observe(seconds);
        }
    }

    /// Removes the series that controllers set for a deleted NodePool.
    fn count_pool(&self, change: &Change<NodePool>) {
        if let Change::Deleted { old } = change {
            let pool = name_of(&**old);
            drop_series_of(&self.disruption.allowed_disruptions, pool);
            drop_series_of(&self.disruption.nodes_consuming_budgets, pool);
            drop_series_of(&self.pod_deletion_cost_pending, pool);
        }
    }
}

/// Removes the series of a deleted NodePool.
fn drop_series_of(gauge: &IntGaugeVec, pool: &str) {
    for series in gauge.collect().iter().flat_map(MetricFamily::get_metric) {
        let labels = series.get_label();
        if labels.iter().any(|label| label.name() == "nodepool" && label.value() == pool) {
            let labels: HashMap<&str, &str> =
                labels.iter().map(|label| (label.name(), label.value())).collect();
            // The series may have been removed concurrently.
            let _ = gauge.remove(&labels);
        }
    }
}

fn each_change<K>(store: &Store<K>, count: impl Fn(&Change<K>) + Send + Sync + 'static)
where
    K: Send + Sync + 'static,
{
    let counting = Arc::new(AtomicBool::new(false));
    let is_counting = counting.clone();
    store.observe(move |change| {
        if is_counting.load(Ordering::Relaxed) {
            count(change);
        }
    });
    counting.store(true, Ordering::Relaxed);
}

fn conditions(claim: &NodeClaim) -> &[Condition] {
    claim.status.as_ref().map_or(&[][..], |status| &status.conditions)
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == ConditionStatus::True)
}
