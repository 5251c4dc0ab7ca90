//! Table tests of the lifecycle's decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::{CloudError, Instance};
use serde_json::{Value, json};

use super::finalize::{self, Finalize};
use super::initialization::{self, Initialization};
use super::launch::{self, LaunchOutcome};
use super::liveness::{self, Liveness};
use super::registration::{self, Registration};
use crate::claims::hooks::DeletionCause;

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// A claim with conditions such as `Launched=True`, all since midnight.
fn claim(conditions: &[&str], patch: Value) -> NodeClaim {
    let conditions: Vec<Value> = conditions
        .iter()
        .filter_map(|text| text.split_once('='))
        .map(|(kind, status)| {
            json!({"type": kind, "status": status, "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
        })
        .collect();
    let mut object = json!({
        "metadata": {"name": "claim", "uid": "claim-uid", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
        "status": {"conditions": conditions},
    });
    merge(&mut object, &patch);
    serde_json::from_value(object).expect("a claim")
}

fn node(patch: Value) -> Arc<Node> {
    let mut object = json!({
        "metadata": {"name": "node"},
        "spec": {"providerID": "kwok://node"},
        "status": {"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut object, &patch);
    Arc::new(serde_json::from_value(object).expect("a node"))
}

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    start + SignedDuration::from_secs(seconds)
}

#[test]
fn provider_errors_delete_the_claim_or_are_retried() {
    let message = || "why".to_owned();
    let retry = |reason: &str, message: &str| LaunchOutcome::Retry {
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let table = [
        (
            CloudError::InsufficientCapacity { message: message() },
            LaunchOutcome::Delete {
                cause: DeletionCause::InsufficientCapacity,
                error: "insufficient capacity: why".to_owned(),
            },
        ),
        (
            CloudError::NodeClassNotReady { message: message() },
            LaunchOutcome::Delete {
                cause: DeletionCause::NodeClassNotReady,
                error: "node class is not ready: why".to_owned(),
            },
        ),
        (CloudError::CreateRefused { reason: "R".to_owned(), message: message() }, retry("R", "why")),
        (CloudError::NotFound { message: message() }, retry("LaunchFailed", "instance not found: why")),
        (CloudError::Throttled { message: message() }, retry("LaunchFailed", "throttled: why")),
        (CloudError::Unauthorized { message: message() }, retry("LaunchFailed", "not authorized: why")),
        (CloudError::Transient { message: message() }, retry("LaunchFailed", "why")),
    ];
    for (error, expected) in table {
        assert_eq!(launch::classify(Err(error.clone())), expected, "{error:?}");
    }
}

#[test]
fn long_messages_are_truncated_between_characters() {
    assert_eq!(launch::truncate(&"a".repeat(1024)), "a".repeat(1024));
    assert_eq!(launch::truncate(&"a".repeat(1025)), format!("{}...", "a".repeat(1021)));
    // The message is cut after 340 characters of three bytes each, because 1021 bytes and three dots fit into the
    // limit.
    assert_eq!(launch::truncate(&"€".repeat(400)), format!("{}...", "€".repeat(340)));
}

#[test]
fn launch_backoff_is_one_second_to_one_minute() {
    let pauses: Vec<u64> = (1..=8).map(|failures| launch::backoff(failures).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(launch::backoff(u32::MAX).as_secs(), 60);
}

#[test]
fn launched_claim_keeps_its_labels_and_takes_the_annotations_of_the_instance() {
    let patch = json!({"metadata": {
        "labels": {"both": "claim", "own": "claim"}, "annotations": {"both": "claim", "own": "claim"}}});
    let mut claim = claim(&["Launched=Unknown"], patch);
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    let instance = Instance {
        provider_id: "kwok://node".to_owned(),
        labels: map(&[("both", "cloud"), ("zone", "cloud")]),
        annotations: map(&[("both", "cloud"), ("zone", "cloud")]),
        ..Instance::default()
    };
    launch::record(&mut claim, instance, at(7));
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels, map(&[("both", "claim"), ("own", "claim"), ("zone", "cloud")]));
    let annotations = claim.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations, map(&[("both", "cloud"), ("own", "claim"), ("zone", "cloud")]));
    assert!(!launch::is_pending(&claim));
}

#[test]
fn decided_conditions_follow_the_generation() {
    let mut claim = claim(&["Launched=True", "Registered=Unknown"], json!({"metadata": {"generation": 2}}));
    launch::follow_generation(&mut claim, "Launched", at(9));
    let conditions = claim.status.map(|status| status.conditions).unwrap_or_default();
    let launched = conditions.iter().find(|condition| condition.type_ == "Launched").expect("the condition");
    assert_eq!(launched.observed_generation, Some(2));
    assert_eq!(
        launched.last_transition_time.as_ref().map(|time| time.0),
        Some(at(0)),
        "its status is the same"
    );
}

fn step(claim: &NodeClaim, node: &Arc<Node>) -> (Value, bool) {
    match registration::decide(claim, std::slice::from_ref(node), &[]) {
        Registration::Register { patch, lacks_taint, .. } => (patch.unwrap_or_default(), lacks_taint),
        other => panic!("{other:?}"),
    }
}

#[test]
fn registration_needs_exactly_one_node() {
    let waiting = claim(&["Launched=True", "Registered=Unknown"], json!({}));
    let one = node(json!({}));
    let terminating = node(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert!(matches!(registration::decide(&waiting, &[], &[]), Registration::NodeMissing));
    assert!(matches!(
        registration::decide(&waiting, std::slice::from_ref(&terminating), &[]),
        Registration::NodeMissing
    ));
    assert!(matches!(
        registration::decide(&waiting, &[one.clone(), one.clone()], &[]),
        Registration::MultipleNodes
    ));
    for status in ["Registered=True", "Registered=False"] {
        let decided = claim(&["Launched=True", status], json!({}));
        assert!(matches!(
            registration::decide(&decided, std::slice::from_ref(&one), &[]),
            Registration::AlreadyDecided
        ));
    }
}

#[test]
fn node_is_registered_with_one_patch() {
    let claim = claim(
        &["Launched=True"],
        json!({
            "metadata": {"labels": {"team": "a", "same": "x"}, "annotations": {"note": "claim"}},
            "spec": {
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}, {"key": "kept", "value": "claim", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "agent", "effect": "NoExecute"}]},
        }),
    );
    let node = node(json!({
        "metadata": {"labels": {"team": "b", "same": "x"}, "annotations": {"note": "node", "other": "node"},
            "finalizers": ["example.com/other"]},
        "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
            {"key": "kept", "value": "node", "effect": "NoSchedule"}]},
    }));
    let expected = json!({
        "metadata": {
            "finalizers": ["example.com/other", "karpenter.sh/termination"],
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "claim",
                "uid": "claim-uid", "blockOwnerDeletion": true}],
            "labels": {"team": "a", "karpenter.sh/registered": "true"},
            "annotations": {"note": "claim"}},
        "spec": {"taints": [
            {"key": "kept", "value": "node", "effect": "NoSchedule"},
            {"key": "dedicated", "effect": "NoSchedule"},
            {"key": "agent", "effect": "NoExecute"}]},
    });
    assert_eq!(step(&claim, &node), (expected, false));
}

