//! Tests of the drain of deleted nodes.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::NodeClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::termination::world::{World, condition_of, is_terminating};

fn slow_stop(seconds: u32) -> Value {
    json!({"fake-kubelet/stop-seconds": seconds.to_string()})
}

async fn daemon_set(world: &World, name: &str, priority_class: Option<&str>) {
    world
        .create_in_default::<DaemonSet>(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}, "annotations": slow_stop(2)},
                "spec": {"priorityClassName": priority_class,
                    "containers": [{"name": "c", "image": "i"}]}}},
        }))
        .await;
    let labels = ListParams::default().labels(&format!("app={name}"));
    let running = async || {
        let pods = world.all::<Pod>().list(&labels).await.expect("listed").items;
        pods.iter()
            .filter(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")))
            .count()
    };
    world.until("the DaemonSet pod runs", running, |count| *count == 1).await;
}

#[tokio::test(start_paused = true)]
async fn workloads_are_evicted_before_daemonset_pods_and_critical_pods_last() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    daemon_set(&world, "daemon", None).await;
    daemon_set(&world, "critical-daemon", Some("system-node-critical")).await;
    world.pod("web", "n1", json!({"metadata": {"annotations": slow_stop(3)}})).await;
    let critical = json!({"metadata": {"annotations": slow_stop(2)},
        "spec": {"priorityClassName": "system-cluster-critical"}});
    world.pod("critical", "n1", critical).await;
    world.delete::<Node>("n1").await;

    // For each pod: the second at which it was first seen terminating, and the second at which it was first gone.
    let mut left: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut tick = 0;
    while world.node("n1").await.is_some() {
        let pods = world.all::<Pod>().list(&ListParams::default()).await.expect("listed").items;
        for app in ["web", "daemon", "critical", "critical-daemon"] {
            let of_app: Vec<&Pod> = pods
                .iter()
                .filter(|pod| {
                    pod.metadata.labels.as_ref().and_then(|l| l.get("app")).map(String::as_str) == Some(app)
                })
                .collect();
            let entry = left.entry(app.to_owned()).or_insert((i64::MAX, i64::MAX));
            if of_app.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()) {
                entry.0 = entry.0.min(tick);
            }
            if of_app.is_empty() {
                entry.1 = entry.1.min(tick);
            }
        }
        tick += 1;
        assert!(tick < 6000, "the node is not deleted: {left:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let order = ["web", "daemon", "critical", "critical-daemon"];
    for pair in order.windows(2) {
        let (before, after) = (left[pair[0]], left[pair[1]]);
        assert!(before.0 < before.1, "{} was evicted and not deleted at once: {left:?}", pair[0]);
        assert!(before.1 <= after.0, "{} is evicted after {} is deleted: {left:?}", pair[1], pair[0]);
    }
    let evicted = world.events("Evicted").await;
    assert!(evicted.contains(&("web".into(), "Evicted pod: Forceful Termination".into())), "{evicted:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_disruption_budget_blocks_a_drain_until_it_allows_the_eviction() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.pod("web", "n1", json!({})).await;
    world
        .create_in_default::<PodDisruptionBudget>(json!({"metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}))
        .await;
    let reason = json!({"type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": "Drifted",
        "lastTransitionTime": world.clock.time()});
    let conditions = world.claim("n1").await.and_then(|claim| claim.status).map(|status| status.conditions);
    let mut conditions = json!(conditions);
    conditions.as_array_mut().expect("conditions").push(reason);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    world.all::<NodeClaim>().patch_status("n1", &PatchParams::default(), &patch).await.expect("patched");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    world.delete::<Node>("n1").await;
    world.sleep_until_second(120).await;
    assert!(!is_terminating(&world.find_pod("web").await), "the PodDisruptionBudget protects it");
    let events = world.events("FailedDraining").await;
    let message = "Failed to drain node, evicting pod default/web violates a PDB";
    assert!(events.contains(&("n1".into(), message.into())), "{events:?}");
    let message = "Failed to drain node, 1 pods are waiting to be evicted";
    assert!(events.contains(&("n1".into(), message.into())), "{events:?}");

    world.api::<PodDisruptionBudget>().delete("web", &DeleteParams::default()).await.expect("deleted");
    world.until_node_gone("n1").await;
    let took = world.seconds() - 120;
    assert!(took <= 10 + 7, "evictions are retried at least every ten seconds, but it took {took} s");
    assert_eq!(world.events("Evicted").await, [("web".to_owned(), "Evicted pod: Drifted".to_owned())]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_pod_disruption_budgets_of_one_pod_block_a_drain_with_an_event() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.pod("web", "n1", json!({})).await;
    for name in ["one", "two"] {
        world
            .create_in_default::<PodDisruptionBudget>(json!({"metadata": {"name": name},
                "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}}))
            .await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    world.delete::<Node>("n1").await;
    world.sleep_until_second(60).await;
    assert!(!is_terminating(&world.find_pod("web").await));
    let message = "Failed to drain node, evicting pod default/web violates a PDB";
    assert!(world.events("FailedDraining").await.contains(&("n1".into(), message.into())));
    world.api::<PodDisruptionBudget>().delete("one", &DeleteParams::default()).await.expect("deleted");
    world.until_node_gone("n1").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn termination_deadline_overrides_pod_disruption_budgets_and_do_not_disrupt() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true",
        "fake-kubelet/stop-seconds": "1000"}}});
    world.pod("kept", "n1", keep).await;
    world.pod("web", "n1", json!({"spec": {"terminationGracePeriodSeconds": 60}})).await;
    world
        .create_in_default::<PodDisruptionBudget>(json!({"metadata": {"name": "web"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}))
        .await;
    let by = world.time_at(300);
    let annotation =
        json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": by}}});
    world.merge::<NodeClaim>("n1", annotation).await;
    world.delete::<Node>("n1").await;

    world.sleep_until_second(238).await;
    assert!(!is_terminating(&world.find_pod("web").await), "its grace period of 60 s still fits");
    world.until("web is terminating", async || world.find_pod("web").await, is_terminating).await;
    assert!((240..=243).contains(&world.seconds()), "{}", world.seconds());
    assert!(!is_terminating(&world.find_pod("kept").await), "its grace period of 30 s still fits");
    let kept =
        world.until("kept is terminating", async || world.find_pod("kept").await, is_terminating).await;
    assert!((270..=273).contains(&world.seconds()), "{}", world.seconds());
    let grace = kept.and_then(|pod| pod.metadata.deletion_grace_period_seconds).expect("a grace period");
    assert!((27..=30).contains(&grace), "{grace}");
    world.until_node_gone("n1").await;
    assert!(world.seconds() <= 312, "{}", world.seconds());
    assert!(world.events("Disrupted").await.iter().any(|(name, _)| name == "kept"));
    let events = world.events("TerminationGracePeriodExpiring").await;
    assert!(events.contains(&("n1".into(), format!("All pods will be deleted by {by}"))), "{events:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_with_a_duration_protects_a_pod_for_that_time() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "3m"}}});
    let pod = world.pod("web", "n1", keep).await;
    let started = pod.status.and_then(|status| status.start_time).expect("it started").0;
    world
        .pod("bad", "n1", json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "soon"}}}))
        .await;
    world.delete::<Node>("n1").await;
    world.until("bad is deleted", async || world.find_pod("bad").await, Option::is_none).await;
    assert!(world.seconds() < 10, "an invalid annotation is ignored: {}", world.seconds());
    world.until("web is terminating", async || world.find_pod("web").await, is_terminating).await;
    let lasted = world.clock.now().duration_since(started).as_secs();
    assert!((180..=183).contains(&lasted), "{lasted}");
    world.until_node_gone("n1").await;
    let until = format!(
        "The karpenter.sh/do-not-disrupt grace period will elapse at {}",
        started + SignedDuration::from_mins(3)
    );
    let elapsed = "The karpenter.sh/do-not-disrupt grace period has elapsed, pod is now disruptable";
    let invalid = "Invalid karpenter.sh/do-not-disrupt annotation: failed to parse \"soon\" as a duration: ";
    for (reason, name, words) in [
        ("DoNotDisruptUntil", "web", until.as_str()),
        ("DoNotDisruptGracePeriodElapsed", "web", elapsed),
        ("InvalidDoNotDisruptAnnotation", "bad", invalid),
    ] {
        let events = world.events(reason).await;
        assert!(
            events.iter().any(|(about, message)| about == name && message.starts_with(words)),
            "{events:?}"
        );
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_when_their_durations_elapse_and_one_without_duration_blocks_the_drain() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    let mut started = world.clock.now();
    for (name, value) in [("one", "1m"), ("two", "2m"), ("ever", "true")] {
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
        let pod = world.pod(name, "n1", keep).await;
        started = pod.status.and_then(|status| status.start_time).expect("it started").0;
    }
    world.delete::<Node>("n1").await;
    for (name, minutes) in [("one", 1), ("two", 2)] {
        world.until(&format!("{name} goes"), async || world.find_pod(name).await, is_terminating).await;
        let lasted = world.clock.now().duration_since(started).as_secs();
        assert!((minutes * 60 - 5..=minutes * 60 + 5).contains(&lasted), "{name}: {lasted}");
    }
    world.sleep(3600).await;
    assert!(world.find_pod("one").await.is_none() && world.find_pod("two").await.is_none());
    assert!(!is_terminating(&world.find_pod("ever").await), "protected without a time limit");
    assert!(world.node("n1").await.is_some());
    let patch = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
    let pods = world.api::<Pod>();
    pods.patch("ever", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    let began = world.seconds();
    world.until_node_gone("n1").await;
    assert!(world.seconds() - began <= 30, "{}", world.seconds() - began);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drain_stops_waiting_for_a_stuck_pod_after_a_minute() {
    let world = World::start().await;
    // The kubelet stops, so the pods stay terminating although the instance exists.
    let dies = json!({"metadata": {"annotations": {"fake-kubelet/dies-at": world.time_at(20)}}});
    world.initialized_node("n1", dies).await;
    world.pod("stuck", "n1", json!({"spec": {"terminationGracePeriodSeconds": 5}})).await;
    world.sleep_until_second(25).await;
    world.delete::<Node>("n1").await;
    let pod = world.until("it is terminating", async || world.find_pod("stuck").await, is_terminating).await;
    let ends = pod.and_then(|pod| pod.metadata.deletion_timestamp).expect("a time").0;
    world.until_node_gone("n1").await;
    let late = world.clock.now().duration_since(ends).as_secs();
    assert!((60..=70).contains(&late), "{late}");
    let claim = world.claim("n1").await.expect("the claim is held by its own finalizer");
    assert_eq!(condition_of(&claim, "Drained"), ("True", "Drained".to_owned()));
    world.stop().await;
}
