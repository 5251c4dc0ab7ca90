use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::buffers::is_reference_to;

fn buffer(status: Value) -> CapacityBuffer {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default", "generation": 2},
        "spec": {"provisioningStrategy": "buffer.x-k8s.io/active-capacity", "podTemplateRef": {"name": "shape"}},
        "status": status,
    }))
    .expect("a buffer")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn resolved() -> Result<Resolved, Unresolved> {
    Ok(Resolved { template: Default::default(), pod_template: Some(("shape".to_owned(), 4)), replicas: 3 })
}

#[test]
fn status_of_resolved_buffer_has_template_and_replicas() {
    let status = decide_status(&buffer(json!({})), &resolved(), at(60));
    let expected = json!({
        "podTemplateRef": {"name": "shape"}, "podTemplateGeneration": 4, "replicas": 3,
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "conditions": [{"type": "ReadyForProvisioning", "status": "True", "reason": "Resolved",
            "message": "Pod template resolved successfully", "observedGeneration": 2,
            "lastTransitionTime": "1970-01-01T00:01:00Z"}],
    });
    assert_eq!(serde_json::to_value(&status).expect("JSON"), expected);
    // A second reconcile changes nothing.
    let again = CapacityBuffer { status: Some(status.clone()), ..buffer(json!({})) };
    assert_eq!(decide_status(&again, &resolved(), at(120)), status);
}

#[test]
fn unresolved_buffer_keeps_replicas_and_other_conditions() {
    let first = decide_status(&buffer(json!({})), &resolved(), at(60));
    let mut with_more = buffer(json!({}));
    with_more.status = Some(first);
    let state = (ConditionStatus::True, "FitsExistingCapacity", "All");
    let owner = buffer(json!({}));
    if let Some(status) = &mut with_more.status {
        set_condition(status, &owner, buffers::PROVISIONING, state, at(70));
    }
    let lost = Err(Unresolved { reason: "PodTemplateNotFound", message: "gone".to_owned() });
    let status = decide_status(&with_more, &lost, at(80));
    assert_eq!(status.replicas, Some(3));
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status, one.reason.as_str(), one.last_transition_time.clone()))
        .collect();
    let expected = [
        ("ReadyForProvisioning", ConditionStatus::False, "PodTemplateNotFound", Some(Time(at(80)))),
        ("Provisioning", ConditionStatus::True, "FitsExistingCapacity", Some(Time(at(70)))),
    ];
    assert_eq!(conditions, expected);
}

#[test]
fn references_match_by_kind_group_and_name() {
    let mut scalable = buffer(json!({}));
    scalable.spec.pod_template_ref = None;
    let cases = [
        (None, "Deployment", "web", true),
        (Some("apps"), "Deployment", "web", true),
        (Some("batch"), "Deployment", "web", false),
        (None, "StatefulSet", "web", false),
        (None, "Deployment", "other", false),
    ];
    for (group, kind, name, expected) in cases {
        scalable.spec.scalable_ref = Some(karpenter_api::types::ScalableReference {
            api_group: group.map(str::to_owned),
            kind: kind.to_owned(),
            name: name.to_owned(),
        });
        assert_eq!(is_reference_to(&scalable, "Deployment", "web"), expected, "{group:?} {kind} {name}");
    }
    assert!(is_reference_to(&buffer(json!({})), "PodTemplate", "shape"));
    assert!(!is_reference_to(&buffer(json!({})), "Deployment", "shape"));
}
