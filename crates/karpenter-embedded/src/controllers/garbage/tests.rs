use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;
use serde_json::Value;

use super::*;
use crate::controllers::fixtures::{from, merge};

fn kind() -> Arc<ServedKind> {
    let resource = ApiResource {
        group: "".into(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    Arc::new(ServedKind { resource, namespaced: true, delete_collection: true })
}

fn owned_by(owners: &[(&str, bool)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(uid, blocks)| {
            json!({"apiVersion": "v1", "kind": "Thing", "name": uid, "uid": uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    json!({ "ownerReferences": owners })
}

fn deleting(finalizer: &str) -> Value {
    json!({"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": [finalizer]})
}

fn put(graph: &mut Graph, uid: &str, parts: &[Value]) -> Vec<String> {
    let mut meta = json!({"name": uid, "namespace": "default", "uid": uid});
    for part in parts {
        merge(&mut meta, part);
    }
    graph.put(uid, Item::of(&kind(), &from::<ObjectMeta>(meta)))
}

fn verdict(graph: &Graph, uid: &str) -> Verdict {
    graph.decide(uid).expect("known").1
}

fn uids(uids: &[&str]) -> BTreeSet<String> {
    uids.iter().map(ToString::to_string).collect()
}

#[test]
fn object_is_deleted_when_its_last_owner_is_gone() {
    let mut graph = Graph::default();
    put(&mut graph, "a", &[]);
    put(&mut graph, "b", &[]);
    put(&mut graph, "child", &[owned_by(&[("a", true), ("b", true)])]);
    assert_eq!(verdict(&graph, "child"), Verdict::Keep);
    assert_eq!(graph.remove("a"), ["child"]);
    assert_eq!(verdict(&graph, "child"), Verdict::RemoveOwnerReferences(uids(&["a"])));
    graph.remove("b");
    assert_eq!(verdict(&graph, "child"), Verdict::Delete(PropagationPolicy::Background));
}

#[test]
fn unknown_owner_is_looked_up() {
    let mut graph = Graph::default();
    put(&mut graph, "child", &[owned_by(&[("a", true)])]);
    assert!(matches!(verdict(&graph, "child"), Verdict::LookUpOwner(owner) if owner.uid == "a"));
    graph.record_present("child", "a");
    assert_eq!(verdict(&graph, "child"), Verdict::Keep);
    let mut graph = Graph::default();
    put(&mut graph, "child", &[owned_by(&[("a", true)])]);
    graph.record_absent("a");
    assert_eq!(verdict(&graph, "child"), Verdict::Delete(PropagationPolicy::Background));
}

#[test]
fn foreground_deletion_deletes_blocking_dependents_first() {
    let mut graph = Graph::default();
    put(&mut graph, "a", &[]);
    put(&mut graph, "child", &[owned_by(&[("a", true)])]);
    put(&mut graph, "grandchild", &[owned_by(&[("child", true)])]);
    put(&mut graph, "loose", &[owned_by(&[("a", false)])]);
    let affected = put(&mut graph, "a", &[deleting("foregroundDeletion")]);
    assert!(affected.contains(&"child".to_string()));
    assert_eq!(verdict(&graph, "a"), Verdict::Keep);
    assert_eq!(verdict(&graph, "child"), Verdict::Delete(PropagationPolicy::Foreground));
    assert_eq!(verdict(&graph, "loose"), Verdict::Keep);
    put(&mut graph, "child", &[owned_by(&[("a", true)]), deleting("foregroundDeletion")]);
    assert_eq!(verdict(&graph, "grandchild"), Verdict::Delete(PropagationPolicy::Background));
    assert_eq!(graph.remove("grandchild"), ["child"]);
    assert_eq!(verdict(&graph, "child"), Verdict::Finish);
    assert_eq!(graph.remove("child"), ["a"]);
    assert_eq!(verdict(&graph, "a"), Verdict::Finish);
}

#[test]
fn orphaned_dependents_lose_their_owner_reference() {
    let mut graph = Graph::default();
    put(&mut graph, "a", &[]);
    put(&mut graph, "child", &[owned_by(&[("a", true)])]);
    put(&mut graph, "a", &[deleting("orphan")]);
    match verdict(&graph, "a") {
        Verdict::Orphan(dependents) => assert_eq!(dependents[0].0, "child"),
        other => panic!("{other:?}"),
    }
    assert_eq!(put(&mut graph, "child", &[]), ["a"]);
    graph.remove("a");
    assert_eq!(verdict(&graph, "child"), Verdict::Keep);
}

#[test]
fn unrelated_changes_enqueue_nothing() {
    let mut graph = Graph::default();
    assert!(put(&mut graph, "a", &[]).is_empty());
    assert_eq!(put(&mut graph, "child", &[owned_by(&[("a", true)])]), ["child"]);
    assert!(put(&mut graph, "child", &[owned_by(&[("a", true)]), json!({"labels": {"x": "y"}})]).is_empty());
}
