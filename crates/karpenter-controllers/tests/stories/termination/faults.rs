//! Tests of planner faults during the evaluation of disruption: nodes that do not cause the fault are still disrupted.

use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use serde_json::json;

use crate::termination::emptiness::world_with;
use crate::termination::world::is_terminating;

const CONCURRENT_WRITES_MAX: &str = "0s";

#[tokio::test(start_paused = true)]
async fn panic_in_cost_mode_is_followed_by_compat_mode() {
    let disruption = json!({"consolidateAfter": CONCURRENT_WRITES_MAX, "budgets": [{"nodes": "100%"}]});
    let inspect = Arc::new(|_: &Cluster, rules: &Rules| assert!(rules.mode == Mode::Compat, "planted"));
    let world = world_with(disruption, |one| one.inspected_by(inspect)).await;
    world.initialized_node("empty", json!({})).await;
    world.until("the empty node is deleted", async || world.claim("empty").await, is_terminating).await;
    assert!(world.context.metrics.planner_faults.with_label_values(&["cost", "panic"]).get() >= 1);
    let page = world.context.metrics.render();
    let panics = "controller_runtime_reconcile_panics_total{controller=\"disruption\"} ";
    assert!(
        page.lines().any(|line| line.starts_with(panics) && !line.ends_with(" 0")),
        "{panics} in\n{page}"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn panic_with_one_candidate_costs_that_candidate() {
    let disruption = json!({"consolidateAfter": CONCURRENT_WRITES_MAX, "budgets": [{"nodes": "100%"}]});
    let inspect = Arc::new(|cluster: &Cluster, _: &Rules| {
        let is_there = cluster.state_nodes.iter().any(|node| &*node.claim == "bad");
        let is_held_off = cluster.held_off.get("bad").is_some_and(|reasons| reasons.contains(&Reason::Empty));
        assert!(!is_there || is_held_off, "planted");
    });
    let world = world_with(disruption, |one| one.inspected_by(inspect)).await;
    for name in ["bad", "n1", "n2"] {
        world.initialized_node(name, json!({})).await;
    }
    for name in ["n1", "n2"] {
        world.until("an empty node is deleted", async || world.claim(name).await, is_terminating).await;
    }
    assert!(!is_terminating(&world.claim("bad").await));
    let record = world.context.journal.entries_after(0);
    assert!(
        record.iter().any(|entry| entry.what == "1 nodes are not disrupted because of a planner fault"),
        "{record:#?}"
    );
    world.stop().await;
}
