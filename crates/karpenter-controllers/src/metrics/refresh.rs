//! Numbers that describe the present: worked out from the mirrors when somebody asks for them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::labels;
use karpenter_api::pod_requests::pod_requests;
use karpenter_api::types::Quantities;
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::controllers::context::{label, name_of};
use karpenter_cluster::harness::Queue;
use karpenter_model::quantity::Quantity;

use super::follow::{conditions, status_text};
use super::{Metrics, NODE_LABELS};
use crate::mirrors::{BY_NODE, Mirrors};
use crate::state::Bindings;

type Amounts = BTreeMap<String, f64>;

impl Metrics {
    /// Sets all gauges that follow from the objects. Those of single nodes and of conditions only if `in_detail`.
    pub fn refresh(&self, mirrors: &Mirrors, clock: Clock, in_detail: bool) {
        self.cluster_state_node_count.set(i64::try_from(mirrors.nodes.len()).unwrap_or(i64::MAX));
        self.cluster_state_synced.set(i64::from(mirrors.is_synced()));
        self.refresh_pools(mirrors);
        if in_detail {
            self.refresh_claims(mirrors);
            self.refresh_nodes(mirrors, clock);
        }
    }

    /// Brings the counter of planned pods up to what the controllers' memory counts.
    pub fn refresh_bindings(&self, bindings: Bindings) {
        for (as_planned, count) in [("true", bindings.as_planned), ("false", bindings.elsewhere)] {
            let counter = self.pods_planned_bound.with_label_values(&[as_planned]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Sets how many keys wait for each controller.
    pub fn refresh_queues(&self, queues: &[(&'static str, Queue)]) {
        for (name, queue) in queues {
            let depth = i64::try_from(queue.len()).unwrap_or(i64::MAX);
            self.workqueue_depth.with_label_values(&[name, name]).set(depth);
        }
    }

    fn refresh_pools(&self, mirrors: &Mirrors) {
        self.nodepools_usage.reset();
        self.nodepools_limit.reset();
        for pool in mirrors.node_pools.list() {
            let name = name_of(&*pool);
            let used = pool.status.as_ref().and_then(|status| status.resources.as_ref());
            for (resource, amount) in used.into_iter().flatten() {
                self.nodepools_usage.with_label_values(&[&snake(resource), name]).set(amount.to_f64_lossy());
            }
            for (resource, amount) in pool.spec.limits.iter().flatten() {
                self.nodepools_limit.with_label_values(&[&snake(resource), name]).set(amount.to_f64_lossy());
            }
        }
    }

    fn refresh_claims(&self, mirrors: &Mirrors) {
        self.nodeclaim_condition_count.reset();
        for claim in mirrors.node_claims.list() {
            let pool = label(&*claim, labels::NODEPOOL).unwrap_or_default();
            let class = claim.spec.node_class_ref.name.as_str();
            for condition in conditions(&claim) {
                let status = status_text(condition.status);
                let series = [condition.type_.as_str(), status, condition.reason.as_str(), pool, class];
                self.nodeclaim_condition_count.with_label_values(&series).inc();
            }
        }
    }

    fn refresh_nodes(&self, mirrors: &Mirrors, clock: Clock) {
        for gauge in [
            &self.nodes_allocatable,
            &self.nodes_total_pod_requests,
            &self.nodes_total_daemon_requests,
            &self.nodes_current_lifetime,
            &self.cluster_utilization_percent,
        ] {
            gauge.reset();
        }
        let (mut held, mut asked) = (Amounts::new(), Amounts::new());
        for node in mirrors.nodes.list() {
            let series = NodeSeries::of(&node);
            let allocatable = allocatable(&node);
            add(&mut held, &allocatable);
            series.set(&self.nodes_allocatable, &allocatable);
            let (mut of_pods, mut of_daemons) = (Amounts::new(), Amounts::new());
            for pod in mirrors.pods.by(BY_NODE, name_of(&*node)) {
                let Some(requests) = requests(&pod) else { continue };
                add(&mut asked, &requests);
                add(if is_daemon(&pod) { &mut of_daemons } else { &mut of_pods }, &requests);
            }
            series.set(&self.nodes_total_pod_requests, &of_pods);
            series.set(&self.nodes_total_daemon_requests, &of_daemons);
            if let Some(created) = &node.metadata.creation_timestamp {
                let age = since(clock.now(), created.0).as_secs_f64();
                self.nodes_current_lifetime.with_label_values(&series.values()).set(age);
            }
        }
        for (resource, amount) in &held {
            if *amount > 0.0 {
                let share = asked.get(resource).copied().unwrap_or(0.0) / amount * 100.0;
                self.cluster_utilization_percent.with_label_values(&[resource]).set(share);
            }
        }
    }
}

/// The labels of a node's series.
struct NodeSeries([String; NODE_LABELS.len()]);

impl NodeSeries {
    fn of(node: &Node) -> Self {
        let get = |key: &str| label(node, key).unwrap_or_default().to_owned();
        let is_managed = label(node, labels::NODEPOOL).is_some();
        let phase = node.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        Self([
            name_of(node).to_owned(),
            phase,
            is_managed.to_string(),
            get(labels::NODEPOOL),
            get(labels::ZONE),
            get(labels::REGION),
            get(labels::INSTANCE_TYPE),
            get(labels::ARCH),
            get(labels::OS),
            get(labels::CAPACITY_TYPE),
        ])
    }

    fn values(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn set(&self, gauge: &prometheus::GaugeVec, amounts: &Amounts) {
        for (resource, amount) in amounts {
            let values: Vec<&str> = [resource.as_str()].into_iter().chain(self.values()).collect();
            gauge.with_label_values(&values).set(*amount);
        }
    }
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *total.entry(resource.clone()).or_insert(0.0) += amount;
    }
}

fn allocatable(node: &Node) -> Amounts {
    let amounts = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
    amounts
        .filter_map(|(name, text)| Some((snake(name), text.0.parse::<Quantity>().ok()?.to_f64_lossy())))
        .collect()
}

/// What a pod that still runs asks for.
fn requests(pod: &Pod) -> Option<Amounts> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let requests: Quantities = pod_requests(pod).ok()?;
    Some(requests.iter().map(|(name, amount)| (snake(name), amount.to_f64_lossy())).collect())
}

fn is_daemon(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true))
}

/// `ephemeral-storage` is `ephemeral_storage` in a metric.
fn snake(resource: &str) -> String {
    resource.replace('-', "_")
}
