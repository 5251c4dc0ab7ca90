use jiff::Timestamp;
use serde_json::{Value, json};

use super::admit;
use crate::admission::fixture::Objects;
use crate::admission::{Operation, Verb};
use crate::status::ApiResult;

fn cluster() -> Objects {
    let mut objects = Objects::default();
    objects.add("", "namespaces", json!({"metadata": {"name": "n"}, "status": {"phase": "Active"}}));
    objects.add("", "namespaces", json!({"metadata": {"name": "gone"}, "status": {"phase": "Terminating"}}));
    objects
}

fn run(
    objects: &Objects,
    verb: Verb,
    plural: &str,
    namespace: &str,
    mut object: Value,
    old: Option<&Value>,
) -> ApiResult<Value> {
    let (group, kind) = match plural {
        "pods" => ("", "Pod"),
        "nodes" => ("", "Node"),
        "namespaces" => ("", "Namespace"),
        "persistentvolumeclaims" => ("", "PersistentVolumeClaim"),
        "priorityclasses" => ("scheduling.k8s.io", "PriorityClass"),
        _ => ("", "ConfigMap"),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
    let operation = Operation {
        verb,
        group,
        version: "v1",
        kind,
        plural,
        subresource: "",
        namespace,
        name: &name,
        old,
        now: Timestamp::UNIX_EPOCH,
    };
    admit(&operation, &mut object, objects).map(|()| object)
}

fn create(objects: &Objects, plural: &str, namespace: &str, object: Value) -> ApiResult<Value> {
    run(objects, Verb::Create, plural, namespace, object, None)
}

fn message(answer: ApiResult<Value>) -> String {
    answer.expect_err("refused").message
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})
}

#[test]
fn namespace_must_exist_and_not_terminate() {
    let missing =
        create(&cluster(), "configmaps", "other", json!({"metadata": {"name": "c"}})).expect_err("refused");
    assert_eq!((missing.code, missing.message.as_str()), (404, "namespaces \"other\" not found"));
    let terminating =
        create(&cluster(), "configmaps", "gone", json!({"metadata": {"name": "c"}})).expect_err("refused");
    assert_eq!(
        terminating.to_status()["details"],
        json!({"name": "c", "kind": "configmaps", "causes": [{"reason": "NamespaceTerminating",
            "message": "namespace gone is being terminated", "field": "metadata.namespace"}]})
    );
    assert_eq!(
        terminating.message,
        "configmaps \"c\" is forbidden: unable to create new content in namespace gone because it is being terminated"
    );
    let default =
        run(&cluster(), Verb::Delete, "namespaces", "", json!({"metadata": {"name": "default"}}), None);
    assert_eq!(message(default), "namespaces \"default\" is forbidden: this namespace may not be deleted");
    assert!(
        run(&cluster(), Verb::Update, "configmaps", "gone", json!({"metadata": {"name": "c"}}), None).is_ok()
    );
}

#[test]
fn pod_gets_service_account_priority_and_tolerations() {
    let admitted = create(&cluster(), "pods", "n", pod(json!({}))).expect("admitted");
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        admitted["spec"],
        json!({
            "serviceAccountName": "default", "serviceAccount": "default", "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
        })
    );
    let tolerant = create(&cluster(), "pods", "n", pod(json!({"tolerations": [{"operator": "Exists"}]})))
        .expect("admitted");
    assert_eq!(tolerant["spec"]["tolerations"], json!([{"operator": "Exists"}]));
}

