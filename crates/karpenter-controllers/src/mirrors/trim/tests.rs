use k8s_openapi::api::core::v1::Pod;
use karpenter_api::pod_requests::pod_requests;
use serde_json::{Value, json};

use super::{pod as trim, pod_limits};

fn pod(spec: Value, status: Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "default", "uid": "u", "annotations": {
        "example.com/revision": "42",
        "karpenter.sh/do-not-disrupt": "true",
        "controller.kubernetes.io/pod-deletion-cost": "7",
    }});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
}

fn container(name: &str, cpu: &str) -> Value {
    json!({
        "name": name, "image": "registry/image", "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": cpu, "example.com/device": "1"}, "limits": {"cpu": "9"}},
    })
}

/// Whatever is dropped, a pod occupies what it did, and is limited as it was.
fn trimmed(spec: Value, status: Value) -> Pod {
    let mut pod = pod(spec, status);
    let before = (pod_requests(&pod).expect("amounts"), pod_limits(&pod).expect("amounts"));
    trim(&mut pod);
    assert_eq!((pod_requests(&pod).expect("amounts"), pod_limits(&pod).expect("amounts")), before);
    // A pod that is kept once more stays what it is.
    let kept = pod.clone();
    trim(&mut pod);
    assert_eq!(pod, kept);
    pod
}

#[test]
fn a_pod_that_waits_keeps_all_that_decides_where_it_can_go() {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}});
    let spec = json!({
        "affinity": affinity, "nodeSelector": {"a": "b"}, "schedulerName": "default-scheduler", "priority": 5,
        "containers": [container("one", "100m"), {"name": "two", "ports": [{"containerPort": 1, "hostPort": 2}]}],
        "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}],
        "overhead": {"cpu": "10m"}, "serviceAccountName": "somebody", "hostname": "host",
    });
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, {"type": "Initialized", "status": "True"}]);
    let pod = trimmed(spec, json!({"phase": "Pending", "conditions": conditions, "podIP": "10.0.0.1"}));
    let annotations: Vec<&String> = pod.metadata.annotations.iter().flatten().map(|(key, _)| key).collect();
    assert_eq!(annotations, ["controller.kubernetes.io/pod-deletion-cost", "karpenter.sh/do-not-disrupt"]);
    let left = serde_json::to_value(&pod).expect("JSON");
    assert_eq!(left["spec"]["affinity"], affinity);
    let two = json!({"name": "two", "ports": [{"containerPort": 1, "hostPort": 2}]});
    let one = json!({"name": "one", "ports": [], "resources":
        {"requests": {"cpu": "100m", "example.com/device": "1"}, "limits": {"cpu": "9"}}});
    assert_eq!(left["spec"]["containers"], json!([one, two]));
    assert_eq!(left["spec"]["volumes"], json!([{"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]));
    assert_eq!(left["spec"]["serviceAccountName"], Value::Null);
    assert_eq!(left["spec"]["hostname"], Value::Null);
    assert_eq!(left["status"]["conditions"].as_array().map(Vec::len), Some(1));
    assert!(crate::pods::is_provisionable(&pod));
}

#[test]
fn a_pod_on_a_node_keeps_a_sum() {
    let init = json!([{"name": "first", "resources": {"requests": {"cpu": "3"}}}]);
    let spec = json!({"nodeName": "n", "containers": [container("one", "1500m"), container("two", "1")],
        "initContainers": init, "overhead": {"cpu": "10m", "memory": "1Mi"}});
    let sized = json!({"requests": {"cpu": "1500m", "example.com/device": "1"}});
    let statuses = json!([{"name": "one", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "resources": sized, "allocatedResources": {"cpu": "1500m"}}]);
    let pod = trimmed(spec, json!({"phase": "Running", "containerStatuses": statuses}));
    let left = serde_json::to_value(&pod).expect("JSON");
    assert_eq!(left["spec"]["containers"], json!([]));
    assert_eq!(left["spec"]["hostname"], json!("cpu=18010m"), "twice nine, and overhead");
    assert_eq!(left["spec"]["overhead"], json!({"cpu": "3010m", "example.com/device": "2", "memory": "1Mi"}));
    assert_eq!(left["status"]["containerStatuses"], Value::Null);
}

#[test]
fn pods_with_ports_or_devices_or_in_the_middle_of_a_resize_keep_their_containers() {
    let ports = json!({"name": "c", "ports": [{"containerPort": 1, "hostPort": 2}]});
    let device = json!({"name": "c", "resources": {"claims": [{"name": "gpu"}]}});
    let plain = json!({"name": "c", "resources": {"requests": {"cpu": "2"}}});
    let resizing = json!({"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
        "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}]});
    for (container, status) in [(ports, json!({})), (device, json!({})), (plain, resizing)] {
        let pod = trimmed(json!({"nodeName": "n", "containers": [container]}), status);
        assert_eq!(pod.spec.expect("a spec").containers.len(), 1);
    }
}
