//! A budget that cannot be evaluated blocks the disruption of its NodePool, and the NodePool gets a warning event.

use karpenter_api::types::NodePool;
use serde_json::json;
use tracing::Level;

use crate::captured_log::CapturedLog;
use crate::disruption::world::World;

#[tokio::test(start_paused = true)]
async fn unparsable_budget_schedule_blocks_disruption_and_is_reported_on_nodepool() {
    let captured = CapturedLog::start();
    let world = World::start().await;
    // The CRD admits this schedule, although it is invalid. The first budget alone would allow every disruption.
    let budgets = json!([{"nodes": "100%"}, {"nodes": "1", "schedule": "61 * * * *", "duration": "1h"}]);
    world.pool(json!({"consolidateAfter": "0s", "budgets": budgets}), json!({})).await;
    world.deploy("web", 1, 900, json!({})).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    world.delete_deployment("web").await;
    world.until_running("web", 0).await;
    let events = async || world.events("InvalidDisruptionBudget").await;
    let events = world.until("a warning", events, |events| !events.is_empty()).await;
    let [(pool, words)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(pool, "general");
    let begin = "nodepool general: spec.disruption.budgets: budget 1: schedule field minute";
    assert!(words.starts_with(begin), "{words}");
    world.sleep(600).await;
    assert_eq!(world.claim_names().await.len(), 1, "an invalid budget blocks disruption");
    assert_eq!(world.decisions(), Vec::<String>::new());
    assert_eq!(captured.lines(Level::WARN, begin).len(), 1, "{:?}", captured.lines(Level::WARN, ""));
    let mended = json!([{"nodes": "100%"}, {"nodes": "1", "schedule": "1 * * * *", "duration": "1h"}]);
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": mended}}})).await;
    world.until_settled(0).await;
    world.stop().await;
}
