//! Tests in which the process crashes before or after each write of a command, and another process takes over.

use std::collections::BTreeSet;
use std::time::Duration;

use karpenter_cloud::CloudProvider;
use kube::Client;
use serde_json::json;

use crate::clients::{CrashState, WriteCrash, crashing, is_write_but_event};
use crate::disruption::support::drift;
use crate::disruption::world::{
    World, has_disrupted_taint, is_deleting, is_initialized, is_of, is_running, label, status_of,
};

/// Makes one node drift, which is then replaced and terminated, while the process crashes once. Returns whether the
/// crash happened.
async fn live_through(crash: WriteCrash) -> bool {
    let mut world = World::start().await;
    world.pool(json!({"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]}), json!({})).await;
    world.deploy("web", 1, 600, json!({})).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    let crash_state = CrashState::default();
    let old =
        world.take_over(crashing(world.server.clone(), crash, is_write_but_event, crash_state.clone())).await;
    old.stop().await;
    drift(&world).await;

    let mut has_crashed = false;
    let mut machines = BTreeSet::new();
    let began = world.seconds();
    let mut dead = Vec::new();
    loop {
        if crash_state.has_crashed() && !has_crashed {
            has_crashed = true;
            // The crashed process stays in memory, but its requests no longer reach the server.
            dead.push(world.take_over(Client::new(world.server.clone(), "default")).await);
        }
        let claims = world.claims().await;
        let nodes = world.nodes().await;
        machines.extend(claims.iter().filter_map(|claim| claim.metadata.name.clone()));
        let pods = world.pods().await;
        let running = pods.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
        let is_done = claims.len() == 1
            && nodes.len() == 1
            && running == 1
            && claims.iter().all(|claim| {
                label(claim, "generation") == "second"
                    && is_initialized(claim)
                    && !is_deleting(claim)
                    && status_of(claim, "DisruptionReason").is_empty()
            })
            && nodes.iter().all(|node| !has_disrupted_taint(node));
        if is_done {
            break;
        }
        assert!(
            world.seconds() - began < 900,
            "{crash:?}: {claims:#?} {:#?} {running} run",
            world.decisions()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // At the end there are the first node, its replacement, and at most one more node of an interrupted launch, which
    // is empty and will be deleted.
    assert!(machines.len() <= 3, "{crash:?}: {machines:?} {:#?}", world.decisions());
    let listed = world.cloud.list().await.map(|listed| listed.len());
    assert_eq!(listed, Ok(1), "{crash:?}");
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
    // The writes of a command: taint, condition, replacement, its launch and registration, deletion, and drain.
    assert!(at_write > 20, "only {at_write} writes");
}

#[tokio::test(start_paused = true)]
async fn commands_survive_a_crash_before_each_write() {
    crash_at_every_write(false).await;
}

#[tokio::test(start_paused = true)]
async fn commands_survive_a_crash_after_each_write() {
    crash_at_every_write(true).await;
}
