use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn created(group: &str, kind: &str, mut object: Value) -> Value {
    prepare_create(group, "v1", kind, &mut object, Timestamp::UNIX_EPOCH);
    object
}

fn updated(
    group: &str,
    kind: &str,
    old: &Value,
    change: impl FnOnce(&mut Value),
    subresource: &str,
) -> Value {
    let mut new = old.clone();
    change(&mut new);
    prepare_update(group, "v1", kind, &mut new, old, subresource);
    new
}

#[test]
fn new_pods_are_pending_and_have_a_quality_of_service() {
    let pod = created(
        "",
        "Pod",
        json!({"metadata": {"generation": 7}, "spec": {}, "status": {"phase": "Running"}}),
    );
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(pod["metadata"]["generation"], 1);
    let gated = created("", "Pod", json!({"spec": {"schedulingGates": [{"name": "a"}]}}));
    assert_eq!(gated["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[test]
fn match_label_keys_are_merged_into_selectors() {
    let pod = created(
        "",
        "Pod",
        json!({"metadata": {"labels": {"hash": "x"}}, "spec": {"topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["hash", "absent"]}, {"matchLabelKeys": ["hash"]}]}}),
    );
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
        json!([{"key": "hash", "operator": "In", "values": ["x"]}])
    );
    assert_eq!(pod["spec"]["topologySpreadConstraints"][1], json!({"matchLabelKeys": ["hash"]}));
}

#[test]
fn generation_counts_spec_changes() {
    let old = json!({"metadata": {"generation": 3, "uid": "u", "creationTimestamp": "t"}, "spec": {"a": 1}, "status": {"s": 1}});
    let spec = |new: &mut Value| new["spec"]["a"] = json!(2);
    let annotation = |new: &mut Value| new["metadata"]["annotations"] = json!({"k": "v"});
    type Row = (&'static str, &'static str, fn(&mut Value), &'static str, i64);
    let table: [Row; 8] = [
        ("apps", "Deployment", spec, "", 4),
        ("apps", "Deployment", annotation, "", 4),
        ("apps", "ReplicaSet", annotation, "", 3),
        ("apps", "ReplicaSet", spec, "status", 3),
        ("", "Pod", spec, "", 4),
        ("", "Node", spec, "", 3),
        ("policy", "PodDisruptionBudget", spec, "", 4),
        ("scheduling.k8s.io", "PriorityClass", spec, "", 3),
    ];
    for (group, kind, change, subresource, expected) in table {
        let new = updated(group, kind, &old, change, subresource);
        assert_eq!(new["metadata"]["generation"], expected, "{kind} {subresource}");
    }
}

#[test]
fn status_and_spec_are_updated_separately() {
    let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"a": 1}, "status": {"s": 1}});
    let both = |new: &mut Value| {
        new["spec"]["a"] = json!(2);
        new["status"]["s"] = json!(2);
    };
    let object = updated("apps", "Deployment", &old, both, "");
    assert_eq!((&object["spec"]["a"], &object["status"]["s"]), (&json!(2), &json!(1)));
    let status = updated("apps", "Deployment", &old, both, "status");
    assert_eq!((&status["spec"]["a"], &status["status"]["s"]), (&json!(1), &json!(2)));
}

#[test]
fn uid_and_creation_time_are_immutable() {
    let old = json!({"metadata": {"uid": "u", "creationTimestamp": "t", "deletionTimestamp": "d", "deletionGracePeriodSeconds": 30}});
    let new = updated("", "ConfigMap", &old, |new| new["metadata"] = json!({"creationTimestamp": "x"}), "");
    assert_eq!(new["metadata"], old["metadata"]);
}

#[test]
fn daemon_set_has_template_generation() {
    let set = created("apps", "DaemonSet", json!({"spec": {"template": {"a": 1}}}));
    assert_eq!(set["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
    let changed = updated("apps", "DaemonSet", &set, |new| new["spec"]["template"]["a"] = json!(2), "");
    assert_eq!(changed["metadata"]["annotations"][TEMPLATE_GENERATION], "2");
    let other = updated("apps", "DaemonSet", &set, |new| new["spec"]["minReadySeconds"] = json!(2), "");
    assert_eq!(other["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
}

#[test]
fn job_selector_is_its_uid() {
    let job = created("batch", "Job", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {}}));
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
}

#[test]
fn custom_objects() {
    let mut new = json!({"metadata": {"generation": 9}, "spec": {}, "status": {"a": 1}});
    prepare_custom_create(&mut new, true);
    assert_eq!(new, json!({"metadata": {"generation": 1}, "spec": {}}));
    let old =
        json!({"metadata": {"generation": 1, "resourceVersion": "1"}, "spec": {"a": 1}, "status": {"s": 1}});
    let mut status = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"s": 2}});
    prepare_custom_update(&mut status, &old, "status", true);
    assert_eq!(
        status,
        json!({"metadata": {"generation": 1, "resourceVersion": "1"}, "spec": {"a": 1}, "status": {"s": 2}})
    );
    let mut spec = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"s": 2}});
    prepare_custom_update(&mut spec, &old, "", true);
    assert_eq!((&spec["metadata"]["generation"], &spec["status"]["s"]), (&json!(2), &json!(1)));
}
