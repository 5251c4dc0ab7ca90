//! Tests of events, verdicts and journal entries about nodes, with upstream's text where upstream has one.

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_kwok::Registration;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::disruption::support::{annotate, anti_affinity, consolidate_soon, oversized_node, set_disruption};
use crate::disruption::world::World;

async fn until_event_on_node_and_claim(world: &World, reason: &str, words: &str) {
    let events = async || world.events(reason).await;
    let is_published =
        |events: &Vec<(String, String)>| events.iter().filter(|(_, text)| text == words).count() >= 2;
    world.until(&format!("{reason} on node and claim: {words}"), events, is_published).await;
}

#[tokio::test(start_paused = true)]
async fn disabled_consolidation_and_when_empty_policy_are_reported() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        oversized_node(&world).await;
        until_event_on_node_and_claim(
            &world,
            "Unconsolidatable",
            "NodePool \"general\" has consolidation disabled",
        )
        .await;
        set_disruption(&world, json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"})).await;
        let words = "NodePool \"general\" has consolidation policy WhenEmpty, but node is not empty";
        until_event_on_node_and_claim(&world, "Unconsolidatable", words).await;
        assert_eq!(world.decisions(), Vec::<String>::new());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn node_without_cheaper_replacement_is_reported() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(consolidate_soon(), json!({})).await;
        world.deploy("web", 1, 600, json!({})).await;
        world.until_running("web", 1).await;
        world.until_settled(1).await;
        until_event_on_node_and_claim(&world, "Unconsolidatable", "Can't replace with a cheaper node").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requested_node_gets_its_own_verdict() {
    let world = World::start().await;
    world.pool(consolidate_soon(), json!({})).await;
    world.deploy("web", 14, 900, anti_affinity()).await;
    world.until_running("web", 14).await;
    world.until_settled(14).await;
    let verdicts = &world.operator.context().verdicts;
    let of = |node: Option<&str>| -> Vec<String> {
        verdicts.entries(node).into_iter().map(|entry| entry.standing).collect()
    };
    // In a cluster with many nodes, each pass that finds no commands explains only some of the verdicts.
    let some = async || of(None).iter().filter(|standing| *standing == "NotCheaper").count();
    world.until("some verdicts", some, |count| *count == 10).await;
    let entries = verdicts.entries(None);
    let stays = entries.iter().find(|entry| entry.standing == "Stays").expect("one that had no turn");
    let node = stays.node.clone().expect("a node");
    // The terms of the objective, in $/h: the price is at most the sum of the others.
    let words: Vec<&str> = stays.why.split([' ', ';']).collect();
    let terms: Vec<f64> =
        words.iter().filter_map(|word| word.trim_end_matches([',', ':']).parse().ok()).collect();
    let [price, elsewhere, free_capacity, pods, moving] = terms[..] else { panic!("{}", stays.why) };
    assert!(pods == 1.0 && price > 0.0 && moving > 0.0, "{}", stays.why);
    assert!(
        price <= elsewhere + free_capacity + moving + 2e-4 && stays.why.ends_with(": stays"),
        "{}",
        stays.why
    );
    let began = world.seconds();
    verdicts.request(&node, world.clock.now());
    world.until("the requested verdict", async || of(Some(&node)), |found| found == &["NotCheaper"]).await;
    assert!(world.seconds() - began <= 15);
    // A later pass explains verdicts of other nodes. The earlier explanations are kept, with their time.
    let earlier =
        async || verdicts.entries(None).into_iter().filter(|one| one.alone.is_some()).collect::<Vec<_>>();
    let earlier = world.until("earlier verdicts", earlier, |found| !found.is_empty()).await;
    for entry in earlier {
        let alone = entry.alone.expect("just seen");
        assert_eq!((entry.standing.as_str(), alone.standing.as_str()), ("Stays", "NotCheaper"));
        assert!(alone.at < entry.at, "{} {}", alone.at, entry.at);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_validation_is_recorded_in_the_journal() {
    let world = World::start().await;
    oversized_node(&world).await;
    set_disruption(&world, consolidate_soon()).await;
    let events = async || world.events("ConsolidationCandidate").await.len();
    world.until("a candidate event", events, |count| *count > 0).await;
    // Before the validation, the test sets an annotation that requires a higher saving.
    annotate(&world, json!({"karpenter.sh/consolidation-min-saving-per-hour": "100"})).await;
    let thoughts = world
        .until("a journal entry", async || world.failed_validations(), |events| !events.is_empty())
        .await;
    let claim = world.claims().await[0].metadata.name.clone().unwrap_or_default();
    assert_eq!(thoughts, [format!("do not disrupt 1 nodes: {claim}")]);
    let entries = world.operator.context().journal.entries_after(0);
    let why = &entries.iter().find(|entry| entry.what == thoughts[0]).expect("the entry").why;
    assert_eq!(why[0], "validation: the command no longer saves enough");
    assert!(why[1].starts_with("command "), "{why:?}");
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_whose_pods_fit_nowhere_else_is_reported() {
    let world = World::compat().await;
    world.pool_of(json!({"disruption": consolidate_soon(), "limits": {"cpu": "8"}})).await;
    world.deploy("web", 1, 6000, json!({})).await;
    let pods = world.until_running("web", 1).await;
    world.until_settled(1).await;
    let name = pods[0].metadata.name.clone().unwrap_or_default();
    let begin = format!("Not all pods would schedule, default/{name} => ");
    let events = async || world.events("Unconsolidatable").await;
    world.until(&begin, events, |events| events.iter().any(|(_, text)| text.starts_with(&begin))).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_annotations_are_reported_as_blocking() {
    let world = World::start().await;
    oversized_node(&world).await;
    set_disruption(&world, consolidate_soon()).await;
    let node = world.nodes().await[0].metadata.name.clone().unwrap_or_default();
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    world.merge::<Node>(&node, keep.clone()).await;
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    until_event_on_node_and_claim(&world, "DisruptionBlocked", words).await;
    let pod = world.pods().await[0].metadata.name.clone().unwrap_or_default();
    let api = world.api::<Pod>();
    api.patch(&pod, &PatchParams::default(), &Patch::Merge(keep)).await.expect("patched");
    let free = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
    world.merge::<Node>(&node, free).await;
    let words = format!("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/{pod})");
    until_event_on_node_and_claim(&world, "DisruptionBlocked", &words).await;
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn candidate_awaiting_its_replacement_is_not_reported_as_blocked() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        oversized_node(&world).await;
        let claim = world.claims().await[0].metadata.name.clone().unwrap_or_default();
        world.cloud.change_faults(|faults| {
            faults.registration = Registration::Slower(std::time::Duration::from_secs(120));
        });
        set_disruption(&world, consolidate_soon()).await;
        world.until("a replacement", async || world.claim_names().await.len(), |count| *count == 2).await;
        world.sleep(60).await;
        assert_eq!(world.claim_names().await.len(), 2, "the replacement is not registered");
        let events = world.events("DisruptionBlocked").await;
        let words = "Node is deleting or marked for deletion";
        assert!(!events.contains(&(claim, words.to_owned())), "{mode}: {events:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_annotations_of_pods_are_reported_without_disruption() {
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
        let events = async || world.events(reason).await;
        let is_about = |events: &Vec<(String, String)>| events.iter().any(|(pod, _)| pod.starts_with(app));
        world.until(reason, events, is_about).await;
    }
    assert_eq!(world.decisions(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_method_is_timed_and_nodes_are_counted_once() {
    let world = World::compat().await;
    world.pool(consolidate_soon(), json!({})).await;
    world.deploy("web", 2, 900, anti_affinity()).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    until_event_on_node_and_claim(&world, "Unconsolidatable", "Can't replace with a cheaper node").await;
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
async fn balanced_policy_reports_its_score() {
    let world = World::start().await;
    oversized_node(&world).await;
    let mut balanced = consolidate_soon();
    balanced["consolidationPolicy"] = json!("Balanced");
    set_disruption(&world, balanced).await;
    world.until_settled(1).await;
    let events = async || world.events("ConsolidationApproved").await;
    let events = world.until("an approval", events, |events| events.len() >= 2).await;
    // The cluster has only this node, so it has 100 % of the disruption cost. Replacing 8 CPUs and 32 GiB by 1 CPU and
    // 4 GiB saves 7/8 of the price.
    let words = "score 0.88 >= threshold 0.50 (k: 2, savings 87.5%, disruption 100.0%)";
    assert!(events.iter().all(|(_, text)| text == words), "{events:?}");
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
async fn invalid_consolidation_annotation_is_reported_on_the_nodepool() {
    let world = World::start().await;
    oversized_node(&world).await;
    annotate(&world, json!({"karpenter.sh/consolidation-max-moves-per-hour": "many"})).await;
    set_disruption(&world, consolidate_soon()).await;
    let events = async || world.events("InvalidConsolidationAnnotation").await;
    let events = world.until("a warning", events, |events| !events.is_empty()).await;
    let words = "nodepool general: annotation karpenter.sh/consolidation-max-moves-per-hour: \"many\" is invalid; \
        valid: a whole number, such as 100; consolidation moves no pods";
    assert_eq!(events, [("general".to_owned(), words.to_owned())]);
    world.sleep(600).await;
    assert_eq!(world.decisions(), Vec::<String>::new(), "an invalid limit counts as 0");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_hostname_spread_share_is_reported_on_the_nodepool() {
    let world = World::start().await;
    oversized_node(&world).await;
    annotate(&world, json!({"karpenter.sh/hostname-spread-share": "half"})).await;
    set_disruption(&world, consolidate_soon()).await;
    let events = async || world.events("InvalidHostnameSpreadShare").await;
    let events = world.until("a warning", events, |events| !events.is_empty()).await;
    let words = "nodepool general: annotation karpenter.sh/hostname-spread-share: \"half\" is invalid; valid: a whole \
        number of percent from 0 to 100, such as 10; the value of --hostname-spread-share is used";
    assert_eq!(events, [("general".to_owned(), words.to_owned())]);
    world.stop().await;
}
