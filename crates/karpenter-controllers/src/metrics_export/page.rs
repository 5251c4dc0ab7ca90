//! The metrics page: registered metrics, and series that are computed from the current objects.
//!
//! Upstream updates gauges of objects every few seconds (nodes 5 s, pools and conditions 10 s, pods 30 s). Here they
//! are computed for each scrape, so they are current, and cost nothing between scrapes. Only the leader publishes them,
//! because otherwise each replica would publish a series for every object.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::name_of;

use crate::metrics::conditions::Objects;
use crate::metrics::exposition::Family;
use crate::metrics::nodes::{snake, value};
use crate::metrics::{Metrics, nodes};
use crate::state::BindingCounts;
use crate::stores::{BY_NODE, Stores, listed};

impl Metrics {
    /// The metrics page in Prometheus' text format. Series of single objects are written only if `in_detail` is true.
    pub fn page(&self, stores: &Stores, clock: Clock, in_detail: bool) -> String {
        let now = clock.now();
        self.set_cluster_state(stores, now);
        let mut text = self.render();
        self.pods.write_summaries(&mut text, now);
        self.nodes_termination_duration.write(&mut text, now);
        self.plans.write(&mut text, now);
        if in_detail && self.is_following.load(Ordering::Relaxed) {
            self.write_objects(&mut text, stores, now);
        }
        text
    }

    fn set_cluster_state(&self, stores: &Stores, now: Timestamp) {
        let is_synced = stores.is_synced();
        self.cluster_state_node_count.set(i64::try_from(stores.nodes.len()).unwrap_or(i64::MAX));
        self.cluster_state_synced.set(i64::from(is_synced));
        self.cluster_state_unsynced.set(self.unsynced.seconds(is_synced, now));
    }

    fn write_objects(&self, text: &mut String, stores: &Stores, now: Timestamp) {
        self.write_pools(text, stores);
        let nodes = stores.nodes.list();
        nodes::write(text, &self.node_labels, &nodes, |node| stores.pods.by(BY_NODE, node), now);
        self.pods.write(text, &stores.pods.list(), &nodes, now);
        let classes: Vec<_> = stores.node_classes.iter().map(|(_, store)| store.list()).collect();
        let objects = Objects {
            claims: &stores.node_claims.list(),
            pools: &stores.node_pools.list(),
            nodes: &nodes,
            buffers: &listed(stores.capacity_buffers.as_ref()),
            classes: &classes,
        };
        self.conditions.write(text, &objects, now);
    }

    fn write_pools(&self, text: &mut String, stores: &Stores) {
        let pools = stores.node_pools.list();
        let managed = || {
            pools.iter().filter(|pool| {
                let class = &pool.spec.template.spec.node_class_ref;
                self.class_kinds.is_empty()
                    || self
                        .class_kinds
                        .iter()
                        .any(|(group, kind)| class.group == *group && class.kind == *kind)
            })
        };
        let labels = ["resource_type", "nodepool"];
        let help = "Resource usage of a nodepool.";
        let mut family = Family::gauge(text, "karpenter_nodepools_usage", help, &labels);
        for pool in managed() {
            let used = pool.status.as_ref().and_then(|status| status.resources.as_ref());
            for (resource, amount) in used.into_iter().flatten() {
                family.set(&[&snake(resource), name_of(&**pool)], value(resource, amount));
            }
        }
        let help = "Resource limits of a nodepool.";
        let mut family = Family::gauge(text, "karpenter_nodepools_limit", help, &labels);
        for pool in managed() {
            for (resource, amount) in pool.spec.limits.iter().flatten() {
                family.set(&[&snake(resource), name_of(&**pool)], value(resource, amount));
            }
        }
    }

    /// Sets the counter of planned pods to the counts of the cluster state.
    pub fn refresh_bindings(&self, bindings: BindingCounts) {
        for (as_planned, count) in [("true", bindings.as_planned), ("false", bindings.elsewhere)] {
            let counter = self.pods_planned_bound.with_label_values(&[as_planned]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}
