use serde_json::{Value, json};

use super::default_object;

fn defaulted(group: &str, version: &str, kind: &str, mut object: Value) -> Value {
    crate::builtin::round_trip(&mut object, group, version, kind);
    default_object(group, version, kind, &mut object);
    let once = object.clone();
    default_object(group, version, kind, &mut object);
    assert_eq!(object, once, "defaults are filled in once");
    object
}

#[test]
fn minimal_pod_gets_defaults() {
    let pod = defaulted(
        "",
        "v1",
        "Pod",
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "containers": [{
                    "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                }],
                "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}}],
            },
        }),
    );
    assert_eq!(
        pod["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "nginx", "imagePullPolicy": "Always",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "failureThreshold": 3,
                    "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/", "type": ""}}],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        })
    );
}

#[test]
fn pull_policy_depends_on_tag() {
    let table = [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("registry.example:5000/nginx", "Always"),
        ("registry.example:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
    ];
    for (image, expected) in table {
        assert_eq!(super::pods::pull_policy(image), expected, "{image}");
    }
}

#[test]
fn host_network_ports_and_service_accounts() {
    let pod = defaulted(
        "",
        "v1",
        "Pod",
        json!({"spec": {"hostNetwork": true, "serviceAccount": "robot",
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}),
    );
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
    assert_eq!(pod["spec"]["serviceAccountName"], "robot");
}

#[test]
fn pod_level_requests() {
    let pod = defaulted(
        "",
        "v1",
        "Pod",
        json!({"spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}}),
    );
    assert_eq!(pod["spec"]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
}

#[test]
fn workloads() {
    let deployment =
        defaulted("apps", "v1", "Deployment", json!({"spec": {"template": {"spec": {"containers": []}}}}));
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(
        deployment["spec"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(deployment["spec"]["template"]["spec"].get("enableServiceLinks"), None, "only pods proper");
    let recreate = defaulted(
        "apps",
        "v1",
        "Deployment",
        json!({"spec": {"strategy": {"type": "Recreate"}, "replicas": 0}}),
    );
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(recreate["spec"]["replicas"], 0);
    let set = defaulted(
        "apps",
        "v1",
        "StatefulSet",
        json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "d"}}]}}),
    );
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
    let job = defaulted("batch", "v1", "Job", json!({"spec": {"parallelism": 3}}));
    assert_eq!(job["spec"].get("completions"), None);
    let job = defaulted("batch", "v1", "Job", json!({"spec": {}}));
    assert_eq!((&job["spec"]["completions"], &job["spec"]["backoffLimit"]), (&json!(1), &json!(6)));
    let cron = defaulted("batch", "v1", "CronJob", json!({"spec": {"jobTemplate": {"spec": {}}}}));
    assert_eq!(cron["spec"]["jobTemplate"]["spec"].get("completions"), None);
    assert_eq!(cron["spec"]["concurrencyPolicy"], "Allow");
}

#[test]
fn services_secrets_and_namespaces() {
    let service = defaulted("", "v1", "Service", json!({"spec": {"ports": [{"port": 80}]}}));
    assert_eq!(
        service["spec"],
        json!({"internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "ClusterIP"})
    );
    let secret =
        defaulted("", "v1", "Secret", json!({"stringData": {"a": "hello", "b": ""}, "data": {"a": "x"}}));
    assert_eq!(secret, json!({"data": {"a": "aGVsbG8=", "b": ""}, "metadata": {}, "type": "Opaque"}));
    let namespace = defaulted("", "v1", "Namespace", json!({"metadata": {"name": "n"}}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
    assert_eq!(namespace["status"]["phase"], "Active");
}

#[test]
fn base64_has_padding() {
    for (bytes, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
    {
        assert_eq!(super::base64(bytes.as_bytes()), expected);
    }
}

#[test]
fn limit_range_defaults_derive_from_its_limits() {
    let range = defaulted(
        "",
        "v1",
        "LimitRange",
        json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m", "memory": "1Mi"}},
            {"type": "Pod", "max": {"cpu": "4"}},
        ]}}),
    );
    assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
    assert_eq!(range["spec"]["limits"][1].get("default"), None);
}
