//! Tests that an idle cluster causes few requests and evaluations.

use serde_json::json;

use crate::clients::RequestCounter;
use crate::disruption::support::{anti_affinity, consolidate_soon};
use crate::disruption::world::World;

#[tokio::test(start_paused = true)]
async fn idle_hour_has_no_writes_and_an_evaluation_every_five_minutes() {
    for mode in ["cost", "compat"] {
        let mut world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(consolidate_soon(), json!({})).await;
        world.deploy("web", 4, 900, anti_affinity()).await;
        world.until_running("web", 4).await;
        world.until_settled(4).await;
        let counted = RequestCounter::default();
        let old = world.take_over(counted.client(world.server.clone())).await;
        old.stop().await;
        world.sleep(1200).await;
        let looks = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count";
        let count = |world: &World| -> f64 {
            let text = world.operator.context().metrics.render();
            // Each evaluation must have run all methods.
            let is_one = |line: &&str| line.starts_with(looks) && line.contains("reason=\"empty\"");
            let of_looks = text.lines().filter(is_one);
            of_looks.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        let before = count(&world);
        counted.take();
        world.sleep(3600).await;
        let requests = counted.take();
        // The only writes are events `Unconsolidatable`: one for each node and one for each NodeClaim, repeated every
        // 15 minutes as in upstream.
        let writes: Vec<_> = requests.iter().filter(|(what, _)| !what.starts_with("GET ")).collect();
        let events: u32 =
            writes.iter().filter(|(what, _)| what.contains("/events")).map(|(_, count)| **count).sum();
        let others: Vec<_> = writes.iter().filter(|(what, _)| !what.contains("/events")).collect();
        assert!(others.is_empty(), "{mode}: {others:#?}");
        assert!(events <= 4 * 8, "{mode}: {writes:#?}");
        // The only reads are restarts of watches; the controllers do not list or get objects periodically.
        let reads: u32 =
            requests.iter().filter(|(what, _)| what.starts_with("GET ")).map(|(_, count)| *count).sum();
        assert!(reads <= 400, "{mode}: {reads} {requests:#?}");
        let looked = count(&world) - before;
        assert!((10.0..=14.0).contains(&looked), "{mode}: one evaluation every five minutes: {looked}");
        world.stop().await;
    }
}
