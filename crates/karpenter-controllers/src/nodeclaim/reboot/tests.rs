use karpenter_state::pod::Pod;
use serde_json::{Value, json};

use super::decide::*;
use super::*;
use crate::claims::reboot_request::REQUESTED;
use crate::evictions::EvictionMode;

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

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    start + SignedDuration::from_secs(seconds)
}

/// A claim whose condition `Rebooting` has this reason. The reboot was requested at second 0, and if the reason is
/// `ISSUED`, accepted at second 100.
fn claim(reason: &str, annotations: Value) -> NodeClaim {
    let is = |kind: &str, status: &str, reason: &str, seconds: i64| {
        json!({"type": kind, "status": status, "reason": reason, "message": "rebooting for A/B",
            "lastTransitionTime": at(seconds).to_string()})
    };
    let initialized = match reason {
        ISSUED => is("Initialized", "Unknown", "Rebooting", 100),
        _ => is("Initialized", "True", "Initialized", -500),
    };
    serde_json::from_value(json!({
        "metadata": {"name": "claim", "uid": "uid", "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        "status": {"conditions": [is("Rebooting", "True", reason, 0), initialized]},
    }))
    .expect("a claim")
}

fn node(boot_id: &str, ready: &str) -> Arc<Node> {
    let info = json!({"bootID": boot_id, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
        "systemUUID": ""});
    let object = json!({"metadata": {"name": "node"},
        "status": {"nodeInfo": info, "conditions": [{"type": "Ready", "status": ready}]}});
    Arc::new(serde_json::from_value(object).expect("a node"))
}

fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut object = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "node", "containers": []}, "status": {"phase": "Running"}});
    merge(&mut object, &patch);
    Arc::new(serde_json::from_value(object).expect("a pod"))
}

fn facts(claim: NodeClaim, node: Arc<Node>) -> Facts {
    Facts { claim: Arc::new(claim), node: Some(node), pods: Vec::new(), issuing_since: None }
}

fn bounded(text: &str) -> NodeClaim {
    claim(REQUESTED, json!({"karpenter.sh/reboot-termination-grace-period": text}))
}

#[test]
fn claim_without_reboot_request_is_ignored() {
    let mut done = claim(REQUESTED, json!({}));
    for condition in &mut done.status.get_or_insert_default().conditions {
        condition.status = karpenter_api::types::ConditionStatus::False;
    }
    assert_eq!(decide(&facts(done, node("a", "True")), at(1)), Step::Nothing);
    let mut terminating = claim(REQUESTED, json!({}));
    terminating.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert_eq!(decide(&facts(terminating, node("a", "True")), at(1)), Step::Nothing);
    assert_eq!(decide(&facts(claim("Whatever", json!({})), node("a", "True")), at(1)), Step::Nothing);
}

#[test]
fn invalid_request_fails_at_once() {
    for text in ["soon", "-1s"] {
        match decide(&facts(bounded(text), node("a", "True")), at(1)) {
            Step::Fail { outcome: Outcome::InvalidRequest, message } => {
                assert!(message.starts_with("invalid reboot request: "), "{message}");
                assert!(message.contains(text), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn drain_ends_at_its_deadline() {
    let on_node = [
        pod("p", json!({})),
        pod(
            "d",
            json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]}}),
        ),
    ];
    let full = |claim: NodeClaim| Facts { pods: on_node.to_vec(), ..facts(claim, node("a", "True")) };
    let drains = |claim: NodeClaim, now: i64| match decide(&full(claim), at(now)) {
        Step::Drain { evict, mode, again } => Some((evict.len(), mode, again)),
        Step::Issue { boot_id, is_recorded: false } if boot_id == "a" => None,
        other => panic!("{other:?}"),
    };
    let seconds = Duration::from_secs;
    // The drain has no time limit; workloads are evicted before DaemonSet pods.
    assert_eq!(drains(claim(REQUESTED, json!({})), 999_999), Some((1, EvictionMode::Evict, POLL)));
    // The drain has a time limit; remaining pods stay on the node.
    let until = EvictionMode::EvictUntil(at(60));
    assert_eq!(drains(bounded("1m"), 1), Some((1, until.clone(), POLL)));
    assert_eq!(drains(bounded("1m"), 50), Some((1, until, seconds(10))));
    assert_eq!(drains(bounded("1m"), 60), None);
    // A drain takes at least the minimum drain time of five seconds, even if its limit is shorter.
    assert_eq!(drains(bounded("1s"), 4), Some((1, EvictionMode::EvictUntil(at(5)), seconds(1))));
    assert_eq!(drains(bounded("1s"), 5), None);
    // A limit of zero skips the drain.
    assert_eq!(drains(bounded("0s"), 0), None);
    // The minimum drain time applies to an empty node too.
    let empty = |text: &str, now: i64| decide(&facts(bounded(text), node("a", "True")), at(now));
    assert!(
        matches!(empty("1m", 2), Step::Drain { evict, again, .. } if evict.is_empty() && again == seconds(3))
    );
    assert_eq!(empty("1m", 5), Step::Issue { boot_id: "a".to_owned(), is_recorded: false });
    assert_eq!(empty("0s", 0), Step::Issue { boot_id: "a".to_owned(), is_recorded: false });
}

#[test]
fn do_not_disrupt_pod_delays_a_limited_drain_until_its_deadline() {
    let kept = pod("kept", json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}));
    let facts = Facts { pods: vec![kept], ..facts(bounded("1m"), node("a", "True")) };
    assert!(matches!(decide(&facts, at(59)), Step::Drain { .. }));
    assert!(matches!(decide(&facts, at(60)), Step::Issue { .. }));
}

