use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::*;

fn config_map(name: &str, version: u64, owner: &str) -> ConfigMap {
    let meta = ObjectMeta {
        namespace: Some("default".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some(version.to_string()),
        labels: Some([("owner".to_string(), owner.to_string())].into()),
        managed_fields: Some(Vec::new()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata: meta, ..ConfigMap::default() }
}

fn owner(object: &ConfigMap) -> Vec<String> {
    object.metadata.labels.iter().flatten().map(|(_, value)| value.clone()).collect()
}

fn store() -> Store<ConfigMap> {
    Store::empty(keep_all, &[("owner", owner)])
}

fn names(found: &[Arc<ConfigMap>]) -> Vec<String> {
    found.iter().map(|object| object.metadata.name.clone().unwrap_or_default()).collect()
}

#[test]
fn index_follows_changed_values() {
    let store = store();
    store.handle(Event::Apply(config_map("a", 1, "x")));
    store.handle(Event::Apply(config_map("b", 2, "x")));
    store.handle(Event::Apply(config_map("a", 3, "y")));
    assert_eq!(names(&store.by("owner", "x")), ["b"]);
    assert_eq!(names(&store.by("owner", "y")), ["a"]);
    store.handle(Event::Delete(config_map("a", 4, "y")));
    assert!(store.by("owner", "y").is_empty());
    assert_eq!(store.len(), 1);
}

#[test]
fn own_writes_are_visible_and_not_undone_by_older_events() {
    let store = store();
    store.handle(Event::Apply(config_map("a", 1, "x")));
    store.apply(config_map("a", 5, "y"));
    store.handle(Event::Apply(config_map("a", 3, "x")));
    assert_eq!(names(&store.by("owner", "y")), ["a"]);
}

#[test]
fn late_response_does_not_restore_deleted_object() {
    let store = store();
    store.handle(Event::Apply(config_map("a", 5, "x")));
    store.handle(Event::Delete(config_map("a", 6, "x")));
    store.apply(config_map("a", 5, "x"));
    assert!(store.is_empty());
}

#[test]
fn new_list_removes_missing_objects() {
    let store = store();
    let mut changes = store.subscribe();
    store.handle(Event::Apply(config_map("a", 1, "x")));
    store.handle(Event::Init);
    assert!(!store.is_synced());
    store.handle(Event::InitApply(config_map("b", 2, "x")));
    store.handle(Event::InitDone);
    assert!(store.is_synced());
    assert_eq!(names(&store.list()), ["b"]);
    let mut seen = Vec::new();
    while let Ok(change) = changes.try_recv() {
        seen.push((change.is_deleted(), change.object().metadata.name.clone().unwrap_or_default()));
    }
    assert_eq!(seen, [(false, "a".to_string()), (false, "b".to_string()), (true, "a".to_string())]);
}

#[test]
fn subscriber_gets_present_objects_first() {
    let store = store();
    store.handle(Event::Apply(config_map("b", 1, "x")));
    store.handle(Event::Apply(config_map("a", 2, "x")));
    let mut changes = store.subscribe();
    let first = changes.try_recv().expect("present object");
    assert_eq!(first.object().metadata.name.as_deref(), Some("a"));
    assert!(first.object().metadata.managed_fields.is_none());
}

#[test]
fn older_list_does_not_undo_a_write() {
    let store = store();
    store.handle(Event::Init);
    store.apply(config_map("written", 7, "x"));
    store.apply(config_map("older", 4, "x"));
    store.handle(Event::InitApply(config_map("listed", 5, "x")));
    store.handle(Event::InitDone);
    assert_eq!(names(&store.list()), ["listed", "written"]);
    // After the watch was interrupted, the objects of a second list replace the first ones.
    store.handle(Event::Init);
    store.handle(Event::InitApply(config_map("listed", 5, "x")));
    store.handle(Event::InitDone);
    assert_eq!(names(&store.list()), ["listed"]);
}

#[test]
fn equivalent_versions_are_stored_without_notification() {
    let identity = KindSpec {
        is_equivalent: |old: &ConfigMap, new: &ConfigMap| old.metadata.labels == new.metadata.labels,
        ..KindSpec::of_objects()
    };
    let store = Store::of(identity, keep_all, &[("owner", owner as IndexValues<ConfigMap>)]);
    let mut changes = store.subscribe();
    store.handle(Event::Apply(config_map("a", 1, "x")));
    store.handle(Event::Apply(config_map("a", 2, "x")));
    assert_eq!(
        store.get("default", "a").and_then(|a| a.metadata.resource_version.clone()).as_deref(),
        Some("2")
    );
    assert_eq!(store.by("owner", "x")[0].metadata.resource_version.as_deref(), Some("2"));
    store.handle(Event::Apply(config_map("a", 3, "y")));
    let notified = std::iter::from_fn(|| changes.try_recv().ok()).count();
    assert_eq!(notified, 2);
}
