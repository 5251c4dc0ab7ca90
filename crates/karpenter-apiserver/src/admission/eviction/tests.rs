use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide_eviction;
use crate::admission::EvictionDecision;
use crate::admission::fixture::Objects;
use crate::status::{ApiResult, Failure};

fn pod(phase: &str, ready: bool) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "a"}, "uid": "u", "resourceVersion": "7"},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}}]},
    })
}

fn budget(name: &str, spec: Value, status: Value) -> Value {
    let mut budget = json!({"metadata": {"name": name, "namespace": "n", "generation": 1}, "spec": spec, "status": status});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
    budget["status"]["observedGeneration"] = json!(1);
    budget
}

fn evict(pod: &Value, budgets: &[Value], eviction: Value) -> ApiResult<EvictionDecision> {
    let mut objects = Objects::default();
    for budget in budgets {
        objects.add("policy", "poddisruptionbudgets", budget.clone());
    }
    let mut named = json!({"metadata": {"name": "p"}});
    named["deleteOptions"] = eviction;
    decide_eviction(pod, &named, false, &objects, Timestamp::UNIX_EPOCH)
}

fn failure(answer: ApiResult<EvictionDecision>) -> Failure {
    *answer.expect_err("refused")
}

#[test]
fn pod_without_budget_is_evicted() {
    let decision = evict(&pod("Running", true), &[], Value::Null).expect("accepted");
    assert_eq!(decision.budget, None);
    assert_eq!(decision.delete_options, json!({}));
    let marked = decision.pod.expect("marked");
    assert_eq!(marked["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
}

#[test]
fn eviction_charges_budget() {
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2});
    let decision =
        evict(&pod("Running", true), &[budget("b", json!({}), status)], Value::Null).expect("accepted");
    let charged = decision.budget.expect("charged");
    assert_eq!(charged["status"]["disruptionsAllowed"], 0);
    assert_eq!(charged["status"]["disruptedPods"], json!({"p": "1970-01-01T00:00:00Z"}));
    assert_eq!(charged["status"]["conditions"][0]["reason"], "InsufficientPods");
}

#[test]
fn exhausted_budget_rejects_eviction() {
    let status = json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2});
    let refused = failure(evict(&pod("Running", true), &[budget("b", json!({}), status)], Value::Null));
    assert_eq!(
        refused.to_status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
            "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": [{"reason": "DisruptionBudget",
                "message": "The disruption budget b needs 2 healthy pods and has 2 currently"}]},
        })
    );
}

#[test]
fn unobserved_budget_rejects_eviction() {
    let mut unseen = budget("b", json!({}), json!({"disruptionsAllowed": 1}));
    unseen["metadata"]["generation"] = json!(2);
    let refused = failure(evict(&pod("Running", true), &[unseen], Value::Null));
    assert_eq!((refused.code, refused.retry_after_seconds), (429, Some(10)));
}

#[test]
fn pending_terminal_and_unready_pods_are_evicted_without_charge() {
    let none = json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2});
    let unmet = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2});
    let always = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    let table = [
        ("Succeeded", true, json!({}), none.clone(), true),
        ("Failed", false, json!({}), none.clone(), true),
        ("Pending", false, json!({}), none.clone(), true),
        ("Running", false, json!({}), none.clone(), true),
        ("Running", false, json!({}), unmet.clone(), false),
        ("Running", false, always.clone(), unmet, true),
        ("Running", true, always, none, false),
    ];
    for (phase, ready, spec, status, expected) in table {
        let answer = evict(&pod(phase, ready), &[budget("b", spec, status)], Value::Null);
        assert_eq!(answer.is_ok(), expected, "{phase} {ready}");
        if let Ok(decision) = answer {
            assert_eq!(decision.budget, None, "not charged");
        }
    }
}

#[test]
fn pod_with_two_budgets_is_rejected() {
    let status = json!({"disruptionsAllowed": 1});
    let two = [budget("a", json!({}), status.clone()), budget("b", json!({}), status)];
    assert_eq!(failure(evict(&pod("Running", true), &two, Value::Null)).code, 500);
}

#[test]
fn preconditions_and_dry_run() {
    let refused = failure(evict(&pod("Running", true), &[], json!({"preconditions": {"uid": "other"}})));
    assert_eq!(refused.code, 409);
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2});
    let dry = evict(&pod("Running", true), &[budget("b", json!({}), status)], json!({"dryRun": ["All"]}))
        .expect("accepted");
    assert_eq!((dry.budget, dry.pod), (None, None));
}
