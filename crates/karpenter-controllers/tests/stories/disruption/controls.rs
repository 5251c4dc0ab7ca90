//! Tests of the NodePool annotations that restrict consolidation. Each test shows that one value of an annotation
//! blocks the command and another value allows it.

use karpenter_api::types::NodePool;
use kube::Client;
use serde_json::{Value, json};

use crate::disruption::support::{annotate, anti_affinity, consolidate_soon, oversized_node, set_disruption};
use crate::disruption::world::World;

const PREFIX: &str = "karpenter.sh/consolidation-";

fn named(name: &str, value: &str) -> Value {
    json!({format!("{PREFIX}{name}"): value})
}

/// The code of the verdict for the only node of the cluster.
fn standing(world: &World) -> String {
    let entries = world.operator.context().verdicts.entries(None);
    entries.first().map(|entry| entry.standing.clone()).unwrap_or_default()
}

async fn until_only_small_node(world: &World) {
    let types = async || {
        let nodes = world.nodes().await;
        let names = nodes
            .iter()
            .map(|node| crate::disruption::world::label(node, "node.kubernetes.io/instance-type").to_owned());
        names.collect::<Vec<_>>()
    };
    world.until("only one small node", types, |types| *types == ["s-1x-amd64-linux"]).await;
}

/// Asserts that the annotation blocks the command with this verdict if it has the value `value`, and allows the command
/// if it has the value `other`.
async fn blocks_command(name: &str, value: &str, words: &str, other: &str, disruption: Value) {
    let world = World::start().await;
    oversized_node(&world).await;
    annotate(&world, named(name, value)).await;
    set_disruption(&world, disruption).await;
    world.sleep(900).await;
    assert_eq!(world.decisions(), Vec::<String>::new(), "{name}: {value}");
    assert_eq!(standing(&world), words, "{name}: {value}");
    // The event on the node has the same text as the verdict.
    let why = world.operator.context().verdicts.entries(None)[0].why.clone();
    let events = world.events("Unconsolidatable").await;
    assert!(events.iter().filter(|(_, text)| *text == why).count() >= 2, "{name}: {why}: {events:#?}");
    annotate(&world, named(name, other)).await;
    until_only_small_node(&world).await;
    assert_eq!(world.decisions().len(), 1, "{name}: {other}: {:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn min_saving_percent_blocks_smaller_savings() {
    // The command saves 87.5 %.
    blocks_command("min-saving-percent", "88", "BelowThreshold", "87", consolidate_soon()).await;
}

#[tokio::test(start_paused = true)]
async fn min_saving_per_hour_blocks_smaller_savings() {
    blocks_command("min-saving-per-hour", "100", "BelowThreshold", "0.01", consolidate_soon()).await;
}

#[tokio::test(start_paused = true)]
async fn max_moves_per_hour_limits_pod_moves() {
    blocks_command("max-moves-per-hour", "0", "MovesExhausted", "1", consolidate_soon()).await;
}

/// Starts a process that takes over from the current one.
async fn restart(world: &mut World) {
    let old = world.take_over(Client::new(world.server.clone(), "default")).await;
    old.stop().await;
}

#[tokio::test(start_paused = true)]
async fn moves_of_the_last_hour_count_after_a_restart() {
    let mut world = World::start().await;
    oversized_node(&world).await;
    annotate(&world, named("max-moves-per-hour", "1")).await;
    set_disruption(&world, consolidate_soon()).await;
    world.until("a first command", async || world.decisions().len(), |count| *count == 1).await;
    let moved_at = world.seconds();
    until_only_small_node(&world).await;
    let pool = &world.list::<NodePool>().await[0];
    let noted =
        pool.metadata.annotations.as_ref().and_then(|all| all.get("karpenter.sh/pods-moved").cloned());
    assert!(noted.as_ref().is_some_and(|text| text.ends_with("Z\":1}")), "{noted:?}");
    // This adds another oversized node.
    world.deploy("large", 1, 6000, json!({})).await;
    world.deploy("tiny", 1, 500, json!({})).await;
    world.until_running("large", 1).await;
    world.until_running("tiny", 1).await;
    world.until_settled(2).await;
    world.delete_deployment("large").await;
    world.until_running("large", 0).await;
    restart(&mut world).await;
    world.sleep(900).await;
    assert_eq!(world.decisions(), Vec::<String>::new(), "the one move of this hour is used");
    let verdicts = world.operator.context().verdicts.entries(None);
    assert!(verdicts.iter().any(|entry| entry.standing == "MovesExhausted"), "{verdicts:#?}");
    world.until("a second command", async || world.decisions().len(), |count| *count == 1).await;
    let rested = world.seconds() - moved_at;
    assert!(
        (3595..3600 + 6 * 60).contains(&rested),
        "one hour, and an evaluation every five minutes: {rested}"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cool_down_is_kept_after_a_restart() {
    let mut world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 2, 4100, json!({})).await;
    world.until_running("big", 2).await;
    world.until_settled(2).await;
    world.deploy("web", 4, 500, json!({})).await;
    world.until_running("web", 4).await;
    world.scale("big", 1).await;
    world.until_running("big", 1).await;
    annotate(&world, named("cool-down", "45m")).await;
    set_disruption(&world, consolidate_soon()).await;
    // The pods move to the node that remains. It is then much larger than they need, so a replacement would save.
    world.until("a first command", async || world.decisions().len(), |count| *count == 1).await;
    let moved_at = world.seconds();
    world.until_settled(1).await;
    assert!(world.decisions()[0].starts_with("delete 1 nodes: "), "{:?}", world.decisions());
    world.until_running("web", 4).await;
    world.scale("web", 1).await;
    world.delete_deployment("big").await;
    world.until_running("web", 1).await;
    world.until_running("big", 0).await;
    restart(&mut world).await;
    world.sleep(900).await;
    assert_eq!((standing(&world).as_str(), world.decisions().len()), ("CoolDown", 0));
    until_only_small_node(&world).await;
    let rested = world.seconds() - moved_at;
    assert!((44 * 60..52 * 60).contains(&rested), "45 minutes, and an evaluation every five: {rested}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dry_run_reports_commands_and_executes_none() {
    let world = World::start().await;
    oversized_node(&world).await;
    annotate(&world, named("dry-run", "true")).await;
    set_disruption(&world, consolidate_soon()).await;
    world.sleep(600).await;
    assert_eq!(world.claims().await.len(), 1);
    assert_eq!(standing(&world), "DryRun");
    let events = world.events("ConsolidationDryRun").await;
    assert_eq!(events.len(), 2, "one event on node and NodeClaim each: {events:?}");
    let words = "Would be disrupted without the consolidation dry run: Underutilized/dry-run: replace: ";
    assert!(events.iter().all(|(_, text)| text.starts_with(words)), "{events:?}");
    let decisions = world.decisions();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(decisions[0].starts_with("would replace 1 nodes: "), "{decisions:?}");
    let rehearsed = "karpenter_nodepools_dry_run_nodes{nodepool=\"general\",reason=\"underutilized\"}";
    assert_eq!(world.metric(rehearsed), Some(1.0));
    annotate(&world, named("dry-run", "false")).await;
    until_only_small_node(&world).await;
    world.until("no command in dry run", async || world.metric(rehearsed), |count| count.is_none()).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dry_run_does_not_block_drift() {
    let world = World::start().await;
    oversized_node(&world).await;
    let before = world.claim_names().await;
    annotate(&world, named("dry-run", "true")).await;
    crate::disruption::support::drift(&world).await;
    world
        .until("the node is replaced", async || world.claim_names().await, |names| names.is_disjoint(&before))
        .await;
    world.until_running("web", 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn threshold_k_of_balanced_policy_decides() {
    let mut balanced = consolidate_soon();
    balanced["consolidationPolicy"] = json!("Balanced");
    // The command has 100 % of the disruption cost and saves 87.5 % of the price. The score 0.875 meets the threshold
    // for k = 1.15 (0.87), and does not meet that for k = 1.1 (0.91).
    blocks_command("balanced-k", "1.1", "Unbalanced", "1.15", balanced).await;
}

#[tokio::test(start_paused = true)]
async fn cool_down_after_a_move_blocks_consolidation() {
    let world = World::start().await;
    oversized_node(&world).await;
    world.deploy("more", 1, 1200, json!({})).await;
    world.until_running("more", 1).await;
    annotate(&world, named("cool-down", "45m")).await;
    set_disruption(&world, consolidate_soon()).await;
    // The command moves two pods to a node of two CPUs. When only one of the pods is left later, one CPU is enough.
    world.until("a first command", async || world.decisions().len(), |count| *count == 1).await;
    world.until_settled(1).await;
    world.until_running("more", 1).await;
    let moved_at = world.seconds();
    world.delete_deployment("more").await;
    world.until_running("more", 0).await;
    world.sleep(900).await;
    assert_eq!(standing(&world), "CoolDown");
    let entries = world.operator.context().verdicts.entries(None);
    let words = "Not consolidated before 2026-01-01T";
    assert!(
        entries[0].why.starts_with(words) && entries[0].why.ends_with("(cool-down)"),
        "{}",
        entries[0].why
    );
    until_only_small_node(&world).await;
    let rested = world.seconds() - moved_at;
    assert!((44 * 60..52 * 60).contains(&rested), "45 minutes, and an evaluation every five: {rested}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn several_nodes_are_replaced_by_one_unless_annotation_forbids() {
    let world = World::start().await;
    // The NodePool allows instance types with one and with eight CPUs.
    let requirement =
        json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1", "8"]});
    let pool = world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    let mut requirements = serde_json::to_value(&pool.spec.template.spec.requirements).expect("JSON");
    requirements.as_array_mut().expect("a list").push(requirement);
    world
        .merge::<karpenter_api::types::NodePool>(
            "general",
            json!({"spec": {"template": {"spec": {"requirements": requirements}}}}),
        )
        .await;
    world.deploy("big", 1, 4500, json!({})).await;
    world.deploy("web", 3, 800, json!({})).await;
    world.until_running("web", 3).await;
    world.until_running("big", 1).await;
    world.until_settled(1).await;
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
    annotate(&world, named("many-to-many", "disabled")).await;
    set_disruption(&world, consolidate_soon()).await;
    world.sleep(900).await;
    assert_eq!(world.decisions(), Vec::<String>::new());
    annotate(&world, named("many-to-many", "enabled")).await;
    world.until_settled(3).await;
    world.until_running("web", 3).await;
    let decisions = world.decisions();
    assert_eq!(decisions.len(), 1, "{decisions:#?}");
    assert!(
        decisions[0].starts_with("replace 1 nodes: ") && decisions[0].ends_with(", launch 3 replacements")
    );
    world.sleep(3600).await;
    assert_eq!(world.decisions().len(), 1, "no further command: {:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_nodes_are_replaced_by_two_cheaper_ones() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    let mut one_each = anti_affinity();
    one_each["metadata"]["labels"] = json!({"side": "by-side"});
    world.deploy("big", 2, 6000, anti_affinity()).await;
    world.until_running("big", 2).await;
    world.deploy("web", 2, 1500, json!({})).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    let before = world.claim_names().await;
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
    // From now on the pods must run on different nodes, so no node can take both pods.
    let keep_apart = json!({"spec": {"template": {"spec": one_each["spec"].clone(),
        "metadata": {"labels": {"side": "by-side"}}}}});
    world
        .api::<k8s_openapi::api::apps::v1::Deployment>()
        .patch("web", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(keep_apart))
        .await
        .expect("patched");
    world.sleep(60).await;
    world.until_running("web", 2).await;
    set_disruption(&world, consolidate_soon()).await;
    world
        .until(
            "others",
            async || world.claim_names().await,
            |names| names.is_disjoint(&before) && names.len() == 2,
        )
        .await;
    world.until_settled(2).await;
    world.until_running("web", 2).await;
    let entries = world.operator.context().journal.entries_after(0);
    let is_command = |entry: &&karpenter_controllers::decision_journal::JournalEntry| {
        entry.by == "disruption" && entry.cost_before_per_hour.is_some()
    };
    for entry in entries.iter().filter(is_command) {
        assert!(entry.cost_after_per_hour < entry.cost_before_per_hour, "{entry:?}");
    }
    let decisions = world.decisions().len();
    world.sleep(3600).await;
    assert_eq!(world.decisions().len(), decisions, "quiet: {:#?}", world.decisions());
    world.stop().await;
}
