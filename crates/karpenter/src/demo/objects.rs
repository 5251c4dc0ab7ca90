//! The objects of the scenario.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use karpenter_api::types::{KWOKNodeClass, NodePool};
use serde_json::json;

pub(super) const DEPLOYMENT: &str = "inflate";
/// The duration from a launch until the node appears.
const REGISTRATION_DELAY: &str = "25s";

pub(super) fn node_class() -> Result<KWOKNodeClass> {
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": REGISTRATION_DELAY},
    });
    Ok(serde_json::from_value(class)?)
}

pub(super) fn node_pool() -> Result<NodePool> {
    let is = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [
                    is("kubernetes.io/os", &["linux"]),
                    is("kubernetes.io/arch", &["amd64"]),
                    is("karpenter.sh/capacity-type", &["spot", "on-demand"]),
                    json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["33"]}),
                ],
            }},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "30s",
                "budgets": [{"nodes": "100%"}],
            },
            "limits": {"cpu": "500"},
        },
    });
    Ok(serde_json::from_value(pool)?)
}

/// The Deployment of Karpenter's getting-started guide: pods that only request resources.
pub(super) fn deployment() -> Result<Deployment> {
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": DEPLOYMENT}},
            "template": {
                "metadata": {"labels": {"app": DEPLOYMENT}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": DEPLOYMENT,
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": {"cpu": "1", "memory": "1536Mi"}},
                    }],
                },
            },
        },
    });
    Ok(serde_json::from_value(deployment)?)
}
