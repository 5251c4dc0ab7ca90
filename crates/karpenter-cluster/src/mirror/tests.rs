use k8s_openapi::api::core::v1::ConfigMap;

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

fn mirror() -> Mirror<ConfigMap> {
    Mirror::empty(keep_all, &[("owner", owner)])
}

fn names(found: &[Arc<ConfigMap>]) -> Vec<String> {
    found.iter().map(|object| object.metadata.name.clone().unwrap_or_default()).collect()
}

#[test]
fn an_object_leaves_the_index_value_it_had() {
    let mirror = mirror();
    mirror.handle(Event::Apply(config_map("a", 1, "x")));
    mirror.handle(Event::Apply(config_map("b", 2, "x")));
    mirror.handle(Event::Apply(config_map("a", 3, "y")));
    assert_eq!(names(&mirror.by("owner", "x")), ["b"]);
    assert_eq!(names(&mirror.by("owner", "y")), ["a"]);
    mirror.handle(Event::Delete(config_map("a", 4, "y")));
    assert!(mirror.by("owner", "y").is_empty());
    assert_eq!(mirror.len(), 1);
}

#[test]
fn own_writes_show_at_once_and_older_readings_do_not_undo_them() {
    let mirror = mirror();
    mirror.handle(Event::Apply(config_map("a", 1, "x")));
    mirror.apply(config_map("a", 5, "y"));
    mirror.handle(Event::Apply(config_map("a", 3, "x")));
    assert_eq!(names(&mirror.by("owner", "y")), ["a"]);
}

#[test]
fn a_late_answer_does_not_raise_the_dead() {
    let mirror = mirror();
    mirror.handle(Event::Apply(config_map("a", 5, "x")));
    mirror.handle(Event::Delete(config_map("a", 6, "x")));
    mirror.apply(config_map("a", 5, "x"));
    assert!(mirror.is_empty());
}

#[test]
fn a_new_list_removes_what_it_lacks() {
    let mirror = mirror();
    let mut changes = mirror.subscribe();
    mirror.handle(Event::Apply(config_map("a", 1, "x")));
    mirror.handle(Event::Init);
    assert!(!mirror.is_synced());
    mirror.handle(Event::InitApply(config_map("b", 2, "x")));
    mirror.handle(Event::InitDone);
    assert!(mirror.is_synced());
    assert_eq!(names(&mirror.list()), ["b"]);
    let mut seen = Vec::new();
    while let Ok(change) = changes.try_recv() {
        seen.push((change.is_deleted(), change.object().metadata.name.clone().unwrap_or_default()));
    }
    assert_eq!(seen, [(false, "a".to_string()), (false, "b".to_string()), (true, "a".to_string())]);
}

#[test]
fn a_subscriber_first_gets_what_is_there() {
    let mirror = mirror();
    mirror.handle(Event::Apply(config_map("b", 1, "x")));
    mirror.handle(Event::Apply(config_map("a", 2, "x")));
    let mut changes = mirror.subscribe();
    let first = changes.try_recv().expect("present object");
    assert_eq!(first.object().metadata.name.as_deref(), Some("a"));
    assert!(first.object().metadata.managed_fields.is_none());
}
