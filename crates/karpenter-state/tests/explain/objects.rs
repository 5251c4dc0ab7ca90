//! Scenarios: a pending Deployment with one NodePool, and a node with pods.

use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) const NODE: &str = "node-1";
const CREATED: &str = "2026-11-18T08:00:00Z";
const NOW: &str = "2026-11-18T10:00:00Z";

/// Pending pods of one Deployment, one NodePool, and a full node.
#[derive(Debug, Clone)]
pub(crate) struct PodScenario {
    pub(crate) limit: Option<u32>,
    pub(crate) has_taint: bool,
    /// CPUs of the instance types that the NodePool allows.
    pub(crate) sizes: Vec<u32>,
    pub(crate) replicas: u32,
    pub(crate) cpu: u32,
    pub(crate) zone: Option<&'static str>,
    pub(crate) team: Option<&'static str>,
    pub(crate) has_node: bool,
}

impl Default for PodScenario {
    fn default() -> Self {
        Self {
            limit: None,
            has_taint: false,
            sizes: vec![4, 8],
            replicas: 2,
            cpu: 1,
            zone: None,
            team: None,
            has_node: true,
        }
    }
}

pub(crate) fn any_pod_scenario() -> impl Strategy<Value = PodScenario> {
    (
        proptest::option::of(0_u32..64),
        any::<bool>(),
        proptest::sample::subsequence(vec![2_u32, 4, 8, 16], 1..=4),
        1_u32..4,
        1_u32..20,
        proptest::option::of(proptest::sample::select(vec!["test-zone-a", "test-zone-b", "test-zone-c"])),
        proptest::option::of(proptest::sample::select(vec!["web", "ml"])),
        any::<bool>(),
    )
        .prop_map(|(limit, has_taint, sizes, replicas, cpu, zone, team, has_node)| PodScenario {
            limit,
            has_taint,
            sizes,
            replicas,
            cpu,
            zone,
            team,
            has_node,
        })
}

impl PodScenario {
    pub(crate) const POD: &'static str = "web-0";

    pub(crate) fn documents(&self) -> Vec<Value> {
        let types: Vec<String> = self.sizes.iter().map(|cpu| format!("c-{cpu}x-amd64-linux")).collect();
        let mut pool = pool("on-demand");
        let requirements = &mut pool["spec"]["template"]["spec"]["requirements"];
        for (key, values) in [
            ("node.kubernetes.io/instance-type", types),
            ("topology.kubernetes.io/zone", vec!["test-zone-a".to_owned(), "test-zone-b".to_owned()]),
        ] {
            let requirement = json!({"key": key, "operator": "In", "values": values});
            requirements.as_array_mut().expect("a list").push(requirement);
        }
        pool["spec"]["template"]["metadata"] = json!({"labels": {"example.com/team": "web"}});
        if let Some(cpu) = self.limit {
            pool["spec"]["limits"] = json!({"cpu": cpu});
        }
        if self.has_taint {
            let taint = json!({"key": "example.com/dedicated", "value": "a", "effect": "NoSchedule"});
            pool["spec"]["template"]["spec"]["taints"] = json!([taint]);
        }
        let mut selector = json!({});
        if let Some(zone) = self.zone {
            selector["topology.kubernetes.io/zone"] = zone.into();
        }
        if let Some(team) = self.team {
            selector["example.com/team"] = team.into();
        }
        let mut spec = pod_spec(self.cpu);
        spec["nodeSelector"] = selector;
        let mut documents = vec![class(), pool, deployment(self.replicas, &spec), replica_set()];
        for number in 0..self.replicas {
            documents.push(pod(&format!("web-{number}"), &spec, None));
        }
        if self.has_node {
            documents.extend(node("on-demand", 4));
            documents.push(pod("other-0", &pod_spec(3), Some(NODE)));
        }
        documents
    }
}

/// A node with pods of one Deployment, and what keeps it.
#[derive(Debug, Clone)]
pub(crate) struct NodeScenario {
    pub(crate) max_unavailable: Option<u32>,
    pub(crate) limit: Option<u32>,
    pub(crate) budget: &'static str,
    pub(crate) is_spot: bool,
    pub(crate) is_node_annotated: bool,
    pub(crate) is_pod_annotated: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) consolidate_after: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) cpu: u32,
    pub(crate) pods: u32,
}

impl Default for NodeScenario {
    fn default() -> Self {
        Self {
            max_unavailable: None,
            limit: None,
            budget: "100%",
            is_spot: false,
            is_node_annotated: false,
            is_pod_annotated: false,
            is_dry_run: false,
            consolidate_after: "0s",
            policy: "WhenEmptyOrUnderutilized",
            cpu: 16,
            pods: 2,
        }
    }
}

