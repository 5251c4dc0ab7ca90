//! Tests of NodeClaims that the controllers or a user delete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{ConditionStatus, KWOKNodeClass, NodeClaim};
use karpenter_cloud::{CloudError, CloudProvider};
use karpenter_controllers::claims::hooks::{DeletionCause, Hooks, LifecycleOutcome};
use karpenter_kwok::{OfferingPattern, Registration};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tracing::Level;

use crate::captured_log::CapturedLog;
use crate::lifecycle::world::{World, condition_of};

fn provider_id(claim: &NodeClaim) -> String {
    claim.status.as_ref().and_then(|status| status.provider_id.clone()).expect("a provider id")
}

#[tokio::test(start_paused = true)]
async fn insufficient_capacity_deletes_the_claim_with_an_event() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.cloud.change_faults(|faults| faults.without_capacity.push(OfferingPattern::any()));
    world.claim("unlucky", json!({})).await;
    world.until_gone("unlucky").await;
    assert!(world.seconds() < 5, "deleted at once");
    let events = world.events("InsufficientCapacityError").await;
    let [(about, message)] = &events[..] else { panic!("one event, not {events:?}") };
    assert_eq!(about, "unlucky");
    assert!(message.starts_with("NodeClaim unlucky event: "), "{message}");
    assert!(
        world.outcomes("unlucky").contains(&LifecycleOutcome::Deleted(DeletionCause::InsufficientCapacity))
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn missing_or_unready_node_class_deletes_the_claim() {
    let world = World::start().await;
    world.claim("classless", json!({})).await;
    world.until_gone("classless").await;
    assert!(
        world.outcomes("classless").contains(&LifecycleOutcome::Deleted(DeletionCause::InsufficientCapacity))
    );

    world.node_class(json!({})).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test",
        "message": "not ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let classes = world.all::<KWOKNodeClass>();
    classes.patch_status("default", &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    world.claim("early", json!({})).await;
    world.until_gone("early").await;
    assert!(world.outcomes("early").contains(&LifecycleOutcome::Deleted(DeletionCause::NodeClassNotReady)));
    assert_eq!(world.events("NodeClassNotReady").await, []);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_launch_is_retried_and_its_reason_is_in_the_condition() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let refused =
        CloudError::CreateRefused { reason: "NoSubnets".to_owned(), message: "no subnets".to_owned() };
    let broken = CloudError::Transient { message: "x".repeat(3000) };
    world.cloud.change_faults(|faults| faults.create_errors = VecDeque::from([refused, broken]));
    world.claim("retried", json!({})).await;
    let look = async || world.find("retried").await.expect("the claim");
    let claim = world
        .until("the reason of the provider", look, |claim| condition_of(claim, "Launched").1 == "NoSubnets")
        .await;
    assert_eq!(condition_of(&claim, "Launched").2, "no subnets");
    let claim = world
        .until("the general reason", look, |claim| condition_of(claim, "Launched").1 == "LaunchFailed")
        .await;
    let (status, _, message) = condition_of(&claim, "Launched");
    assert_eq!((status.as_str(), message.len(), &message[1021..]), ("Unknown", 1024, "..."));
    assert_eq!(world.seconds(), 1, "one second after the first attempt");
    world.until_condition("retried", "Launched", ConditionStatus::True).await;
    assert_eq!(world.seconds(), 3, "two seconds after the second attempt");
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_cannot_launch_is_deleted_after_five_minutes() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let broken = CloudError::Unauthorized { message: "no".to_owned() };
    world.cloud.change_faults(|faults| faults.create_errors = std::iter::repeat_n(broken, 1000).collect());
    world.claim("hopeless", json!({})).await;
    world.sleep_until_second(299).await;
    assert!(world.find("hopeless").await.is_some());
    world.until_gone("hopeless").await;
    assert!((300..303).contains(&world.seconds()), "at {}", world.seconds());
    assert!(world.outcomes("hopeless").contains(&LifecycleOutcome::Deleted(DeletionCause::LaunchTimeout)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_does_not_register_is_deleted_after_fifteen_minutes() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.cloud.change_faults(|faults| faults.registration = Registration::Never);
    world.claim("silent", json!({})).await;
    world.sleep_until_second(899).await;
    assert!(world.find("silent").await.is_some());
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(1));
    world.until_gone("silent").await;
    assert!((900..903).contains(&world.seconds()), "at {}", world.seconds());
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(0));
    assert!(
        world.outcomes("silent").contains(&LifecycleOutcome::Deleted(DeletionCause::RegistrationTimeout))
    );
    let events = world.events("NodeClaimRegistrationTimeout").await;
    let [(object, message)] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!(object, "silent");
    assert!(message.contains(" did not register a node within 15 minutes and is deleted; "), "{message}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_registration_within_the_timeout_succeeds() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let slower = Registration::Slower(Duration::from_secs(14 * 60));
    world.cloud.change_faults(|faults| faults.registration = slower);
    world.claim("slow", json!({})).await;
    world.until_condition("slow", "Initialized", ConditionStatus::True).await;
    assert!((840..843).contains(&world.seconds()), "at {}", world.seconds());
    world.sleep_until_second(3600).await;
    assert!(world.find("slow").await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn registration_timeout_does_not_apply_while_the_registration_gate_is_closed() {
    let began = tokio::time::Instant::now();
    let hold_registration = move |_: &NodeClaim, _: &Node| {
        (began.elapsed() < Duration::from_secs(910)).then_some(Duration::from_secs(1))
    };
    let hooks = Hooks { hold_registration: Arc::new(hold_registration), ..Hooks::default() };
    let world = World::with(hooks, |server| Client::new(server, "default")).await;
    world.node_class(json!({})).await;
    let slower = Registration::Slower(Duration::from_secs(890));
    world.cloud.change_faults(|faults| faults.registration = slower);
    world.claim("late", json!({})).await;
    world.until_condition("late", "Initialized", ConditionStatus::True).await;
    assert!((909..915).contains(&world.seconds()), "at {}", world.seconds());
    let is_deleted = |outcome: &LifecycleOutcome| matches!(outcome, LifecycleOutcome::Deleted(_));
    assert!(!world.outcomes("late").iter().any(is_deleted));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_expire_on_time() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("short", json!({"expireAfter": "1h"})).await;
    world.claim("long", json!({"expireAfter": "Never"})).await;
    world.sleep_until_second(3599).await;
    assert!(world.find("short").await.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()));
    world.until_gone("short").await;
    assert!((3600..3603).contains(&world.seconds()), "at {}", world.seconds());
    assert!(world.outcomes("short").contains(&LifecycleOutcome::Deleted(DeletionCause::Expired)));
    assert!(world.find("long").await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claim_whose_instance_disappeared_is_garbage_collected_once_its_node_is_not_ready() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("robbed", json!({})).await;
    world.claim("kept", json!({})).await;
    let claim = world.until_condition("robbed", "Initialized", ConditionStatus::True).await;
    world.until_condition("kept", "Initialized", ConditionStatus::True).await;
    // The provider does not list the instance, but its kubelet still reports, so the claim is kept.
    let id = provider_id(&claim);
    world.cloud.change_faults(|faults| faults.terminated_externally.insert(id.clone()));
    world.sleep_until_second(600).await;
    assert!(world.find("robbed").await.is_some());
    world.cloud.terminate_externally(&id).await.expect("gone");
    world.until_gone("robbed").await;
    let waited = world.seconds() - 600;
    // The node becomes not ready after 40 to 50 seconds, and garbage collection runs every two minutes.
    assert!((40..180).contains(&waited), "after {waited} seconds");
    assert!(world.outcomes("robbed").contains(&LifecycleOutcome::Deleted(DeletionCause::GarbageCollected)));
    assert!(world.find("kept").await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instance_without_claim_is_garbage_collected() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let node = json!({"metadata": {"name": "stray", "labels": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": "kwok://stray"}});
    world.create::<Node>(node).await;
    let other = json!({"metadata": {"name": "foreign"}, "spec": {"providerID": "aws://foreign"}});
    world.create::<Node>(other).await;
    world.sleep_until_second(110).await;
    let find = async |name: &str| world.all::<Node>().get_opt(name).await.expect("an answer");
    assert!(find("stray").await.is_some(), "not at the first pass");
    world.until("the leaked instance is removed", async || find("stray").await, Option::is_none).await;
    assert!(world.seconds() < 250, "at {}", world.seconds());
    assert!(find("foreign").await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_node_deletes_its_claim() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("one", json!({})).await;
    let claim = world.until_condition("one", "Initialized", ConditionStatus::True).await;
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).expect("a node");
    world.delete::<Node>(&node).await;
    world.until_gone("one").await;
    assert!(world.node_of(&claim).await.is_none());
    // A user removed the finalizer of the Node. Garbage collection must nevertheless find that the instance is missing.
    world.claim("two", json!({})).await;
    let claim = world.until_condition("two", "Initialized", ConditionStatus::True).await;
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).expect("a node");
    world.merge::<Node>(&node, json!({"metadata": {"finalizers": null}})).await;
    world.delete::<Node>(&node).await;
    world.until_gone("two").await;
    assert!(world.outcomes("two").contains(&LifecycleOutcome::Deleted(DeletionCause::GarbageCollected)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claim_deleted_before_registration_leaves_no_instance() {
    let world = World::start().await;
    world.node_class(json!({"nodeRegistrationDelay": "1m"})).await;
    world.claim("brief", json!({})).await;
    world.until_condition("brief", "Launched", ConditionStatus::True).await;
    world.delete::<NodeClaim>("brief").await;
    world.until_gone("brief").await;
    assert!(world.seconds() < 10);
    world.sleep_until_second(600).await;
    let nodes = world.all::<Node>().list(&kube::api::ListParams::default()).await.expect("nodes");
    assert_eq!(nodes.items, []);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn termination_deadline_is_written_once_and_termination_is_retried() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("bounded", json!({"terminationGracePeriod": "5m"})).await;
    let claim = world.until_condition("bounded", "Initialized", ConditionStatus::True).await;
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).expect("a node");
    // A finalizer keeps the node, so that the terminating claim can be observed.
    let held = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/hold"]}});
    world.merge::<Node>(&node, held).await;
    world.sleep_until_second(60).await;
    let busy = CloudError::Transient { message: "busy".to_owned() };
    world.cloud.change_faults(|faults| faults.delete_errors = VecDeque::from([busy.clone(), busy]));
    world.delete::<NodeClaim>("bounded").await;
    const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    let deadline = |claim: &NodeClaim| {
        claim.metadata.annotations.as_ref().and_then(|found| found.get(DEADLINE).cloned())
    };
    let claim = world
        .until(
            "the deadline is written",
            async || world.find("bounded").await.expect("the claim"),
            |claim| deadline(claim).is_some(),
        )
        .await;
    assert_eq!(deadline(&claim).as_deref(), Some("2026-01-01T12:06:00Z"));
    assert_eq!(
        world.events("TerminationGracePeriodExpiring").await,
        [("bounded".to_owned(), "All pods will be deleted by 2026-01-01T12:06:00Z".to_owned())]
    );
    world.sleep_until_second(120).await;
    assert!(world.find("bounded").await.is_some(), "the node still exists");
    world.merge::<Node>(&node, json!({"metadata": {"finalizers": null}})).await;
    world.until_gone("bounded").await;
    assert_eq!(world.seconds(), 130, "two failures, five seconds each");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn last_pod_event_time_is_recorded() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("busy", json!({})).await;
    world.until_condition("busy", "Initialized", ConditionStatus::True).await;
    let last = async || {
        let claim = world.find("busy").await.expect("the claim");
        claim.status.and_then(|status| status.last_pod_event_time).map(|time| time.0.to_string())
    };
    assert_eq!(last().await, None);
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let pod = |name: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}]}}))
        .expect("a pod")
    };
    world.sleep_until_second(100).await;
    pods.create(&PostParams::default(), &pod("first")).await.expect("created");
    world.until("the pod event is recorded", last, Option::is_some).await;
    assert_eq!(last().await.as_deref(), Some("2026-01-01T12:01:40Z"));
    world.sleep_until_second(105).await;
    pods.create(&PostParams::default(), &pod("second")).await.expect("created");
    world.sleep_until_second(109).await;
    assert_eq!(last().await.as_deref(), Some("2026-01-01T12:01:40Z"), "too soon after the other event");
    world.sleep_until_second(200).await;
    pods.delete("first", &Default::default()).await.expect("deleted");
    let is_later = |last: &Option<String>| last.as_deref() == Some("2026-01-01T12:03:20Z");
    world.until("the deletion is recorded", last, is_later).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_smaller_than_its_instance_type_is_reported() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("small", json!({})).await;
    let claim = world.until_condition("small", "ConsistentStateFound", ConditionStatus::True).await;
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).expect("a node");
    let status = Patch::Merge(json!({"status": {"capacity": {"cpu": "1"}}}));
    world.all::<Node>().patch_status(&node, &PatchParams::default(), &status).await.expect("patched");
    let claim = world.until_condition("small", "ConsistentStateFound", ConditionStatus::False).await;
    assert!((600..605).contains(&world.seconds()), "at {}", world.seconds());
    let (_, reason, message) = condition_of(&claim, "ConsistentStateFound");
    assert_eq!((reason.as_str(), message.as_str()), ("ConsistencyCheckFailed", "Consistency Check Failed"));
    assert_eq!(
        world.events("FailedConsistencyCheck").await,
        [("small".to_owned(), "expected 2 of resource cpu, but found 1 (50.0% of expected)".to_owned())]
    );
    // The condition `Ready` of the claim remains true.
    assert_eq!(condition_of(&claim, "Ready").0, "True");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_provider_errors_are_logged_at_intervals() {
    let captured = CapturedLog::start();
    let world = World::start().await;
    world.node_class(json!({})).await;
    world.claim("stuck", json!({})).await;
    world.until_condition("stuck", "Initialized", ConditionStatus::True).await;
    let busy = CloudError::Transient { message: "busy".to_owned() };
    world.cloud.change_faults(|faults| faults.delete_errors = vec![busy.clone(); 3].into());
    world.delete::<NodeClaim>("stuck").await;
    world.until_gone("stuck").await;
    let ending = captured.lines(Level::ERROR, "failed terminating instance");
    assert_eq!(ending.len(), 1, "{ending:?}");
    assert!(ending[0].contains("busy"), "{ending:?}");

    world.cloud.change_faults(|faults| faults.list_errors = vec![busy.clone(); 3].into());
    world.sleep_until_second(world.seconds() + 240).await;
    let listing = captured.lines(Level::ERROR, "failed listing instances");
    assert_eq!(listing.len(), 1, "{listing:?}");

    // An instance without a NodeClaim whose termination takes time.
    let node = json!({"metadata": {"name": "stray", "labels": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": "kwok://stray"}});
    world.create::<Node>(node).await;
    world.cloud.change_faults(|faults| faults.delete_errors = vec![busy].into());
    let find = async || world.all::<Node>().get_opt("stray").await.expect("an answer");
    world.until("the instance is removed", find, Option::is_none).await;
    let leaked = "failed terminating instance without nodeclaim";
    assert_eq!(captured.lines(Level::ERROR, leaked).len(), 1);
    world.stop().await;
}
