//! Small clusters: where a pod is scheduled, or the message if it is unschedulable. The expected values follow the
//! source of kube-scheduler v1.35.

mod interpod;
mod nodes;
mod preempting;
mod properties;
mod scoring;
mod spreading;
mod storage;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Decision, PodInfo, Snapshot, schedule_one};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a well-formed object")
}

/// Merges `over` into `base`, object by object.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// A node with 4 cpus, 8Gi and at most ten pods, changed by `over`.
fn node(name: &str, over: Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    });
    merge(&mut node, over);
    node
}

fn in_zone(name: &str, zone: &str) -> Value {
    node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}

fn pod(name: &str, spec: Value) -> Value {
    labelled(name, json!({}), spec)
}

fn labelled(name: &str, labels: Value, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]},
    });
    merge(&mut pod, json!({"spec": spec}));
    pod
}

fn on(node: &str, mut pod: Value) -> Value {
    merge(&mut pod, json!({"spec": {"nodeName": node}}));
    pod
}

fn requests(requests: Value) -> Value {
    json!({"containers": [{"name": "main", "resources": {"requests": requests}}]})
}

fn cluster(nodes: impl IntoIterator<Item = Value>, pods: impl IntoIterator<Item = Value>) -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.apply_namespace(&read(json!({"metadata": {"name": "default", "labels": {"team": "a"}}})));
    for node in nodes {
        snapshot.apply_node(&read(node));
    }
    for pod in pods {
        snapshot.apply_pod(&read(pod));
    }
    snapshot
}

fn decide(snapshot: &mut Snapshot, pod: Value) -> Decision {
    schedule_one(snapshot, &PodInfo::parse(&read(pod)))
}

#[track_caller]
fn assert_bound(snapshot: &mut Snapshot, pod: Value, expected: &str) {
    match decide(snapshot, pod) {
        Decision::Bind { node, .. } => assert_eq!(&*node, expected),
        other => panic!("expected {expected}, got {other:?}"),
    }
}

/// Compares the part of the message before the one about preemption.
#[track_caller]
fn assert_refused(snapshot: &mut Snapshot, pod: Value, expected: &str) {
    let message = message(snapshot, pod);
    let (reasons, _) =
        message.split_once(" no new claims to deallocate, preemption: ").unwrap_or((&message, ""));
    assert_eq!(reasons.trim_end_matches(" not found"), expected);
}

#[track_caller]
fn message(snapshot: &mut Snapshot, pod: Value) -> String {
    match decide(snapshot, pod) {
        Decision::Unschedulable { failure, .. } | Decision::Nominate { failure, .. } => failure.message,
        other => panic!("expected an unschedulable pod, got {other:?}"),
    }
}
