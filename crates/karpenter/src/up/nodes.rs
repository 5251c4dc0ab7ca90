//! The initial nodes, with simulated kubelets.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Creates `node-1` to `node-<count>`; existing ones are kept.
pub(super) async fn create(client: &Client, count: u32) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for number in 1..=count {
        let name = format!("node-{number}");
        match api.create(&PostParams::default(), &node(&name, number)?).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            result => drop(result.with_context(|| format!("cannot create {name}"))?),
        }
    }
    Ok(())
}

fn node(name: &str, number: u32) -> Result<Node> {
    let zone = ZONES[(number as usize - 1) % ZONES.len()];
    let resources = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    let node = json!({
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "type": "kwok",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "static",
                "topology.kubernetes.io/zone": zone,
            },
        },
        "status": {"capacity": resources, "allocatable": resources},
    });
    Ok(serde_json::from_value(node)?)
}