pub(crate) fn any_node_scenario() -> impl Strategy<Value = NodeScenario> {
    let facts = (any::<bool>(), any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2));
    (
        proptest::option::of(0_u32..3),
        proptest::option::of(prop_oneof![Just(16_u32), Just(18), Just(20), Just(64)]),
        proptest::sample::select(vec!["0", "1", "100%"]),
        facts,
        proptest::sample::select(vec!["0s", "5m", "Never"]),
        proptest::sample::select(vec!["WhenEmptyOrUnderutilized", "WhenEmpty"]),
        proptest::sample::select(vec![4_u32, 8, 16]),
        0_u32..4,
    )
        .prop_map(|(max_unavailable, limit, budget, facts, consolidate_after, policy, cpu, pods)| {
            let (is_spot, is_node_annotated, is_pod_annotated, is_dry_run) = facts;
            NodeScenario {
                max_unavailable,
                limit,
                budget,
                is_spot,
                is_node_annotated,
                is_pod_annotated,
                is_dry_run,
                consolidate_after,
                policy,
                cpu,
                pods,
            }
        })
}

impl NodeScenario {
    pub(crate) fn documents(&self) -> Vec<Value> {
        let capacity_type = if self.is_spot { "spot" } else { "on-demand" };
        let mut pool = pool(capacity_type);
        pool["spec"]["disruption"] = json!({
            "consolidateAfter": self.consolidate_after,
            "consolidationPolicy": self.policy,
            "budgets": [{"nodes": self.budget}],
        });
        if let Some(cpu) = self.limit {
            pool["spec"]["limits"] = json!({"cpu": cpu});
        }
        if self.is_dry_run {
            pool["metadata"]["annotations"] = json!({"karpenter.sh/consolidation-dry-run": "true"});
        }
        let mut documents = vec![class(), pool, deployment(self.pods, &pod_spec(1)), replica_set()];
        let mut node = node(capacity_type, self.cpu);
        if self.is_node_annotated {
            node[1]["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        }
        documents.extend(node);
        for number in 0..self.pods {
            let mut pod = pod(&format!("web-{number}"), &pod_spec(1), Some(NODE));
            if self.is_pod_annotated && number == 0 {
                pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
            }
            documents.push(pod);
        }
        if let Some(max) = self.max_unavailable {
            let pods = self.pods;
            documents.push(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"maxUnavailable": max, "selector": {"matchLabels": {"app": "web"}}},
                "status": {
                    "expectedPods": pods, "currentHealthy": pods, "desiredHealthy": pods.saturating_sub(max),
                    "disruptionsAllowed": max.min(pods), "observedGeneration": 1,
                },
            }));
        }
        documents
    }
}

fn class() -> Value {
    json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}})
}

fn pool(capacity_type: &str) -> Value {
    let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {
            "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    requirement("karpenter.sh/capacity-type", capacity_type),
                    requirement("kubernetes.io/arch", "amd64"),
                    requirement("kubernetes.io/os", "linux"),
                ],
            }},
        },
    })
}

fn pod_spec(cpu: u32) -> Value {
    let requests = json!({"cpu": cpu, "memory": "1Gi"});
    json!({"containers": [{"name": "app", "image": "example.com/app", "resources": {"requests": requests}}]})
}

fn deployment(replicas: u32, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    })
}

fn replica_set() -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": true});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-5d8f7c9b64", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": pod_spec(1),
        }},
    })
}

fn pod(name: &str, spec: &Value, node: Option<&str>) -> Value {
    let app = name.split('-').next().unwrap_or(name);
    let set = format!("{app}-5d8f7c9b64");
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true});
    let mut spec = spec.clone();
    if let Some(node) = node {
        spec["nodeName"] = node.into();
    }
    let status = match node {
        Some(_) => json!({"phase": "Running", "startTime": CREATED}),
        None => json!({"phase": "Pending"}),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "creationTimestamp": CREATED,
            "labels": {"app": app}, "ownerReferences": [owner],
        },
        "spec": spec,
        "status": status,
    })
}

fn node(capacity_type: &str, cpu: u32) -> Vec<Value> {
    let labels = json!({
        "karpenter.sh/nodepool": "general", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": capacity_type, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": NODE, "node.kubernetes.io/instance-type": format!("c-{cpu}x-amd64-linux"),
        "topology.kubernetes.io/zone": "test-zone-a", "example.com/team": "web",
    });
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized"]
        .iter()
        .map(|one| json!({"type": one, "status": "True", "reason": one, "lastTransitionTime": CREATED}))
        .collect();
    let memory = format!("{}Gi", cpu * 2);
    vec![
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "claim-1", "uid": "uid-claim-1", "creationTimestamp": CREATED, "labels": labels},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            },
            "status": {"nodeName": NODE, "providerID": "kwok://node-1", "conditions": conditions},
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NODE, "creationTimestamp": CREATED, "labels": labels},
            "spec": {"providerID": "kwok://node-1"},
            "status": {
                "capacity": {"cpu": cpu.to_string(), "memory": memory, "pods": "110"},
                "allocatable": {"cpu": format!("{}m", cpu * 1000 - 100), "memory": memory, "pods": "110"},
                "conditions": [{
                    "type": "Ready", "status": "True", "lastHeartbeatTime": NOW, "lastTransitionTime": CREATED,
                }],
            },
        }),
    ]
}
