//! What users read about their nodes, in upstream's words where upstream has words.

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_kwok::Registration;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::disruption::support::{allow, annotate, apart, quick, too_large};
use crate::disruption::world::World;

async fn has(world: &World, reason: &str, words: &str) {
    let told = async || world.events(reason).await;
    let is_said = |told: &Vec<(String, String)>| told.iter().filter(|(_, text)| text == words).count() >= 2;
    world.until(&format!("{reason} on node and claim: {words}"), told, is_said).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_never_consolidates_and_one_that_only_does_when_empty() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        too_large(&world).await;
        has(&world, "Unconsolidatable", "NodePool \"general\" has consolidation disabled").await;
        allow(&world, json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"})).await;
        let words = "NodePool \"general\" has consolidation policy WhenEmpty, but node is not empty";
        has(&world, "Unconsolidatable", words).await;
        assert_eq!(world.decisions(), Vec::<String>::new());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_for_which_there_is_nothing_cheaper() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(quick(), json!({})).await;
        world.deploy("web", 1, 600, json!({})).await;
        world.until_running("web", 1).await;
        world.until_settled(1).await;
        has(&world, "Unconsolidatable", "Can't replace with a cheaper node").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_about_a_node_hears_what_stands_against_it_alone() {
    let world = World::start().await;
    world.pool(quick(), json!({})).await;
    world.deploy("web", 14, 900, apart()).await;
    world.until_running("web", 14).await;
    world.until_settled(14).await;
    let standings = &world.operator.context().standings;
    let of = |node: Option<&str>| -> Vec<String> {
        standings.entries(node).into_iter().map(|entry| entry.standing).collect()
    };
    // Of many nodes some are asked about in every quiet pass.
    let some = async || of(None).iter().filter(|standing| *standing == "NotCheaper").count();
    world.until("some are explained", some, |count| *count == 10).await;
    let entries = standings.entries(None);
    let fine = entries.iter().find(|entry| entry.standing == "Fine").expect("one that had no turn");
    let node = fine.node.clone().expect("a node");
    let words = "No move that takes this node away, alone or with others, was found to save enough for its trouble; all \
        nodes together cost ";
    assert!(fine.why.starts_with(words) && fine.why.contains("costs less than"), "{}", fine.why);
    let began = world.seconds();
    standings.ask(&node, world.clock.now());
    world.until("an answer", async || of(Some(&node)), |found| found == &["NotCheaper"]).await;
    assert!(world.seconds() - began <= 15);
    // A later pass has others to ask about; what was said is kept, with the time it was said at.
    let earlier =
        async || standings.entries(None).into_iter().filter(|one| one.alone.is_some()).collect::<Vec<_>>();
    let earlier = world.until("earlier answers", earlier, |found| !found.is_empty()).await;
    for entry in earlier {
        let alone = entry.alone.expect("just seen");
        assert_eq!((entry.standing.as_str(), alone.standing.as_str()), ("Fine", "NotCheaper"));
        assert!(alone.at < entry.at, "{} {}", alone.at, entry.at);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_second_look_refuses_is_in_the_journal() {
    let world = World::start().await;
    too_large(&world).await;
    allow(&world, quick()).await;
    let told = async || world.events("ConsolidationCandidate").await.len();
    world.until("a proposal", told, |count| *count > 0).await;
    // While the proposal rests, its owner asks for more than it saves.
    annotate(&world, json!({"karpenter.sh/consolidation-min-saving-per-hour": "100"})).await;
    let thoughts = world.until("a refusal", async || world.second_thoughts(), |told| !told.is_empty()).await;
    let claim = world.claims().await[0].metadata.name.clone().unwrap_or_default();
    assert_eq!(thoughts, [format!("keep 1 nodes for now: {claim}")]);
    let entries = world.operator.context().journal.entries_after(0);
    let why = &entries.iter().find(|entry| entry.what == thoughts[0]).expect("the entry").why;
    assert_eq!(why[0], "second look: the command does not save enough any more");
    assert!(why[1].starts_with("command "), "{why:?}");
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_pods_would_fit_nowhere_else() {
    let world = World::compat().await;
    world.pool_of(json!({"disruption": quick(), "limits": {"cpu": "8"}})).await;
    world.deploy("web", 1, 6000, json!({})).await;
    let pods = world.until_running("web", 1).await;
    world.until_settled(1).await;
    let name = pods[0].metadata.name.clone().unwrap_or_default();
    let begin = format!("Not all pods would schedule, default/{name} => ");
    let told = async || world.events("Unconsolidatable").await;
    world.until(&begin, told, |told| told.iter().any(|(_, text)| text.starts_with(&begin))).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_blocks_a_node() {
    let world = World::start().await;
    too_large(&world).await;
    allow(&world, quick()).await;
    let node = world.nodes().await[0].metadata.name.clone().unwrap_or_default();
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    world.merge::<Node>(&node, keep.clone()).await;
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    has(&world, "DisruptionBlocked", words).await;
    let pod = world.pods().await[0].metadata.name.clone().unwrap_or_default();
    let api = world.api::<Pod>();
    api.patch(&pod, &PatchParams::default(), &Patch::Merge(keep)).await.expect("patched");
    let free = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
    world.merge::<Node>(&node, free).await;
    let words = format!("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/{pod})");
    has(&world, "DisruptionBlocked", &words).await;
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_for_its_replacement_is_not_said_to_be_blocked() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        too_large(&world).await;
        let claim = world.claims().await[0].metadata.name.clone().unwrap_or_default();
        world.cloud.change_faults(|faults| {
            faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
        });
        allow(&world, quick()).await;
        world.until("a replacement", async || world.claim_names().await.len(), |count| *count == 2).await;
        world.sleep(60).await;
        assert_eq!(world.claim_names().await.len(), 2, "it waits");
        let told = world.events("DisruptionBlocked").await;
        let words = "Node is deleting or marked for deletion";
        assert!(!told.contains(&(claim, words.to_owned())), "{mode}: {told:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_annotations_of_pods_do_is_told_before_anything_is_disrupted() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    for (name, value) in [("soon", "10m"), ("past", "1s"), ("wrong", "maybe")] {
        let patch = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
        world.deploy(name, 1, 100, patch).await;
        world.until_running(name, 1).await;
    }
    for (reason, app) in [
        ("DoNotDisruptUntil", "soon"),
        ("DoNotDisruptGracePeriodElapsed", "past"),
        ("InvalidDoNotDisruptAnnotation", "wrong"),
    ] {
        let told = async || world.events(reason).await;
        let is_about = |told: &Vec<(String, String)>| told.iter().any(|(pod, _)| pod.starts_with(app));
        world.until(reason, told, is_about).await;
    }
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_method_is_timed_and_nodes_are_counted_once() {
    let world = World::compat().await;
    world.pool(quick(), json!({})).await;
    world.deploy("web", 2, 900, apart()).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    has(&world, "Unconsolidatable", "Can't replace with a cheaper node").await;
    let eligible = "karpenter_voluntary_disruption_eligible_nodes{reason=\"underutilized\"}";
    assert_eq!(world.metric(eligible), Some(2.0));
    for (kind, reason) in
        [("empty", "empty"), ("", "drifted"), ("multi", "underutilized"), ("single", "underutilized")]
    {
        let series = format!(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count\
             {{consolidation_type=\"{kind}\",reason=\"{reason}\"}}"
        );
        assert!(world.metric(&series).is_some_and(|count| count > 0.0), "{series}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_balanced_pool_says_how_it_judged_a_move() {
    let world = World::start().await;
    too_large(&world).await;
    let mut balanced = quick();
    balanced["consolidationPolicy"] = json!("Balanced");
    allow(&world, balanced).await;
    world.until_settled(1).await;
    let told = async || world.events("ConsolidationApproved").await;
    let told = world.until("a verdict", told, |told| told.len() >= 2).await;
    // The only node: all of the trouble, and as much of the cost as is saved. Eight CPUs with 32 GiB for one with four
    // save seven eighths.
    let words = "score 0.88 >= threshold 0.50 (k: 2, savings 87.5%, disruption 100.0%)";
    assert!(told.iter().all(|(_, text)| text == words), "{told:?}");
    let moves =
        "karpenter_consolidation_moves_total{decision=\"approved\",nodepool=\"general\",policy=\"Balanced\"}";
    assert_eq!(world.metric(moves), Some(1.0));
    let candidate = world.events("ConsolidationCandidate").await;
    let is_right = |text: &str| {
        text.starts_with("Consolidation candidate: Underutilized/")
            && text.contains(": replace: nodepools=[general]: [")
            && text.contains("] -> [1 replacement] (savings: $")
    };
    assert!(!candidate.is_empty() && candidate.iter().all(|(_, text)| is_right(text)), "{candidate:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_told_on_the_pool() {
    let world = World::start().await;
    too_large(&world).await;
    annotate(&world, json!({"karpenter.sh/consolidation-max-moves-per-hour": "many"})).await;
    allow(&world, quick()).await;
    let told = async || world.events("InvalidConsolidationAnnotation").await;
    let told = world.until("a warning", told, |told| !told.is_empty()).await;
    let words = "nodepool general: annotation karpenter.sh/consolidation-max-moves-per-hour: \"many\" cannot be used; \
        valid: a whole number, such as 100; no pod is moved for savings";
    assert_eq!(told, [("general".to_owned(), words.to_owned())]);
    world.sleep(600).await;
    assert_eq!(world.decisions(), Vec::<String>::new(), "it counts as 0");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn share_of_hostname_spreads_that_cannot_be_read_is_reported_on_the_pool() {
    let world = World::start().await;
    too_large(&world).await;
    annotate(&world, json!({"karpenter.sh/hostname-spread-share": "half"})).await;
    allow(&world, quick()).await;
    let events = async || world.events("InvalidHostnameSpreadShare").await;
    let events = world.until("a warning", events, |events| !events.is_empty()).await;
    let words = "nodepool general: annotation karpenter.sh/hostname-spread-share: \"half\" cannot be used; valid: a whole \
        number of percent from 0 to 100, such as 10; the value of --hostname-spread-share is used";
    assert_eq!(events, [("general".to_owned(), words.to_owned())]);
    world.stop().await;
}