#[test]
fn reboot_is_issued_until_the_boot_id_changes() {
    let recorded = || claim(REQUESTED, json!({"karpenter.sh/reboot-pre-boot-id": "a"}));
    let ask = Step::Issue { boot_id: "a".to_owned(), is_recorded: true };
    assert_eq!(decide(&facts(recorded(), node("a", "True")), at(1)), ask);
    // Pods that are bound after the drain do not delay the reboot.
    let late = Facts { pods: vec![pod("p", json!({}))], ..facts(recorded(), node("a", "True")) };
    assert_eq!(decide(&late, at(1)), ask);
    assert_eq!(decide(&facts(recorded(), node("b", "False")), at(1)), Step::MarkIssued);
    // The issuance timeout counts from the first call of this process, not from the request.
    let asking = |now: i64| {
        let facts = Facts { issuing_since: Some(at(1000)), ..facts(recorded(), node("a", "True")) };
        decide(&facts, at(now))
    };
    assert_eq!(asking(1300), ask);
    let message = "reboot was not issued within the issuance timeout".to_owned();
    assert_eq!(asking(1301), Step::Fail { outcome: Outcome::ProviderError, message });
}

#[test]
fn recovery_times_out_after_twenty_minutes() {
    let issued = || claim(ISSUED, json!({"karpenter.sh/reboot-pre-boot-id": "a"}));
    let look = |boot_id: &str, ready: &str, now: i64| decide(&facts(issued(), node(boot_id, ready)), at(now));
    assert_eq!(look("a", "True", 200), Step::Observe { has_booted: false });
    assert_eq!(look("b", "False", 200), Step::Observe { has_booted: true });
    assert_eq!(look("b", "True", 200), Step::Succeed);
    assert_eq!(look("b", "False", 1300), Step::Observe { has_booted: true });
    let message = "node did not recover within the observation window".to_owned();
    assert_eq!(look("b", "True", 1301), Step::Fail { outcome: Outcome::RecoveryTimeout, message });
}

#[test]
fn recovery_timeout_of_uninitialized_node_counts_from_the_request() {
    let mut issued = claim(ISSUED, json!({"karpenter.sh/reboot-pre-boot-id": "a"}));
    for condition in &mut issued.status.get_or_insert_default().conditions {
        if condition.type_ == "Initialized" {
            condition.last_transition_time =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(-9000)));
        }
    }
    let facts = facts(issued, node("a", "False"));
    assert_eq!(decide(&facts, at(1200)), Step::Observe { has_booted: false });
    assert!(matches!(decide(&facts, at(1201)), Step::Fail { outcome: Outcome::RecoveryTimeout, .. }));
}

#[test]
fn missing_node_is_waited_for_until_the_deadline() {
    let gone = |claim: NodeClaim, issuing_since: Option<Timestamp>, now: i64| {
        let facts = Facts { claim: Arc::new(claim), node: None, pods: Vec::new(), issuing_since };
        decide(&facts, at(now))
    };
    assert_eq!(gone(claim(REQUESTED, json!({})), None, 300), Step::Wait(POLL));
    let fails = |step: Step, expected| matches!(step, Step::Fail { outcome, .. } if outcome == expected);
    assert!(fails(gone(claim(REQUESTED, json!({})), None, 301), Outcome::ProviderError));
    assert_eq!(gone(claim(REQUESTED, json!({})), Some(at(200)), 500), Step::Wait(POLL));
    assert!(fails(gone(claim(REQUESTED, json!({})), Some(at(200)), 501), Outcome::ProviderError));
    assert_eq!(gone(claim(ISSUED, json!({})), None, 1300), Step::Wait(POLL));
    assert!(fails(gone(claim(ISSUED, json!({})), None, 1301), Outcome::RecoveryTimeout));
}

#[test]
fn operation_id_is_the_same_for_all_calls_of_a_reboot() {
    let claim = claim(REQUESTED, json!({}));
    let rebooting = active(&claim).expect("requested");
    assert_eq!(operation_id(&claim, rebooting, "boot"), format!("uid-{}-boot", at(0).as_nanosecond()));
}
