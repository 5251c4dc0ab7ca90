//! Tests in which the process exits before or after each of its writes, and another process continues.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::CloudProvider;
use kube::Client;
use kube::api::ListParams;
use serde_json::json;

use crate::clients::{CrashState, WriteCrash, crashing, is_write};
use crate::lifecycle::world::{World, condition};

/// Creates and deletes one NodeClaim, with one crash of the process in between. Returns whether the crash happened.
async fn live_through(crash: WriteCrash) -> bool {
    let mut world = World::start().await;
    let crash_state = CrashState::default();
    world.take_over(crashing(world.server.clone(), crash, is_write, crash_state.clone())).await;
    world.node_class(json!({"nodeRegistrationDelay": "5s"})).await;
    world.claim("one", json!({})).await;

    let mut instances = BTreeSet::new();
    let mut has_crashed = false;
    let mut deleted_at = None;
    loop {
        if crash_state.has_crashed() && !has_crashed {
            has_crashed = true;
            world.take_over(Client::new(world.server.clone(), "default")).await;
        }
        let nodes = world.all::<Node>().list(&ListParams::default()).await.expect("nodes").items;
        instances.extend(nodes.iter().filter_map(|node| node.metadata.name.clone()));
        let claim = world.find("one").await;
        let is_ready = claim
            .as_ref()
            .and_then(|claim| condition(claim, "Ready"))
            .is_some_and(|ready| ready.status == ConditionStatus::True);
        if is_ready && deleted_at.is_none() {
            assert!(world.seconds() < 60, "{crash:?}: ready only after {} seconds", world.seconds());
            world.delete::<NodeClaim>("one").await;
            deleted_at = Some(world.seconds());
        }
        if deleted_at.is_some() && claim.is_none() {
            break;
        }
        assert!(world.seconds() < 300, "{crash:?}: {claim:#?} {nodes:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(instances.len(), 1, "{crash:?}: {instances:?}");
    // Garbage collection cannot have terminated a leaked instance by this time, so the checks show that no instance is
    // leaked.
    world.clock.sleep(Duration::from_secs(10)).await;
    let nodes = world.all::<Node>().list(&ListParams::default()).await.expect("nodes").items;
    assert_eq!(nodes, [], "{crash:?}");
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(0), "{crash:?}");
    world.stop().await;
    has_crashed
}

async fn crash_at_every_write(is_written: bool) {
    let mut at_write = 0;
    loop {
        at_write += 1;
        if !live_through(WriteCrash { at_write, is_written }).await {
            break;
        }
    }
    // The writes are: finalizer, launch (two), node, removal of its taint, registration, label, initialization,
    // deletion of node and claim (several).
    assert!(at_write > 10, "only {at_write} writes");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_duplicated_by_a_crash_before_each_write() {
    crash_at_every_write(false).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_duplicated_by_a_crash_after_each_write() {
    crash_at_every_write(true).await;
}
