use k8s_openapi::api::core::v1::Pod as RawPod;
use karpenter_api::pod_requests::{pod_limits, pod_requests};
use serde_json::{Value, json};

use super::*;

fn raw(name: &str, spec: &Value, status: &Value) -> RawPod {
    let metadata = json!({
        "name": name, "namespace": "default", "uid": name, "resourceVersion": "7", "labels": {"app": "web"},
        "annotations": {
            "example.com/revision": "42",
            "karpenter.sh/do-not-disrupt": "true",
            "controller.kubernetes.io/pod-deletion-cost": "7",
        },
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}],
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
}

fn container(name: &str, cpu: &str) -> Value {
    json!({
        "name": name, "image": "registry/image", "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": cpu, "example.com/device": "1"}, "limits": {"cpu": "9"}},
    })
}

/// A trimmed pod has the same requests and limits as before.
fn kept(spec: Value, status: Value) -> Pod {
    let raw = raw("p", &spec, &status);
    let before = (pod_requests(&raw), pod_limits(&raw));
    let text = serde_json::to_string(&raw).expect("JSON");
    let pod = Pod::from(raw);
    assert_eq!((pod.requests(), pod.limits()), before, "{spec} {status}");
    let read: Pod = serde_json::from_str(&text).expect("a pod");
    assert_eq!(read, pod, "however it is read");
    pod
}