#[test]
fn priority_comes_from_priority_class() {
    let mut objects = cluster();
    objects.add(
        "scheduling.k8s.io",
        "priorityclasses",
        json!({"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}),
    );
    objects.add("scheduling.k8s.io", "priorityclasses",
        json!({"metadata": {"name": "default-priority"}, "value": 5, "globalDefault": true, "preemptionPolicy": "PreemptLowerPriority"}));
    let high = create(&objects, "pods", "n", pod(json!({"priorityClassName": "high"}))).expect("admitted");
    assert_eq!(
        (&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]),
        (&json!(100), &json!("Never"))
    );
    let default_priority = create(&objects, "pods", "n", pod(json!({}))).expect("admitted");
    assert_eq!(
        (&default_priority["spec"]["priority"], &default_priority["spec"]["priorityClassName"]),
        (&json!(5), &json!("default-priority"))
    );
    let system = create(&objects, "pods", "n", pod(json!({"priorityClassName": "system-node-critical"})))
        .expect("admitted");
    assert_eq!(system["spec"]["priority"], 2_000_001_000);
    assert_eq!(
        message(create(&objects, "pods", "n", pod(json!({"priorityClassName": "none"})))),
        "pods \"p\" is forbidden: no PriorityClass with name none was found"
    );
    assert_eq!(
        message(create(&objects, "pods", "n", pod(json!({"priority": 7})))),
        "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 5 from the given PriorityClass name"
    );
    let second = json!({"metadata": {"name": "second"}, "value": 1, "globalDefault": true});
    assert_eq!(
        message(create(&objects, "priorityclasses", "", second)),
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass default-priority is already marked as default. Only one default can exist"
    );
}

#[test]
fn service_accounts_other_than_default_must_exist() {
    let mut objects = cluster();
    assert_eq!(
        message(create(&objects, "pods", "n", pod(json!({"serviceAccountName": "robot"})))),
        "pods \"p\" is forbidden: error looking up service account n/robot: serviceaccount \"robot\" not found"
    );
    objects.add(
        "",
        "serviceaccounts",
        json!({"metadata": {"name": "robot", "namespace": "n"}, "imagePullSecrets": [{"name": "s"}]}),
    );
    let admitted =
        create(&objects, "pods", "n", pod(json!({"serviceAccountName": "robot"}))).expect("admitted");
    assert_eq!(admitted["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
}

#[test]
fn token_is_mounted_unless_disabled() {
    let mut objects = cluster();
    objects.add("", "serviceaccounts", json!({"metadata": {"name": "default", "namespace": "n"}}));
    let silent =
        json!({"metadata": {"name": "silent", "namespace": "n"}, "automountServiceAccountToken": false});
    objects.add("", "serviceaccounts", silent);
    let other = json!({"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    let containers = json!([{"name": "a"}, {"name": "b", "volumeMounts": [other]}]);
    let admitted = create(&objects, "pods", "n", pod(json!({"containers": containers}))).expect("admitted");
    let volume = &admitted["spec"]["volumes"][0];
    assert_eq!(volume["projected"]["sources"].as_array().map(Vec::len), Some(3));
    assert_eq!(admitted["spec"]["containers"][0]["volumeMounts"][0]["name"], volume["name"]);
    assert_eq!(admitted["spec"]["containers"][1]["volumeMounts"], json!([other]), "something else is there");
    for spec in [
        json!({"containers": [{"name": "a"}], "automountServiceAccountToken": false}),
        json!({"containers": [{"name": "a"}], "serviceAccountName": "silent"}),
    ] {
        let admitted = create(&objects, "pods", "n", pod(spec)).expect("admitted");
        assert_eq!(admitted["spec"].get("volumes"), None);
    }
}

#[test]
fn limit_ranges_set_defaults_and_bounds() {
    let mut objects = cluster();
    objects.add("", "limitranges", json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"},
            "max": {"cpu": "2"}, "min": {"cpu": "100m"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "3"}},
    ]}}));
    let defaulted = create(
        &objects,
        "pods",
        "n",
        pod(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]})),
    )
    .expect("admitted");
    assert_eq!(
        defaulted["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
    );
    assert_eq!(
        defaulted["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; memory limit for container c"
    );
    let container = |request: &str, limit: &str| json!({"name": "c", "resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}});
    let table = [
        (vec![container("1", "2500m")], "maximum cpu usage per Container is 2, but limit is 2500m"),
        (vec![container("50m", "150m")], "minimum cpu usage per Container is 100m, but request is 50m"),
        (
            vec![container("100m", "1")],
            "cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000",
        ),
        (vec![container("1", "2"), container("1", "2")], "maximum cpu usage per Pod is 3, but limit is 4"),
    ];
    for (containers, expected) in table {
        let answer = create(&objects, "pods", "n", pod(json!({"containers": containers})));
        assert_eq!(message(answer), format!("pods \"p\" is forbidden: {expected}"));
    }
}

#[test]
fn new_node_gets_not_ready_taint() {
    let node =
        create(&cluster(), "nodes", "", json!({"metadata": {"name": "a"}, "spec": {}})).expect("admitted");
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let again = create(&cluster(), "nodes", "", node.clone()).expect("admitted");
    assert_eq!(again, node);
    let update = run(&cluster(), Verb::Update, "nodes", "", json!({"metadata": {"name": "a"}}), None)
        .expect("admitted");
    assert_eq!(update, json!({"metadata": {"name": "a"}}));
}

#[test]
fn claim_gets_newest_default_storage_class() {
    let mut objects = cluster();
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    for (name, created) in
        [("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-02T00:00:00Z"), ("c", "2026-01-02T00:00:00Z")]
    {
        let metadata = json!({"name": name, "creationTimestamp": created, "annotations": default});
        objects.add("storage.k8s.io", "storageclasses", json!({"metadata": metadata}));
    }
    let claim =
        create(&objects, "persistentvolumeclaims", "n", json!({"metadata": {"name": "v"}, "spec": {}}))
            .expect("admitted");
    assert_eq!(claim["spec"]["storageClassName"], "b");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let none = json!({"metadata": {"name": "v"}, "spec": {"storageClassName": ""}});
    let classless = create(&objects, "persistentvolumeclaims", "n", none).expect("admitted");
    assert_eq!(classless["spec"]["storageClassName"], "");
}

#[test]
fn runtime_classes_add_overhead() {
    let mut objects = cluster();
    objects.add(
        "node.k8s.io",
        "runtimeclasses",
        json!({"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}}}),
    );
    let admitted = create(&objects, "pods", "n", pod(json!({"runtimeClassName": "vm"}))).expect("admitted");
    assert_eq!(admitted["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(admitted["spec"]["nodeSelector"], json!({"vm": "yes"}));
    assert_eq!(
        message(create(&objects, "pods", "n", pod(json!({"runtimeClassName": "none"})))),
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found"
    );
    assert_eq!(
        message(create(&objects, "pods", "n", pod(json!({"overhead": {"cpu": "1"}})))),
        "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
}
