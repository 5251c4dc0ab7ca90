use super::*;
use crate::controllers::fixtures::{at, from, merge, now};

fn node(patch: Value) -> Node {
    let mut object = json!({"metadata": {"name": "n1", "uid": "u", "creationTimestamp": "2026-01-01T11:59:00Z",
        "annotations": {"kwok.x-k8s.io/node": "fake"}}});
    merge(&mut object, &patch);
    from(object)
}

fn scripted(annotations: &[(&str, &str)]) -> Node {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("fake-kubelet/{key}"), json!(value))).collect();
    node(json!({"metadata": {"annotations": annotations}}))
}

fn condition<'a>(decision: &'a Decision, kind: &str) -> &'a Value {
    let patch = decision.status.as_ref().expect("a status");
    let conditions = patch["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn lease(renewed: &str) -> Lease {
    from(json!({"metadata": {"name": "n1"}, "spec": {"renewTime": renewed}}))
}

#[test]
fn new_node_becomes_ready_and_gets_a_lease() {
    let decision = decide(&node(json!({})), None, &Options::default(), now());
    assert!(decision.renew);
    assert_eq!(condition(&decision, "Ready")["status"], "True");
    assert_eq!(condition(&decision, "Ready")["reason"], "KubeletReady");
    assert_eq!(decision.again, Some(Duration::from_secs(10)));
}

#[test]
fn existing_status_fields_are_kept() {
    let given = json!({"status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
        "nodeInfo": {"kubeletVersion": "v1.35.0", "architecture": "arm64", "bootID": "", "containerRuntimeVersion": "",
        "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "",
        "systemUUID": ""}}});
    let decision = decide(&node(given), None, &Options::default(), now());
    let status = &decision.status.as_ref().expect("a status")["status"];
    let written: Vec<&str> = status.as_object().expect("fields").keys().map(String::as_str).collect();
    assert_eq!(written, ["conditions", "phase"]);
}

#[test]
fn healthy_node_is_not_patched_between_heartbeats() {
    let conditions: Vec<Value> = wanted(&NodeScript::of(&node(json!({})), &Options::default()), false)
        .iter()
        .map(|wanted| {
            json!({"type": wanted.kind, "status": wanted.status, "reason": wanted.reason,
                "lastHeartbeatTime": "2026-01-01T11:56:00Z", "lastTransitionTime": "2026-01-01T11:50:00Z"})
        })
        .collect();
    let settled = node(json!({"status": {"conditions": conditions, "phase": "Running"}}));
    let quiet = decide(&settled, Some(&lease("2026-01-01T11:59:53.000000Z")), &Options::default(), now());
    assert_eq!((quiet.status.is_some(), quiet.renew), (false, false));
    assert_eq!(quiet.again, Some(Duration::from_secs(3)));
    // Five minutes after the last heartbeat the next one is sent; it keeps the transition time.
    let later = decide(
        &settled,
        Some(&lease("2026-01-01T12:00:55.000000Z")),
        &Options::default(),
        at("2026-01-01T12:01:00Z"),
    );
    assert_eq!(condition(&later, "Ready")["lastTransitionTime"], "2026-01-01T11:50:00Z");
}

#[test]
fn scripted_nodes_boot_late_become_unhealthy_or_stop_reporting() {
    let options = Options::default();
    let slow = decide(&scripted(&[("boot-seconds", "90")]), None, &options, now());
    assert_eq!(slow, Decision { again: Some(Duration::from_secs(30)), ..Decision::default() });
    let dead = decide(&scripted(&[("dies-after-seconds", "60")]), None, &options, now());
    assert_eq!(dead, Decision::default());
    let dying = decide(&scripted(&[("dies-after-seconds", "65")]), None, &options, now());
    assert!(dying.renew);
    assert_eq!(dying.again, Some(Duration::from_secs(5)));
    let never = decide(&scripted(&[("never-ready", "true")]), None, &options, now());
    assert_eq!(condition(&never, "Ready")["status"], "False");
    assert!(never.renew);
    let sick =
        decide(&scripted(&[("sick-conditions", "DiskPressure=True,BadNode=True")]), None, &options, now());
    assert_eq!(condition(&sick, "DiskPressure")["reason"], "KubeletHasDiskPressure");
    assert_eq!(condition(&sick, "BadNode")["status"], "True");
    assert_eq!(condition(&sick, "Ready")["status"], "True");
    let later = decide(
        &scripted(&[("sick-conditions", "Ready=Unknown"), ("sick-after-seconds", "63")]),
        None,
        &options,
        now(),
    );
    assert_eq!(condition(&later, "Ready")["status"], "True");
    assert_eq!(later.again, Some(Duration::from_secs(3)));
}

#[test]
fn startup_taints_are_removed_only_if_scripted() {
    let taints = json!({"spec": {"taints": [{"key": "agent/starting", "effect": "NoSchedule"}]}});
    assert!(decide(&node(taints.clone()), None, &Options::default(), now()).untaint.is_empty());
    let mut scripted = scripted(&[("remove-taints", "agent/starting")]);
    scripted.spec = from::<Node>(taints).spec;
    assert_eq!(decide(&scripted, None, &Options::default(), now()).untaint, ["agent/starting"]);
}

#[test]
fn nodes_are_managed_by_annotation_or_label() {
    let options = Options::default();
    assert!(options.manages(&node(json!({}))));
    assert!(options.manages(&from(json!({"metadata": {"name": "n", "labels": {"type": "kwok"}}}))));
    assert!(!options.manages(&from(json!({"metadata": {"name": "n", "labels": {"type": "real"}}}))));
}

#[test]
fn frozen_node_renews_lease_without_status() {
    let frozen = json!({"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Injected",
            "lastHeartbeatTime": "2026-01-01T10:00:00Z", "lastTransitionTime": "2026-01-01T10:00:00Z"}]}});
    let decision = decide(&node(frozen), None, &Options::default(), now());
    assert_eq!((decision.status, decision.renew), (None, true));
}

#[test]
fn heartbeat_keeps_conditions_of_other_clients() {
    let sick = json!({"status": {"conditions": [{"type": "KWOKUnhealthy", "status": "True", "reason": "Injected",
        "lastHeartbeatTime": "2026-01-01T10:00:00Z", "lastTransitionTime": "2026-01-01T10:00:00Z"}]}});
    let decision = decide(&node(sick), None, &Options::default(), now());
    // A strategic merge patch merges conditions by type, so other types are kept.
    assert_eq!(condition(&decision, "Ready")["status"], "True");
    assert_eq!(condition(&decision, "KWOKUnhealthy"), &Value::Null);
}
