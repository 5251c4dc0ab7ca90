//! Metrics of nodes: resources, requests, age, and utilization of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource;
use karpenter_api::labels;
use karpenter_model::quantity::Quantity;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{label, name_of};
use karpenter_state::pod::Pod;

use super::exposition::Family;

/// Amounts by resource, with the resource names of metrics.
pub(crate) type Amounts = BTreeMap<String, f64>;

/// The labels of a Node that become labels of its series: the provider's well-known labels.
#[derive(Debug, Clone)]
pub(crate) struct NodeLabels {
    keys: Vec<String>,
    names: Vec<String>,
}

impl NodeLabels {
    /// The label name in a metric is the part of the key after the slash, in snake case. If two keys have the same
    /// label name, only the first one is used, because a series can have a label only once.
    pub(crate) fn new<'a>(well_known: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Self { keys: Vec::new(), names: Vec::new() };
        for key in well_known {
            let Some((_, name)) = key.split_once('/') else { continue };
            let name = snake(name);
            if !found.names.contains(&name) {
                found.keys.push(key.to_owned());
                found.names.push(name);
            }
        }
        found
    }

    /// The names of all labels of a node's series.
    fn names(&self) -> Vec<&str> {
        ["node_name", "phase", "managed"].into_iter().chain(self.names.iter().map(String::as_str)).collect()
    }

    fn values(&self, node: &Node) -> Vec<String> {
        let phase = node.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let is_managed = label(node, labels::NODEPOOL).is_some();
        let mut values = vec![name_of(node).to_owned(), phase, is_managed.to_string()];
        values.extend(self.keys.iter().map(|key| label(node, key).unwrap_or_default().to_owned()));
        values
    }
}

/// A node with the values of the labels of its series.
#[derive(Debug, Default, PartialEq)]
struct NodeSeries {
    labels: Vec<String>,
    allocatable: Amounts,
    overhead: Amounts,
    pod_requests: Amounts,
    pod_limits: Amounts,
    daemon_requests: Amounts,
    daemon_limits: Amounts,
    age_seconds: Option<f64>,
}

fn node_series(node: &Node, pods: &[Arc<Pod>], labels: &NodeLabels, now: Timestamp) -> NodeSeries {
    let status = node.status.as_ref();
    let allocatable = parsed(status.and_then(|status| status.allocatable.as_ref()));
    let mut overhead = parsed(status.and_then(|status| status.capacity.as_ref()));
    for (resource, amount) in &mut overhead {
        *amount -= allocatable.get(resource).copied().unwrap_or(0.0);
    }
    let created = node.metadata.creation_timestamp.as_ref();
    let mut found = NodeSeries {
        labels: labels.values(node),
        allocatable,
        overhead,
        age_seconds: created.map(|created| since(now, created.0).as_secs_f64()),
        ..NodeSeries::default()
    };
    for pod in pods.iter().filter(|pod| !is_terminal(pod)) {
        let (Ok(requests), Ok(limits)) = (pod.requests(), pod.limits()) else { continue };
        let amounts = |quantities: &BTreeMap<String, Quantity>| -> Amounts {
            let named = quantities.iter().filter(|(name, _)| *name != "pods");
            let each = named.map(|(name, amount)| (snake(name), value(name, amount)));
            each.chain([("pods".to_owned(), 1.0)]).collect()
        };
        let (requests, limits) = (amounts(&requests), amounts(&limits));
        add(&mut found.pod_requests, &requests);
        add(&mut found.pod_limits, &limits);
        if is_daemon(pod) {
            add(&mut found.daemon_requests, &requests);
            add(&mut found.daemon_limits, &limits);
        }
    }
    found
}

/// The requests of all pods in percent of the allocatable resources of all nodes, by resource.
fn utilization(nodes: &[NodeSeries]) -> Amounts {
    let (mut allocatable, mut requested) = (Amounts::new(), Amounts::new());
    for node in nodes {
        add(&mut allocatable, &node.allocatable);
        add(&mut requested, &node.pod_requests);
    }
    allocatable.retain(|_, amount| *amount > 0.0);
    for (resource, amount) in &mut allocatable {
        *amount = requested.get(resource).copied().unwrap_or(0.0) / *amount * 100.0;
    }
    allocatable
}

struct NodeGauge {
    name: &'static str,
    help: &'static str,
    amounts: fn(&NodeSeries) -> &Amounts,
}

const GAUGES: [NodeGauge; 6] = [
    NodeGauge {
        name: "karpenter_nodes_allocatable",
        help: "Allocatable resources of a node.",
        amounts: |node| &node.allocatable,
    },
    NodeGauge {
        name: "karpenter_nodes_total_pod_requests",
        help: "Requests of all pods of a node, including DaemonSet pods.",
        amounts: |node| &node.pod_requests,
    },
    NodeGauge {
        name: "karpenter_nodes_total_pod_limits",
        help: "Limits of all pods of a node, including DaemonSet pods.",
        amounts: |node| &node.pod_limits,
    },
    NodeGauge {
        name: "karpenter_nodes_total_daemon_requests",
        help: "Requests of the DaemonSet pods of a node.",
        amounts: |node| &node.daemon_requests,
    },
    NodeGauge {
        name: "karpenter_nodes_total_daemon_limits",
        help: "Limits of the DaemonSet pods of a node.",
        amounts: |node| &node.daemon_limits,
    },
    NodeGauge {
        name: "karpenter_nodes_system_overhead",
        help: "Capacity of a node that is not allocatable.",
        amounts: |node| &node.overhead,
    },
];

