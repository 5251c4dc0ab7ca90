use serde_json::{Value, json};

use super::plan::{claims, new_pod, plan, status};
use super::*;
use crate::controllers::fixtures::{from, merge, now, pod as any_pod};

fn set(patch: Value) -> StatefulSet {
    let mut object = json!({
        "metadata": {"name": "db", "namespace": "default", "uid": "s", "generation": 1},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "v2"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        },
    });
    merge(&mut object, &patch);
    from(object)
}

fn revision(name: &str) -> ControllerRevision {
    from(json!({"metadata": {"name": name}, "revision": 1}))
}

fn pod(ordinal: i32, revision: &str, patch: Value) -> Arc<Pod> {
    let mut with = json!({"metadata": {"labels": {REVISION_HASH: revision}}});
    merge(&mut with, &patch);
    any_pod(&format!("db-{ordinal}"), with)
}

fn steps(set: &StatefulSet, pods: &[Arc<Pod>]) -> Vec<Step> {
    plan(set, &revision("old"), &revision("new"), pods, now())
}

fn create(ordinal: i32) -> Step {
    Step::Create { ordinal, from_current: false }
}

fn delete(name: &str) -> Step {
    Step::Delete { name: name.into() }
}

const UNREADY: &str = r#"{"status": {"conditions": []}}"#;

fn unready() -> Value {
    serde_json::from_str(UNREADY).expect("JSON")
}

#[test]
fn ordered_pods_are_created_one_at_a_time() {
    assert_eq!(steps(&set(json!({})), &[]), [create(0)]);
    assert_eq!(steps(&set(json!({})), &[pod(0, "new", unready())]), []);
    assert_eq!(steps(&set(json!({})), &[pod(0, "new", json!({}))]), [create(1)]);
    let parallel = set(json!({"spec": {"podManagementPolicy": "Parallel"}}));
    assert_eq!(steps(&parallel, &[]), [create(0), create(1), create(2)]);
    let offset = set(json!({"spec": {"ordinals": {"start": 5}}}));
    assert_eq!(steps(&offset, &[]), [create(5)]);
}

#[test]
fn failed_pods_are_replaced() {
    let failed = pod(0, "new", json!({"status": {"phase": "Failed"}}));
    assert_eq!(steps(&set(json!({})), &[failed]), [delete("db-0")]);
}

#[test]
fn scale_down_deletes_the_highest_ordinal_and_waits() {
    let small = set(json!({"spec": {"replicas": 1}}));
    let all = [pod(0, "new", json!({})), pod(1, "new", json!({})), pod(2, "new", json!({}))];
    assert_eq!(steps(&small, &all), [delete("db-2")]);
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}});
    let waiting = [pod(0, "new", json!({})), pod(1, "new", json!({})), pod(2, "new", gone)];
    assert_eq!(steps(&small, &waiting), []);
    // An unhealthy pod with a lower ordinal blocks the order.
    let stuck = [pod(0, "new", json!({})), pod(1, "new", unready()), pod(2, "new", unready())];
    assert_eq!(steps(&small, &stuck), []);
}

#[test]
fn rolling_update_goes_from_highest_ordinal_to_partition() {
    let old = [pod(0, "old", json!({})), pod(1, "old", json!({})), pod(2, "old", json!({}))];
    assert_eq!(steps(&set(json!({})), &old), [delete("db-2")]);
    let next = [pod(0, "old", json!({})), pod(1, "old", json!({})), pod(2, "new", json!({}))];
    assert_eq!(steps(&set(json!({})), &next), [delete("db-1")]);
    let partition = set(json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}));
    assert_eq!(steps(&partition, &next), []);
    // A pod below the partition is recreated with its old revision.
    let lost = [pod(1, "old", json!({})), pod(2, "new", json!({}))];
    assert_eq!(steps(&partition, &lost), [Step::Create { ordinal: 0, from_current: true }]);
    let manual = set(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    assert_eq!(steps(&manual, &old), []);
}

#[test]
fn pod_has_stable_name_hostname_and_claims() {
    let set = set(json!({}));
    let pod = new_pod(&set, &revision("new"), 1);
    assert_eq!(pod.metadata.name.as_deref(), Some("db-1"));
    assert_eq!(label(&pod, "apps.kubernetes.io/pod-index"), Some("1"));
    let spec = pod.spec.as_ref().expect("spec");
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-1"), Some("db")));
    assert_eq!(crate::stores::claims_of(&pod), ["data-db-1"]);
    let claims = claims(&set, 1);
    assert_eq!(name_of(&claims[0]), "data-db-1");
    assert_eq!(label(&claims[0], "app"), Some("db"));
}

#[test]
fn complete_rolling_update_sets_current_revision() {
    let rolling = [pod(0, "old", json!({})), pod(1, "new", json!({})), pod(2, "new", json!({}))];
    let during = status(&set(json!({})), &revision("old"), &revision("new"), &rolling, now());
    assert_eq!(during.current_revision.as_deref(), Some("old"));
    assert_eq!((during.current_replicas, during.updated_replicas), (Some(1), Some(2)));
    let done = [pod(0, "new", json!({})), pod(1, "new", json!({})), pod(2, "new", json!({}))];
    let after = status(&set(json!({})), &revision("old"), &revision("new"), &done, now());
    assert_eq!(after.current_revision.as_deref(), Some("new"));
    assert_eq!((after.current_replicas, after.updated_replicas), (Some(3), Some(3)));
}
