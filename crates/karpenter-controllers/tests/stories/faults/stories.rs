//! Out and in again, in every kind of weather: nothing is lost, nothing is launched twice, nothing is left behind.

use std::time::Duration;

use crate::faults::weather::{Tally, Weather};
use crate::faults::world::World;
use crate::rules::Rules;

const PODS: usize = 30;
/// Thirty CPUs on nodes of at most eight, of which some is the system's.
const NODES_LEAST: usize = 5;

/// Scales out and in under the same weather. What happened on the line.
async fn out_and_in(seed: u64, weather: Weather) -> Tally {
    let world = World::start(seed).await;
    world.line.set(weather);
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_settled().await;
    assert!(world.claims().await >= NODES_LEAST);
    world.scale(6).await;
    world.until_running(6).await;
    world.until_settled().await;
    world.scale(0).await;
    world.until_nothing_is_left().await;
    let tally = world.line.tally();
    assert_eq!(world.line.refused(), [""; 0], "deploy/rbac.yaml allows all that is asked for");
    world.stop().await;
    tally
}

#[tokio::test(start_paused = true)]
async fn clear_weather() {
    let tally = out_and_in(1, Weather::default()).await;
    assert_eq!(tally.spoiled, 0);
}

#[tokio::test(start_paused = true)]
async fn conflicts() {
    for seed in 1..=2 {
        let clear = out_and_in(seed, Weather::default()).await;
        let tally = out_and_in(seed, Weather { conflicts: 30, ..Weather::default() }).await;
        assert!(tally.spoiled > 10, "{tally:?}");
        assert!(tally.claims_created <= clear.claims_created + 1, "{tally:?}, in clear weather {clear:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_requests() {
    let tally = out_and_in(2, Weather { throttled: 30, ..Weather::default() }).await;
    assert!(tally.spoiled > 10, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn internal_errors() {
    let tally = out_and_in(3, Weather { errors: 30, ..Weather::default() }).await;
    assert!(tally.spoiled > 10, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_answers() {
    let clear = out_and_in(1, Weather::default()).await;
    for seed in 1..=2 {
        let tally = out_and_in(seed, Weather { lost_answers: 20, ..Weather::default() }).await;
        assert!(tally.spoiled > 10, "{tally:?}");
        assert!(tally.claims_created <= clear.claims_created + 1, "{tally:?}, in clear weather {clear:?}");
    }
}

/// Claims that may not be asked about are found by the watch, and nothing waits for an answer that never comes.
#[tokio::test(start_paused = true)]
async fn lost_answers_where_claims_may_not_be_read() {
    let world = World::start_under(Rules::of_controllers().without("get", "nodeclaims"), 1).await;
    world.line.set(Weather { errors: 20, lost_answers: 20, ..Weather::default() });
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_settled().await;
    assert!(world.line.refused().iter().any(|one| one.starts_with("get nodeclaims ")), "it was asked");
    world.scale(0).await;
    world.until_nothing_is_left().await;
    world.stop().await;
}

/// A claim that cannot be collected neither hurries nor holds up what is done about machines that nobody knows.
#[tokio::test(start_paused = true)]
async fn machines_of_nobody_go_at_the_second_look_though_claims_cannot_be_deleted() {
    let world = World::start_under(Rules::of_controllers().without("delete", "nodeclaims"), 1).await;
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_settled().await;
    let leaked = world.lose_one_and_leak_one().await;
    let since = tokio::time::Instant::now();
    world.until_ended(&leaked).await;
    let seconds = since.elapsed().as_secs();
    assert!((120..=360).contains(&seconds), "after {seconds} s");
    assert!(world.line.refused().iter().any(|one| one.starts_with("delete nodeclaims ")), "it was tried");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bit_of_everything() {
    for seed in 1..=2 {
        let weather = Weather { conflicts: 8, throttled: 8, errors: 8, lost_answers: 8, is_out: false };
        let tally = out_and_in(seed, weather).await;
        assert!(tally.spoiled > 20, "{tally:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_cut_all_the_time() {
    let world = World::start(4).await;
    let line = world.line.clone();
    let cutting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            line.cut_watches();
        }
    });
    world.scale(PODS).await;
    world.until_running(PODS).await;
    world.until_settled().await;
    world.scale(0).await;
    world.until_nothing_is_left().await;
    cutting.abort();
    world.stop().await;
}

/// Nothing gets through for half a minute, beginning at every stage of a launch and of a drain.
#[tokio::test(start_paused = true)]
async fn an_outage() {
    let clear = out_and_in(5, Weather::default()).await.claims_created;
    for begins_at_millis in [200, 1_200, 3_500, 20_000] {
        let world = World::start(5).await;
        world.scale(PODS).await;
        outage(&world, begins_at_millis).await;
        world.until_running(PODS).await;
        world.until_settled().await;
        world.scale(6).await;
        outage(&world, begins_at_millis).await;
        world.until_running(6).await;
        world.until_settled().await;
        world.scale(0).await;
        outage(&world, begins_at_millis).await;
        world.until_nothing_is_left().await;
        let tally = world.line.tally();
        assert!(tally.spoiled > 0, "{tally:?}");
        assert!(tally.claims_created <= clear + 1, "from {begins_at_millis} ms: {tally:?}, else {clear}");
        world.stop().await;
    }
}

async fn outage(world: &World, begins_at_millis: u64) {
    world.pass(Duration::from_millis(begins_at_millis)).await;
    world.line.set(Weather { is_out: true, ..Weather::default() });
    world.pass(Duration::from_secs(30)).await;
    world.line.set(Weather::default());
}
