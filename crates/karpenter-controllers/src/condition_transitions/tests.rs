use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::store::Change;
use serde_json::{Value, json};

use super::*;
use crate::status_events::object_events;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn seen(kind: &'static str, status: &'static str, second: i64) -> ConditionView<'static> {
    ConditionView { kind, status, reason: "Because", message: "", since: Some(at(second)) }
}

#[test]
fn transition_is_a_change_of_status_and_missing_counts_as_unknown() {
    type Found<'a> = Vec<Option<(&'a str, f64)>>;
    let cases: [(&str, Vec<ConditionView>, Vec<ConditionView>, Found); 5] = [
        ("appears as Unknown", vec![], vec![seen("Ready", "Unknown", 1)], vec![]),
        ("appears as True", vec![], vec![seen("Ready", "True", 1)], vec![None]),
        ("stays", vec![seen("Ready", "True", 1)], vec![seen("Ready", "True", 1)], vec![]),
        (
            "changes",
            vec![seen("Ready", "False", 1), seen("Launched", "True", 0)],
            vec![seen("Ready", "True", 8), seen("Launched", "True", 0)],
            vec![Some(("False", 7.0))],
        ),
        ("goes", vec![seen("Ready", "True", 1)], vec![], vec![]),
    ];
    for (case, before, after, expected) in cases {
        let found: Vec<_> = transitions(&before, &after)
            .iter()
            .map(|one| Some((one.before?.status, one.seconds()?)))
            .collect();
        assert_eq!(found, expected, "{case}");
    }
}

fn claim(finalizers: Value, conditions: Value) -> Arc<NodeClaim> {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let claim = json!({
        "metadata": {"name": "one", "creationTimestamp": at(0).to_string(), "finalizers": finalizers},
        "spec": {"requirements": [], "nodeClassRef": class},
        "status": {"conditions": conditions},
    });
    Arc::new(serde_json::from_value(claim).expect("a claim"))
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": at(3).to_string()})
}

#[test]
fn unset_conditions_are_unknown_since_creation() {
    let (bare, launched) = (
        claim(json!([]), json!([])),
        claim(json!([]), json!([condition("Launched", "True", "Launched", "")])),
    );
    let (before, after) = (bare.condition_views(), launched.condition_views());
    let found = transitions(&before, &after);
    let found: Vec<_> = found.iter().map(|one| (one.now.kind, one.seconds())).collect();
    assert_eq!(found, [("Launched", Some(3.0))]);
}

#[test]
fn transitions_are_published_with_upstreams_messages() {
    let published = |change: &Change<NodeClaim>| -> Vec<(String, String)> {
        object_events(change).into_iter().map(|event| (event.reason.into_owned(), event.message)).collect()
    };
    let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(reason, words)| ((*reason).to_owned(), (*words).to_owned())).collect()
    };
    let new = claim(json!(["karpenter.sh/termination"]), json!([]));
    assert_eq!(published(&Change::Applied { old: None, new: new.clone() }), [], "seen for the first time");
    let launched = claim(
        json!(["karpenter.sh/termination"]),
        json!([
            condition("Launched", "True", "Launched", ""),
            condition("Registered", "Unknown", "NodeNotFound", "Node not registered with cluster"),
            condition("Consolidatable", "True", "Consolidatable", ""),
        ]),
    );
    let expected = own(&[(
        "Launched",
        "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched",
    )]);
    let change = Change::Applied { old: Some(new), new: launched.clone() };
    assert_eq!(published(&change), expected, "a new optional condition has no event");
    let several = "Invariant violated, matched multiple nodes";
    let failed = claim(
        json!([]),
        json!([
            condition("Launched", "True", "Launched", ""),
            condition("Registered", "False", "MultipleNodesFound", several),
            condition("Consolidatable", "False", "Other", ""),
        ]),
    );
    let expected = own(&[
        ("Finalized", "Finalized karpenter.sh/termination"),
        (
            "Registered",
            "Status condition transitioned, Type: Registered, Status: Unknown -> False, Reason: \
             MultipleNodesFound, Message: Invariant violated, matched multiple nodes",
        ),
        (
            "Consolidatable",
            "Status condition transitioned, Type: Consolidatable, Status: True -> False, Reason: Other",
        ),
    ]);
    let change = Change::Applied { old: Some(launched.clone()), new: failed.clone() };
    assert_eq!(published(&change), expected);
    let warnings = object_events(&change).into_iter().filter(|event| event.is_warning);
    let warnings: Vec<_> = warnings.map(|event| event.reason.into_owned()).collect();
    assert_eq!(warnings, ["Registered"], "Consolidatable is false in normal operation");
    let expected = own(&[("Finalized", "Finalized karpenter.sh/termination")]);
    assert_eq!(published(&Change::Deleted { old: launched }), expected, "deleted with its finalizer");
    assert_eq!(published(&Change::Deleted { old: failed }), [], "deleted after its finalizer");
}

#[test]
fn new_conditions_of_nodes_have_no_event_and_transitions_have() {
    let node = |conditions: Value| -> Arc<Node> {
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(node).expect("a node"))
    };
    let bare = node(json!([]));
    let not_ready = node(json!([condition("Ready", "False", "KubeletNotReady", "")]));
    let ready = node(json!([condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")]));
    assert_eq!(object_events(&Change::Applied { old: Some(bare), new: not_ready.clone() }), []);
    let published = object_events(&Change::Applied { old: Some(not_ready), new: ready });
    let messages: Vec<&str> = published.iter().map(|event| event.message.as_str()).collect();
    let expected = "Status condition transitioned, Type: Ready, Status: False -> True, Reason: KubeletReady, \
        Message: kubelet is posting ready status";
    assert_eq!(messages, [expected]);
}
