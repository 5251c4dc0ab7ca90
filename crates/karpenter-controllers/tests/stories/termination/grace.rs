//! Upstream's cases of a bounded drain: a pod that may not be disrupted keeps running until its own time is needed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::{Value, json};

use crate::termination::world::{World, is_ending};

fn is_closed(node: &Option<Node>) -> bool {
    let spec = node.as_ref().and_then(|node| node.spec.as_ref());
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// Sixty seconds for the node, thirty of them for the pod.
async fn drain(pod: Value) {
    let world = World::start().await;
    world.machine("n1", json!({})).await;
    world.pod("kept", "n1", pod).await;
    let began = world.seconds();
    let by = world.time_at(began + 60);
    let bound = json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": by}}});
    world.merge::<NodeClaim>("n1", bound).await;
    world.delete::<Node>("n1").await;
    world.until("it is closed", async || world.node("n1").await, is_closed).await;
    assert!(world.seconds() - began <= 3, "{}", world.seconds() - began);
    // Healthy for 25 seconds at least.
    while world.seconds() - began < 25 {
        assert!(!is_ending(&world.find_pod("kept").await), "after {} s", world.seconds() - began);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world.until("it ends", async || world.find_pod("kept").await, is_ending).await;
    assert!((30..=33).contains(&(world.seconds() - began)), "{}", world.seconds() - began);
    world.until_node_gone("n1").await;
    assert!(world.seconds() - began <= 75, "{}", world.seconds() - began);
    assert!(world.find_pod("kept").await.is_none());
    world.stop().await;
}

fn kept() -> Value {
    json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"terminationGracePeriodSeconds": 30}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_disrupted_ends_when_its_own_time_is_needed() {
    drain(kept()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_hook_that_takes_longer_ends_with_its_time() {
    let mut pod = kept();
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i",
        "lifecycle": {"preStop": {"sleep": {"seconds": 300}}}}]);
    drain(pod).await;
}
