//! Tests of drains with a termination deadline, taken from upstream: a do-not-disrupt pod runs until its grace period
//! must begin so that it ends before the deadline.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::{Value, json};

use crate::termination::world::{World, is_terminating};

fn is_tainted(node: &Option<Node>) -> bool {
    let spec = node.as_ref().and_then(|node| node.spec.as_ref());
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// The node has a termination grace period of 60 s, the pod one of 30 s.
async fn drain(pod: Value) {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.pod("kept", "n1", pod).await;
    let began = world.seconds();
    let by = world.time_at(began + 60);
    let bound = json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": by}}});
    world.merge::<NodeClaim>("n1", bound).await;
    world.delete::<Node>("n1").await;
    world.until("it is tainted", async || world.node("n1").await, is_tainted).await;
    assert!(world.seconds() - began <= 3, "{}", world.seconds() - began);
    // The pod runs for at least 25 seconds.
    while world.seconds() - began < 25 {
        assert!(!is_terminating(&world.find_pod("kept").await), "after {} s", world.seconds() - began);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world.until("it is terminating", async || world.find_pod("kept").await, is_terminating).await;
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
async fn do_not_disrupt_pod_is_deleted_when_its_grace_period_must_start() {
    drain(kept()).await;
}

#[tokio::test(start_paused = true)]
async fn pod_with_long_pre_stop_hook_is_killed_after_its_grace_period() {
    let mut pod = kept();
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i",
        "lifecycle": {"preStop": {"sleep": {"seconds": 300}}}}]);
    drain(pod).await;
}
