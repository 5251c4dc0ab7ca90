//! Tests that scale a workload out and in under injected faults: all pods run, no instance is launched twice, and at
//! the end everything is removed.

use std::time::Duration;

use crate::faults::fault_injection::{FaultPlan, RequestCounts};
use crate::faults::world::World;
use crate::rules::Rules;

const PODS: usize = 30;
/// The minimum number of nodes for thirty CPUs. Nodes have at most eight, and some capacity is reserved for the system.
const NODES_MIN: usize = 5;

/// Scales a workload out and in while these faults are injected. Returns the request counts.
async fn out_and_in(seed: u64, plan: FaultPlan) -> RequestCounts {
    let world = World::start(seed).await;
    world.connection.inject(plan);
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_consistent().await;
    assert!(world.claims().await >= NODES_MIN);
    world.scale(6).await;
    world.until_running(6).await;
    world.until_consistent().await;
    world.scale(0).await;
    world.until_everything_is_removed().await;
    let counts = world.connection.counts();
    assert_eq!(world.connection.forbidden(), [""; 0], "deploy/rbac.yaml allows all requests");
    world.stop().await;
    counts
}

#[tokio::test(start_paused = true)]
async fn scaling_without_faults() {
    let counts = out_and_in(1, FaultPlan::default()).await;
    assert_eq!(counts.faults, 0);
}

#[tokio::test(start_paused = true)]
async fn scaling_with_conflicts() {
    for seed in 1..=2 {
        let fault_free = out_and_in(seed, FaultPlan::default()).await;
        let counts = out_and_in(seed, FaultPlan { conflicts: 30, ..FaultPlan::default() }).await;
        assert!(counts.faults > 10, "{counts:?}");
        assert!(
            counts.claims_created <= fault_free.claims_created + 1,
            "{counts:?}, without faults {fault_free:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn scaling_with_throttling() {
    let counts = out_and_in(2, FaultPlan { throttled: 30, ..FaultPlan::default() }).await;
    assert!(counts.faults > 10, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn scaling_with_internal_errors() {
    let counts = out_and_in(3, FaultPlan { errors: 30, ..FaultPlan::default() }).await;
    assert!(counts.faults > 10, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_responses() {
    let fault_free = out_and_in(1, FaultPlan::default()).await;
    for seed in 1..=2 {
        let counts = out_and_in(seed, FaultPlan { lost_responses: 20, ..FaultPlan::default() }).await;
        assert!(counts.faults > 10, "{counts:?}");
        assert!(
            counts.claims_created <= fault_free.claims_created + 1,
            "{counts:?}, without faults {fault_free:?}"
        );
    }
}

/// Without the permission `get` for NodeClaims, the watch shows whether a NodeClaim was created.
#[tokio::test(start_paused = true)]
async fn lost_responses_without_permission_to_get_nodeclaims() {
    let world = World::start_under(Rules::of_controllers().without("get", "nodeclaims"), 1).await;
    world.connection.inject(FaultPlan { errors: 20, lost_responses: 20, ..FaultPlan::default() });
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_consistent().await;
    assert!(
        world.connection.forbidden().iter().any(|one| one.starts_with("get nodeclaims ")),
        "it was requested"
    );
    world.scale(0).await;
    world.until_everything_is_removed().await;
    world.stop().await;
}

/// The leaked instance is terminated even though NodeClaims cannot be deleted.
#[tokio::test(start_paused = true)]
async fn leaked_instance_is_terminated_although_nodeclaims_cannot_be_deleted() {
    let world = World::start_under(Rules::of_controllers().without("delete", "nodeclaims"), 1).await;
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_consistent().await;
    let leaked = world.lose_one_instance_and_leak_one().await;
    let since = tokio::time::Instant::now();
    world.until_terminated(&leaked).await;
    let seconds = since.elapsed().as_secs();
    assert!((120..=360).contains(&seconds), "after {seconds} s");
    assert!(
        world.connection.forbidden().iter().any(|one| one.starts_with("delete nodeclaims ")),
        "it was requested"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_with_mixed_faults() {
    for seed in 1..=2 {
        let plan = FaultPlan { conflicts: 8, throttled: 8, errors: 8, lost_responses: 8, is_outage: false };
        let counts = out_and_in(seed, plan).await;
        assert!(counts.faults > 20, "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn scaling_with_interrupted_watches() {
    let world = World::start(4).await;
    let connection = world.connection.clone();
    let cutting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            connection.cut_watches();
        }
    });
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_consistent().await;
    world.scale(0).await;
    world.until_everything_is_removed().await;
    cutting.abort();
    world.stop().await;
}

/// All requests fail for half a minute. The outages begin at different stages of launch and drain.
#[tokio::test(start_paused = true)]
async fn scaling_with_outages() {
    let fault_free = out_and_in(5, FaultPlan::default()).await.claims_created;
    for begins_at_millis in [200, 1_200, 3_500, 20_000] {
        let world = World::start(5).await;
        world.scale(PODS).await;
        outage(&world, begins_at_millis).await;
        world.until_running(PODS).await;
        world.until_consistent().await;
        world.scale(6).await;
        outage(&world, begins_at_millis).await;
        world.until_running(6).await;
        world.until_consistent().await;
        world.scale(0).await;
        outage(&world, begins_at_millis).await;
        world.until_everything_is_removed().await;
        let counts = world.connection.counts();
        assert!(counts.faults > 0, "{counts:?}");
        assert!(
            counts.claims_created <= fault_free + 1,
            "from {begins_at_millis} ms: {counts:?}, without outage {fault_free}"
        );
        world.stop().await;
    }
}

async fn outage(world: &World, begins_at_millis: u64) {
    world.pass(Duration::from_millis(begins_at_millis)).await;
    world.connection.inject(FaultPlan { is_outage: true, ..FaultPlan::default() });
    world.pass(Duration::from_secs(30)).await;
    world.connection.inject(FaultPlan::default());
}