/// Writes the series of nodes. `pods_on` returns the pods of a node.
pub(crate) fn write(
    text: &mut String,
    labels: &NodeLabels,
    nodes: &[Arc<Node>],
    pods_on: impl Fn(&str) -> Vec<Arc<Pod>>,
    now: Timestamp,
) {
    let nodes: Vec<NodeSeries> =
        nodes.iter().map(|node| node_series(node, &pods_on(name_of(&**node)), labels, now)).collect();
    let names = labels.names();
    let with_resource = [&names[..], &["resource_type"]].concat();
    for gauge in GAUGES {
        let mut family = Family::gauge(text, gauge.name, gauge.help, &with_resource);
        for node in &nodes {
            let mut values: Vec<&str> = node.labels.iter().map(String::as_str).collect();
            for (resource, amount) in (gauge.amounts)(node) {
                values.push(resource);
                family.set(&values, *amount);
                values.pop();
            }
        }
    }
    let mut age = Family::gauge(text, "karpenter_nodes_current_lifetime_seconds", "Age of a node.", &names);
    for node in &nodes {
        if let Some(seconds) = node.age_seconds {
            age.set(&node.labels, seconds);
        }
    }
    let help = "Requests of pods in percent of allocatable resources.";
    let mut family = Family::gauge(text, "karpenter_cluster_utilization_percent", help, &["resource_type"]);
    for (resource, share) in utilization(&nodes) {
        family.set(&[resource], share);
    }
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        match total.get_mut(resource) {
            Some(sum) => *sum += amount,
            None => drop(total.insert(resource.clone(), *amount)),
        }
    }
}

fn parsed(amounts: Option<&BTreeMap<String, resource::Quantity>>) -> Amounts {
    let amounts = amounts.into_iter().flatten();
    amounts.filter_map(|(name, text)| Some((snake(name), value(name, &text.0.parse().ok()?)))).collect()
}

/// The amount of a resource in a metric: CPU in fractions of a core, all other resources in whole units.
pub(crate) fn value(resource: &str, amount: &Quantity) -> f64 {
    let exact = amount.to_f64_lossy();
    if resource == "cpu" { exact } else { exact.ceil() }
}

/// A resource name in snake case: `ephemeral-storage` becomes `ephemeral_storage`.
pub(crate) fn snake(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// Whether the pod has ended, so that it uses no resources.
fn is_terminal(pod: &Pod) -> bool {
    pod.status.phase.is_terminal()
}

fn is_daemon(pod: &Pod) -> bool {
    pod.controller().is_some_and(|owner| owner.kind == "DaemonSet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    fn pod(owner: &str, phase: &str, resources: Value) -> Arc<Pod> {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": true}]);
        let pod = json!({
            "metadata": {"name": "p", "ownerReferences": owner},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn amounts<const N: usize>(pairs: [(&str, f64); N]) -> Amounts {
        pairs.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }

    #[test]
    fn node_series_have_allocatable_overhead_requests_and_limits() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "one", "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": {"karpenter.sh/nodepool": "a", "node.kubernetes.io/windows-build": "10"}},
            "status": {"phase": "Running", "capacity": {"cpu": "4", "ephemeral-storage": "2Ki"},
                "allocatable": {"cpu": "3500m", "ephemeral-storage": "1Ki"}},
        }))
        .expect("a node");
        let half = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}});
        let pods = [
            pod("ReplicaSet", "Running", half.clone()),
            pod("DaemonSet", "Running", json!({"requests": {"cpu": "250m"}})),
            pod("Job", "Succeeded", half),
        ];
        let labels =
            NodeLabels::new([labels::NODEPOOL, labels::WINDOWS_BUILD, "other.example/nodepool", "bare"]);
        assert_eq!(labels.names(), ["node_name", "phase", "managed", "nodepool", "windows_build"]);
        let found = node_series(&node, &pods, &labels, Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60));
        let expected = NodeSeries {
            labels: ["one", "Running", "true", "a", "10"].map(str::to_owned).to_vec(),
            allocatable: amounts([("cpu", 3.5), ("ephemeral_storage", 1024.0)]),
            overhead: amounts([("cpu", 0.5), ("ephemeral_storage", 1024.0)]),
            pod_requests: amounts([("cpu", 0.75), ("pods", 2.0)]),
            pod_limits: amounts([("cpu", 1.0), ("pods", 2.0)]),
            daemon_requests: amounts([("cpu", 0.25), ("pods", 1.0)]),
            daemon_limits: amounts([("pods", 1.0)]),
            age_seconds: Some(60.0),
        };
        assert_eq!(found, expected);
        // The utilization is 2.625 of 3.5 CPUs, which is 75 %. Pods request no storage and the node has no allocatable
        // `pods`, so these resources have no utilization.
        let share = utilization(&[found]);
        assert_eq!(share.keys().collect::<Vec<_>>(), ["cpu", "ephemeral_storage"]);
        assert!((share["cpu"] - 75.0 / 3.5).abs() < 1e-9);
        assert_eq!(share["ephemeral_storage"], 0.0);
    }
}
