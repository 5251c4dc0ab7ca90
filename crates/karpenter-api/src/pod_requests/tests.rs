use serde_json::{Value, json};

use super::*;

fn pod(object: Value) -> Pod {
    serde_json::from_value(object).expect("pod")
}

#[test]
fn invalid_quantity_is_reported_with_path() {
    let cases = [
        (
            json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "lots"}}}]}),
            "spec.containers[1].resources.requests[cpu]",
        ),
        (
            json!({"containers": [], "initContainers": [{"name": "a", "resources": {"requests": {"memory": "1K"}}}]}),
            "spec.initContainers[0].resources.requests[memory]",
        ),
        (json!({"containers": [], "overhead": {"cpu": ""}}), "spec.overhead[cpu]"),
        (json!({"containers": [], "resources": {"requests": {"cpu": "x"}}}), "spec.resources.requests[cpu]"),
    ];
    for (spec, path) in cases {
        let error = pod_requests(&pod(json!({"spec": spec}))).expect_err(path);
        assert_eq!((error.path.as_str(), error.rule), (path, Rule::Format));
        assert!(error.message.starts_with("quantity "), "{error}");
    }
    let limits = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "?"}}}]}});
    assert_eq!(
        pod_limits(&pod(limits)).expect_err("limits").path,
        "spec.containers[0].resources.limits[cpu]"
    );
}

#[test]
fn pod_without_spec_has_no_requests() {
    assert_eq!(pod_requests(&Pod::default()), Ok(Quantities::new()));
    assert_eq!(pod_limits(&Pod::default()), Ok(Quantities::new()));
}

#[test]
fn daemonset_pod_keeps_scheduling_fields() {
    let daemonset: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": "agent", "namespace": "kube-system", "labels": {"of": "the daemonset"}},
        "spec": {
            "selector": {},
            "template": {
                "metadata": {"labels": {"app": "agent"}, "annotations": {"a": "b"}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}],
                },
            },
        },
    }))
    .expect("daemonset");
    let pod = daemonset_pod(&daemonset);
    assert_eq!(
        serde_json::to_value(&pod).expect("serialises"),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "agent", "namespace": "kube-system", "labels": {"app": "agent"}, "annotations": {"a": "b"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "containers": [{"name": "a", "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}],
            },
        })
    );
    assert_eq!(daemonset_pod(&DaemonSet::default()).spec, Some(PodSpec::default()));
}
