use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{ConditionStatus, NodeClaim, NodePool, NodePoolStatus};
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::conditions::readiness::NodeClassState;
use super::counter::{CountedNode, count};
use super::hash::{claim_patch, pool_patch};
use super::*;
use crate::registration_health::{Health, Outcomes, apply_outcome, is_outdated};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of the kind")
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

fn pool(patch: Value) -> NodePool {
    let mut value = json!({
        "metadata": {"name": "general", "uid": "pool-uid", "generation": 2,
            "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
    });
    json_patch(&mut value, &patch);
    object(value)
}

fn json_patch(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn condition<'a>(status: &'a NodePoolStatus, name: &str) -> (ConditionStatus, &'a str, &'a str) {
    let found = status.conditions.iter().find(|condition| condition.type_ == name).expect("a condition");
    (found.status, &found.reason, &found.message)
}

#[test]
fn node_class_ready_follows_the_node_class() {
    let ready = |status: &str| {
        json!({"metadata": {"name": "default"}, "status": {"conditions": [
            {"type": "Other", "status": "True"},
            {"type": "Ready", "status": status, "reason": "SubnetsNotFound", "message": "no subnets"}]}})
    };
    let terminating = json!({"metadata": {"name": "default", "deletionTimestamp": "2026-01-01T11:59:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let cases = [
        (None, ConditionStatus::False, "NodeClassNotFound", "NodeClass not found on cluster"),
        (Some(terminating), ConditionStatus::False, "NodeClassTerminating", "NodeClass is Terminating"),
        (
            Some(json!({"metadata": {"name": "default"}})),
            ConditionStatus::False,
            "NodeClassReadinessUnknown",
            "Node Class Readiness Unknown",
        ),
        (
            Some(ready("Unknown")),
            ConditionStatus::False,
            "NodeClassReadinessUnknown",
            "Node Class Readiness Unknown",
        ),
        (Some(ready("False")), ConditionStatus::False, "SubnetsNotFound", "no subnets"),
        (Some(ready("True")), ConditionStatus::True, "NodeClassReady", ""),
    ];
    for (class, status, reason, message) in cases {
        let class: Option<DynamicObject> = class.map(object);
        let state = NodeClassState::of(class.as_ref());
        let decision = decide_conditions(&pool(json!({})), &state, class.as_ref().map(|_| 1), now());
        assert_eq!(condition(&decision.status, "NodeClassReady"), (status, reason, message));
        assert_eq!(condition(&decision.status, "Ready").0, status, "{reason}");
        assert_eq!(decision.status.node_class_observed_generation, class.map(|_| 1));
    }
}

#[test]
fn admitted_nodepool_may_fail_validation() {
    let taint = json!({"key": "team", "effect": "NoSchedule"});
    let pool =
        pool(json!({"spec": {"template": {"spec": {"taints": [taint.clone()], "startupTaints": [taint]}}}}));
    let status = decide_conditions(&pool, &NodeClassState::Ready, Some(1), now()).status;
    let (found, reason, message) = condition(&status, "ValidationSucceeded");
    assert_eq!((found, reason), (ConditionStatus::False, VALIDATION_FAILED));
    assert!(message.contains("team:NoSchedule"), "{message}");
    let (found, _, message) = condition(&status, "Ready");
    assert_eq!((found, message), (ConditionStatus::False, "ValidationSucceeded=False"));
}

#[test]
fn second_decision_changes_nothing() {
    let mut pool = pool(json!({}));
    let first = decide_conditions(&pool, &NodeClassState::Ready, Some(7), now());
    assert!(first.reset_health);
    pool.status = Some(first.status.clone());
    let second = decide_conditions(&pool, &NodeClassState::Ready, Some(7), now());
    assert_eq!(second, conditions::ConditionsDecision { status: first.status, reset_health: false });
}

#[test]
fn two_failures_among_the_last_four_launches_are_unhealthy() {
    let cases: [(&[bool], Health); 6] = [
        (&[], Health::Unknown),
        (&[true], Health::Healthy),
        (&[false], Health::Healthy),
        (&[false, true, false], Health::Unhealthy),
        (&[false, false, true, true], Health::Unhealthy),
        (&[false, false, true, true, true], Health::Healthy),
    ];
    for (outcomes, health) in cases {
        let outcomes =
            outcomes.iter().fold(Outcomes::default(), |before, registered| before.with(*registered));
        assert_eq!(outcomes.health(), health, "{outcomes:?}");
    }
}

#[test]
fn outcomes_after_a_restart_are_derived_from_the_condition() {
    let cases = [
        (None, true, Health::Healthy),
        (Some(ConditionStatus::Unknown), false, Health::Healthy),
        (Some(ConditionStatus::True), false, Health::Healthy),
        (Some(ConditionStatus::False), false, Health::Unhealthy),
        (Some(ConditionStatus::False), true, Health::Unhealthy),
    ];
    for (status, registered, health) in cases {
        assert_eq!(Outcomes::of_condition(status).with(registered).health(), health, "{status:?}");
    }
}

#[test]
fn condition_changes_only_when_the_health_changes() {
    let claim = |launched: &str| -> NodeClaim {
        object(json!({"status": {"conditions": [
            {"type": "Launched", "status": launched, "reason": "LaunchFailed", "message": "no quota"}]}}))
    };
    let cases = [
        (vec![true], true, "True", (ConditionStatus::True, "NodeRegistrationHealthy", "")),
        (vec![false], false, "True", (ConditionStatus::Unknown, "AwaitingReconciliation", "before")),
        (
            vec![false, false],
            false,
            "True",
            (ConditionStatus::False, "RegistrationFailed", "Failed to register node"),
        ),
        (vec![false, false], false, "Unknown", (ConditionStatus::False, "LaunchFailed", "no quota")),
        (
            vec![false, false, true],
            true,
            "True",
            (ConditionStatus::Unknown, "AwaitingReconciliation", "before"),
        ),
    ];
    for (outcomes, registered, launched, expected) in cases {
        let pool = pool(json!({"status": {"conditions": [{"type": "NodeRegistrationHealthy",
            "status": "Unknown", "reason": "AwaitingReconciliation", "message": "before"}]}}));
        let mut status = pool.status.clone().unwrap_or_default();
        let outcomes = outcomes.into_iter().fold(Outcomes::default(), |before, next| before.with(next));
        apply_outcome(&pool, &mut status, &outcomes, registered, &claim(launched), now());
        assert_eq!(condition(&status, "NodeRegistrationHealthy"), expected, "{outcomes:?}");
    }
}

#[test]
fn health_is_outdated_after_a_change_of_nodepool_or_node_class() {
    let known = |generation: i64, class: i64| {
        pool(json!({"status": {"nodeClassObservedGeneration": class, "conditions": [
            {"type": "NodeRegistrationHealthy", "status": "True", "observedGeneration": generation}]}}))
    };
    assert!(is_outdated(&pool(json!({})), 1));
    assert!(!is_outdated(&known(2, 1), 1));
    assert!(is_outdated(&known(2, 1), 2));
    assert!(is_outdated(&known(1, 1), 1));
}

#[test]
fn terminating_nodes_are_not_counted() {
    let claim = |patch: Value| -> Option<Arc<NodeClaim>> {
        let mut value = json!({"metadata": {"name": "c"}, "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "example.com/gpu": "2"}}});
        json_patch(&mut value, &patch);
        Some(Arc::new(object(value)))
    };
    let node = |initialized: &str, capacity: Value| -> Option<Arc<Node>> {
        Some(Arc::new(object(json!({"metadata": {"labels": {"karpenter.sh/initialized": initialized}},
            "status": {"capacity": capacity}}))))
    };
    let nodes_and_claims = [
        // Until a node is initialized, the claim supplies quantities that the node does not report.
        CountedNode {
            claim: claim(json!({})),
            node: node("", json!({"cpu": "3", "memory": "15Gi", "example.com/gpu": "0"})),
        },
        // After initialization, only the node's quantities count.
        CountedNode {
            claim: claim(json!({})),
            node: node("true", json!({"cpu": "3900m", "memory": "15Gi"})),
        },
        CountedNode { claim: claim(json!({})), node: None },
        CountedNode {
            claim: claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T11:59:00Z"}})),
            node: None,
        },
        CountedNode {
            claim: claim(
                json!({"status": {"conditions": [{"type": "InstanceTerminating", "status": "True"}]}}),
            ),
            node: None,
        },
    ];
    let (resources, nodes) = count(&nodes_and_claims);
    assert_eq!(nodes, 3);
    assert_eq!(
        serde_json::to_value(&resources).expect("json"),
        json!({"cpu": "10900m", "memory": "46Gi", "example.com/gpu": "4", "pods": "0",
            "ephemeral-storage": "0", "nodes": "3"})
    );
    let (resources, nodes) = count(&[]);
    assert_eq!((resources.len(), nodes), (5, 0));
}

#[test]
fn hashes_are_migrated_to_a_new_version_except_on_drifted_claims() {
    let claim = |version: Option<&str>, drifted: bool| -> NodeClaim {
        let conditions = if drifted { json!([{"type": "Drifted", "status": "True"}]) } else { json!([]) };
        let mut claim: NodeClaim = object(json!({"status": {"conditions": conditions}}));
        claim.metadata.annotations = version
            .map(|version| [("karpenter.sh/nodepool-hash-version".to_owned(), version.to_owned())].into());
        claim
    };
    let patch = |annotations: Value| Some(json!({"metadata": {"annotations": annotations}}));
    let both = json!({"karpenter.sh/nodepool-hash": "7", "karpenter.sh/nodepool-hash-version": "v3"});
    assert_eq!(claim_patch(&claim(Some("v3"), false), "7"), None);
    assert_eq!(claim_patch(&claim(Some("v2"), false), "7"), patch(both.clone()));
    assert_eq!(claim_patch(&claim(None, false), "7"), patch(both.clone()));
    let version_only = json!({"karpenter.sh/nodepool-hash-version": "v3"});
    assert_eq!(claim_patch(&claim(Some("v2"), true), "7"), patch(version_only));
    assert_eq!(pool_patch(&pool(json!({})), "7"), patch(both.clone()));
    assert_eq!(pool_patch(&pool(json!({"metadata": {"annotations": both}})), "7"), None);
}