fn status_of(container: &str, cpu: &str) -> Value {
    json!({"name": container, "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}})
}

#[test]
fn fields_that_decide_placement_are_kept() {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}});
    let spec = json!({
        "affinity": affinity, "nodeSelector": {"a": "b"}, "schedulerName": "default-scheduler", "priority": 5,
        "containers": [container("one", "100m"), {"name": "two", "ports": [{"containerPort": 1, "hostPort": 2}]}],
        "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}],
        "overhead": {"cpu": "10m"}, "serviceAccountName": "somebody", "hostname": "host",
    });
    let conditions = json!([
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Initialized", "status": "True"},
    ]);
    let pod = kept(spec, json!({"phase": "Pending", "conditions": conditions, "podIP": "10.0.0.1"}));
    let annotations: Vec<&String> = pod.shared_meta.annotations.keys().collect();
    assert_eq!(annotations, ["controller.kubernetes.io/pod-deletion-cost", "karpenter.sh/do-not-disrupt"]);
    let left = serde_json::to_value(&*pod.spec).expect("JSON");
    assert_eq!(left["affinity"], affinity);
    let two = json!({"name": "two", "ports": [{"containerPort": 1, "hostPort": 2}]});
    let one = json!({"name": "one", "resources":
        {"requests": {"cpu": "100m", "example.com/device": "1"}, "limits": {"cpu": "9"}}});
    assert_eq!(left["containers"], json!([one, two]));
    assert_eq!(left["volumes"], json!([{"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]));
    assert_eq!(left["serviceAccountName"], Value::Null);
    assert_eq!(left["hostname"], Value::Null);
    assert_eq!(pod.status.phase, Phase::Pending);
    let scheduled = pod.status.scheduled.expect("a condition");
    assert!(scheduled.is_false && !scheduled.is_true && scheduled.since.is_some());
    assert_eq!(pod.resource_version().as_deref(), Some("7"));
    assert!(crate::pods::is_provisionable(&pod));
}

#[test]
fn resources_in_status_are_kept_only_if_they_differ_from_spec() {
    let spec =
        json!({"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    let as_asked = json!({"containerStatuses": [status_of("c", "2")]});
    assert_eq!(kept(spec.clone(), as_asked).status.actual_resources, None);
    // The amount is the same, written in another format.
    assert_eq!(
        kept(spec.clone(), json!({"containerStatuses": [status_of("c", "2000m")]})).status.actual_resources,
        None
    );
    for (size, reason) in [("1", "Deferred"), ("3", "Deferred"), ("1", "Infeasible")] {
        let status = json!({"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [status_of("c", size)]});
        let pod = kept(spec.clone(), status);
        assert_eq!(
            pod.status.actual_resources.is_some(),
            (size, reason) != ("1", "Deferred"),
            "{size} {reason}"
        );
    }
}

#[test]
fn pods_of_one_workload_share_their_parts() {
    let spec = |node: &str, cpu: &str| json!({"nodeName": node, "containers": [container("c", cpu)]});
    let mut family = PodInterner::default();
    let mut keep = |name: &str, spec: Value| family.keep(raw(name, &spec, &json!({"phase": "Running"})));
    let (one, two, three) =
        (keep("a", spec("n1", "1")), keep("b", spec("n2", "1")), keep("c", spec("n2", "2")));
    assert_eq!([&*one.name, &*two.name], ["a", "b"]);
    assert_eq!([one.node_name.as_deref(), two.node_name.as_deref()], [Some("n1"), Some("n2")]);
    assert!(Arc::ptr_eq(&one.spec, &two.spec) && Arc::ptr_eq(&one.shared_meta, &two.shared_meta));
    assert!(!Arc::ptr_eq(&one.spec, &three.spec) && Arc::ptr_eq(&one.shared_meta, &three.shared_meta));
    assert!(one.has_equal_spec(&two) && !one.has_equal_spec(&three));
    assert!(
        one.has_equal_spec(&Pod::from(raw("z", &spec("n9", "1"), &json!({})))),
        "without an address in common too"
    );
    // A spec is still shared after other specs of the workload were added.
    assert!(Arc::ptr_eq(&keep("d", spec("n3", "1")).spec, &one.spec));
}

#[test]
fn unreferenced_parts_are_dropped() {
    let mut family = PodInterner::default();
    let mut kept = Vec::new();
    for number in 0..2_000 {
        let mut raw = raw("p", &json!({"containers": []}), &json!({}));
        let owners = raw.metadata.owner_references.iter_mut().flatten();
        owners.for_each(|owner| owner.uid = number.to_string());
        let pod = family.keep(raw);
        if number % 20 == 0 {
            kept.push(pod);
        }
    }
    let remembered = family.workloads();
    assert!((kept.len()..=300).contains(&remembered), "{remembered} for {} workloads", kept.len());
}

#[test]
fn daemon_set_pods_share_a_spec_although_pinned_to_nodes() {
    let pinned = |node: &str, bound: bool| {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let spec = json!({"nodeName": bound.then_some(node), "affinity": affinity, "containers": []});
        let mut raw = raw("d", &spec, &json!({}));
        let owners = raw.metadata.owner_references.iter_mut().flatten();
        owners.for_each(|owner| owner.kind = "DaemonSet".to_owned());
        Pod::from(raw)
    };
    assert!(pinned("n1", true).has_equal_spec(&pinned("n2", true)));
    assert_eq!(pinned("n1", true).spec.affinity, None);
    assert!(!pinned("n1", false).has_equal_spec(&pinned("n2", false)));
}

#[test]
fn written_pod_reuses_shared_parts() {
    let mut family = PodInterner::default();
    let raw = || raw("p", &json!({"containers": [{"name": "main"}]}), &json!({}));
    let (old, sibling) = (family.keep(raw()), family.keep(raw()));
    let mut written = Pod::from(raw());
    written.reuse_shared_parts(&old);
    assert!(
        Arc::ptr_eq(&written.shared_meta, &sibling.shared_meta) && Arc::ptr_eq(&written.spec, &sibling.spec)
    );
    let mut other = raw();
    other.metadata.labels.get_or_insert_default().insert("new".into(), "label".into());
    let mut other = Pod::from(other);
    other.reuse_shared_parts(&old);
    assert!(!Arc::ptr_eq(&other.shared_meta, &old.shared_meta) && Arc::ptr_eq(&other.spec, &old.spec));
}
