use karpenter_disruption::cluster::Reason;
use serde_json::{Value, json};

use super::*;
use crate::annotations::{ANNOTATION_REPLACES, created_for, method_name, policy_name};

fn claim(name: &str, patch: Value) -> Arc<NodeClaim> {
    let mut metadata = json!({"name": name, "uid": format!("uid-{name}"),
        "creationTimestamp": "2026-01-01T12:00:00Z"});
    for (key, value) in patch.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": {}})).expect("a claim"))
}

fn replacement(name: &str, command: &str, launches: usize, old: &[&str]) -> Arc<NodeClaim> {
    let annotation_value = ReplacementAnnotation {
        command: command.to_owned(),
        method: method_name(Method::Drift),
        launches,
        claims: old.iter().map(|name| ((*name).to_owned(), format!("uid-{name}"))).collect(),
        termination_grace_period_secs: Some(30),
        policies: [("general".to_owned(), policy_name(ConsolidationPolicy::Balanced))].into(),
        condition: Some("Ready/KubeletDown".to_owned()),
    };
    claim(name, json!({"annotations": {ANNOTATION_REPLACES: annotation_value.text()}}))
}

fn names(ids: &[ClaimId]) -> Vec<&str> {
    ids.iter().map(|id| id.name.as_str()).collect()
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[test]
fn complete_command_is_resumed() {
    let claims = [
        claim("a", json!({})),
        claim("b", json!({})),
        replacement("x", "1-1", 2, &["a", "b", "gone"]),
        replacement("y", "1-1", 2, &["a", "b", "gone"]),
        claim("other", json!({})),
    ];
    let resumable_command = resumable(&claims, |_| true, NOW);
    assert_eq!(resumable_command.len(), 1);
    let command = &resumable_command[0];
    assert_eq!((command.id.as_str(), command.method), ("1-1", Method::Drift));
    assert_eq!(names(&command.candidates), ["a", "b"]);
    assert_eq!(names(&command.replacements), ["x", "y"]);
    assert_eq!(command.since.to_string(), "2026-01-01T12:00:00Z");
    assert_eq!(command.termination_grace_period_secs, Some(30));
    assert_eq!(command.policies, [("general".to_owned(), ConsolidationPolicy::Balanced)].into());
    assert_eq!(command.condition.as_deref(), Some("Ready/KubeletDown"));
    assert_eq!(created_for(&claims[2]), Some(Reason::Drifted));
    assert_eq!(created_for(&claims[0]), None);
}

#[test]
fn incomplete_command_is_not_resumed() {
    let old = || claim("a", json!({}));
    let new = || replacement("x", "1-1", 1, &["a"]);
    let ending = json!({"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["f"]});
    let cases: [(&str, Vec<Arc<NodeClaim>>, bool); 6] = [
        ("the candidate does not exist", vec![new()], true),
        ("the candidate is being deleted", vec![claim("a", ending), new()], true),
        ("a namesake of the old claim", vec![claim("a", json!({"uid": "other"})), new()], true),
        ("the marks are off", vec![old(), new()], false),
        ("a replacement is missing", vec![old(), replacement("x", "1-1", 2, &["a"])], true),
        (
            "the words cannot be read",
            vec![old(), claim("x", json!({"annotations": {ANNOTATION_REPLACES: "a"}}))],
            true,
        ),
    ];
    for (case, claims, is_marked) in cases {
        assert_eq!(resumable(&claims, |_| is_marked, NOW), [], "{case}");
    }
    assert_eq!(resumable(&[old(), new()], |_| true, NOW).len(), 1);
}

#[test]
fn resumed_command_has_minimum_timeout() {
    let claims = [claim("a", json!({})), replacement("x", "1-1", 1, &["a"])];
    for (now, since) in [
        ("2026-01-01T12:01:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:05:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:08:00Z", "2026-01-01T12:03:00Z"),
        ("2026-01-01T14:00:00Z", "2026-01-01T13:55:00Z"),
    ] {
        let resumable_command = resumable(&claims, |_| true, now.parse().expect("a time"));
        assert_eq!(resumable_command[0].since.to_string(), since, "taken up at {now}");
    }
}

#[test]
fn annotation_of_earlier_version_is_read() {
    let text = r#"{"command":"1-1","method":"Drift","launches":1,"claims":{"a":"uid-a"}}"#;
    let claims = [claim("a", json!({})), claim("x", json!({"annotations": {ANNOTATION_REPLACES: text}}))];
    let resumable_command = resumable(&claims, |_| true, NOW);
    assert_eq!((resumable_command.len(), names(&resumable_command[0].candidates)), (1, vec!["a"]));
    assert_eq!((resumable_command[0].policies.len(), &resumable_command[0].condition), (0, &None));
}