#[test]
fn node_with_pending_hooks_keeps_its_unregistered_taint() {
    let claim = claim(
        &["Launched=True"],
        json!({"metadata": {"labels": {"team": "a"}},
            "spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}),
    );
    let unregistered = json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"});
    let node = node(json!({"spec": {"taints": [unregistered]}}));
    let held_by = ["address".to_owned(), "volume".to_owned()];
    let Registration::Held { patch, by, lacks_taint, .. } =
        registration::decide(&claim, std::slice::from_ref(&node), &held_by)
    else {
        panic!("not held");
    };
    assert_eq!((by, lacks_taint), (held_by.to_vec(), false));
    let patch = patch.expect("a patch");
    assert_eq!(patch["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(patch["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
    assert_eq!(patch["spec"]["taints"], json!([unregistered, {"key": "dedicated", "effect": "NoSchedule"}]));
}

#[test]
fn taints_are_not_synced_to_node_with_do_not_sync_taints() {
    let claim = claim(
        &["Launched=True"],
        json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}),
    );
    let node = node(json!({
        "metadata": {"labels": {"karpenter.sh/do-not-sync-taints": "true"}},
        "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
    }));
    let (patch, lacks_taint) = step(&claim, &node);
    assert_eq!((&patch["spec"], lacks_taint), (&json!({"taints": []}), false));
}

#[test]
fn registered_node_is_not_patched_again() {
    let claim = claim(&["Launched=True"], json!({}));
    let before = node(json!({
        "metadata": {"labels": {"karpenter.sh/registered": "true"}, "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "claim", "uid": "claim-uid"}]}}));
    assert_eq!(step(&claim, &before), (Value::Null, false));
    assert!(step(&claim, &node(json!({}))).1, "no label and no taint");
}

#[test]
fn initialization_condition_names_the_first_unmet_requirement() {
    let startup = json!({"spec": {"startupTaints": [{"key": "agent", "effect": "NoSchedule"}],
        "resources": {"requests": {"cpu": "1", "example.com/device": "1", "example.com/none": "0"}}}});
    let registered = claim(&["Registered=True"], startup.clone());
    let table = [
        (
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
            "NodeNotReady",
            "Node status is NotReady",
        ),
        (
            json!({"spec": {"taints": [{"key": "agent", "value": "x", "effect": "NoSchedule"}]}}),
            "StartupTaintsExist",
            "StartupTaint \"agent=x:NoSchedule\" still exists",
        ),
        (
            json!({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}}),
            "KnownEphemeralTaintsExist",
            "KnownEphemeralTaint \"node.kubernetes.io/not-ready:NoExecute\" still exists",
        ),
        (
            json!({}),
            "ResourceNotRegistered",
            "Resource \"example.com/device\" was requested but not registered",
        ),
        (
            json!({"status": {"allocatable": {"example.com/device": "0"}}}),
            "ResourceNotRegistered",
            "Resource \"example.com/device\" was requested but not registered",
        ),
    ];
    for (patch, reason, message) in table {
        match initialization::decide(&registered, &[node(patch.clone())]) {
            Initialization::NotYet { reason: given, message: said, .. } => {
                assert_eq!((given, said.as_str()), (reason, message))
            }
            other => panic!("{patch}: {other:?}"),
        }
    }
    let ready = node(json!({"status": {"allocatable": {"example.com/device": "1"}},
        "spec": {"taints": [{"key": "agent", "effect": "NoExecute"}]}}));
    let done = initialization::decide(&registered, std::slice::from_ref(&ready));
    let label = json!({"metadata": {"labels": {"karpenter.sh/initialized": "true"}}});
    assert!(matches!(&done, Initialization::Done { patch: Some(patch), .. } if *patch == label), "{done:?}");
    let gone = initialization::decide(&registered, &[]);
    assert!(matches!(gone, Initialization::NotYet { reason: "NodeNotFound", .. }), "{gone:?}");
    for (conditions, is_settled) in [
        (&["Registered=Unknown"][..], false),
        (&["Registered=True", "Rebooting=True"], false),
        (&["Registered=True", "Initialized=True"], true),
    ] {
        let early = initialization::decide(&claim(conditions, json!({})), std::slice::from_ref(&ready));
        let expected = if is_settled {
            matches!(early, Initialization::AlreadyDecided)
        } else {
            matches!(early, Initialization::NotApplicable)
        };
        assert!(expected, "{conditions:?}: {early:?}");
    }
}

#[test]
fn node_is_schedulable_soon_when_not_ready_is_its_only_ephemeral_taint() {
    let registered = claim(&["Registered=True"], json!({}));
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let not_ready = "node.kubernetes.io/not-ready";
    let table = [
        (vec![taint(not_ready)], true),
        (vec![taint(not_ready), taint("dedicated")], true),
        (vec![taint(not_ready), taint("node.cloudprovider.kubernetes.io/uninitialized")], false),
        (vec![taint("readiness.k8s.io/network")], false),
    ];
    for (taints, expected) in table {
        let decided = initialization::decide(&registered, &[node(json!({"spec": {"taints": taints}}))]);
        let Initialization::NotYet { opens, .. } = &decided else { panic!("{decided:?}") };
        assert_eq!(opens.is_some(), expected, "{taints:?}");
    }
    let booting = node(json!({"spec": {"taints": [taint(not_ready)]}, "status": {"conditions": []}}));
    let decided = initialization::decide(&registered, &[booting]);
    assert!(matches!(decided, Initialization::NotYet { opens: None, .. }), "{decided:?}");
}

#[test]
fn launch_times_out_after_5_minutes_and_registration_after_15() {
    let wait = |seconds| Liveness::CheckAfter(Duration::from_secs(seconds));
    let table = [
        (&["Launched=Unknown"][..], 299, wait(1)),
        (&["Launched=Unknown"], 300, Liveness::TimedOut(DeletionCause::LaunchTimeout)),
        (&["Launched=False"], 301, Liveness::TimedOut(DeletionCause::LaunchTimeout)),
        (&["Launched=True", "Registered=Unknown"], 300, wait(600)),
        (
            &["Launched=True", "Registered=Unknown"],
            900,
            Liveness::TimedOut(DeletionCause::RegistrationTimeout),
        ),
        (&["Launched=True", "Registered=False"], 900, Liveness::TimedOut(DeletionCause::RegistrationTimeout)),
        (&["Launched=True", "Registered=True"], 86_400, Liveness::Alive),
        // Without conditions, the timeout counts from the creation of the claim.
        (&[], 299, wait(1)),
    ];
    for (conditions, seconds, expected) in table {
        assert_eq!(
            liveness::decide(&claim(conditions, json!({})), at(seconds)),
            expected,
            "{conditions:?} {seconds}"
        );
    }
}

#[test]
fn termination_of_a_claim_proceeds_in_order() {
    let terminating = |conditions: &[&str], patch: Value| {
        let mut object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"]}});
        merge(&mut object, &patch);
        claim(conditions, object)
    };
    let with_id = json!({"status": {"providerID": "kwok://node"}});
    let alive = node(json!({}));
    let deleting_node = node(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let decide = |claim: NodeClaim, nodes: &[&Arc<Node>], unstored: Option<&str>| {
        let nodes: Vec<Arc<Node>> = nodes.iter().map(|node| (*node).clone()).collect();
        match finalize::decide(&claim, &nodes, unstored) {
            Finalize::Nothing => "nothing".to_owned(),
            Finalize::SetDeadline { deadline } => format!("deadline {deadline}"),
            Finalize::DeleteNodes(nodes) => format!("delete {}", nodes.len()),
            Finalize::AwaitNodes => "await".to_owned(),
            Finalize::TerminateInstance { provider_id } => format!("end {provider_id}"),
            Finalize::Release => "release".to_owned(),
        }
    };
    let grace = json!({"spec": {"terminationGracePeriod": "90s"}, "status": {"providerID": "kwok://node"}});
    let mut annotated = grace.clone();
    merge(
        &mut annotated,
        &json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "x"}}}),
    );
    let table = [
        (
            decide(terminating(&[], json!({"metadata": {"finalizers": ["example.com/other"]}})), &[], None),
            "nothing",
        ),
        (decide(terminating(&["Registered=True"], grace), &[&alive], None), "deadline 2026-01-01T00:01:30Z"),
        (decide(terminating(&["Registered=True"], annotated), &[&alive], None), "delete 1"),
        (
            decide(terminating(&["Registered=True"], with_id.clone()), &[&alive, &deleting_node], None),
            "delete 1",
        ),
        (decide(terminating(&["Registered=True"], with_id.clone()), &[&deleting_node], None), "await"),
        (decide(terminating(&["Registered=True"], with_id.clone()), &[], None), "end kwok://node"),
        // The Node of an unregistered claim is not deleted here, because it is removed with its instance.
        (decide(terminating(&["Registered=Unknown"], with_id), &[&alive], None), "end kwok://node"),
        (decide(terminating(&["Launched=Unknown"], json!({})), &[], None), "release"),
        (
            decide(terminating(&["Launched=Unknown"], json!({})), &[], Some("kwok://other")),
            "end kwok://other",
        ),
    ];
    for (step, expected) in table {
        assert_eq!(step, expected);
    }
}

#[test]
fn claim_gets_its_finalizer_before_the_launch() {
    let patch = finalize::protection(&claim(&[], json!({"metadata": {"finalizers": ["example.com/other"]}})));
    let expected = json!({"metadata": {
        "finalizers": ["example.com/other", "karpenter.sh/termination"],
        "labels": {"karpenter.kwok.sh/kwoknodeclass": "default"}}});
    assert_eq!(patch, Some(expected));
    let finalizers = json!({"metadata": {"finalizers": ["karpenter.sh/termination"]}});
    assert_eq!(finalize::protection(&claim(&[], finalizers)), None);
}
