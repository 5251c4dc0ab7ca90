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

#[test]
fn a_list_from_before_a_write_does_not_undo_it() {
    let mirror = mirror();
    mirror.handle(Event::Init);
    mirror.apply(config_map("written", 7, "x"));
    mirror.apply(config_map("older", 4, "x"));
    mirror.handle(Event::InitApply(config_map("listed", 5, "x")));
    mirror.handle(Event::InitDone);
    assert_eq!(names(&mirror.list()), ["listed", "written"]);
    // The next list counts again.
    mirror.handle(Event::Init);
    mirror.handle(Event::InitApply(config_map("listed", 5, "x")));
    mirror.handle(Event::InitDone);
    assert_eq!(names(&mirror.list()), ["listed"]);
}

#[test]
fn what_says_nothing_new_is_kept_and_nobody_is_told() {
    let identity = Identity {
        is_same: |old: &ConfigMap, new: &ConfigMap| old.metadata.labels == new.metadata.labels,
        ..Identity::of_objects()
    };
    let mirror = Mirror::of(identity, keep_all, &[("owner", owner as IndexValues<ConfigMap>)]);
    let mut changes = mirror.subscribe();
    mirror.handle(Event::Apply(config_map("a", 1, "x")));
    mirror.handle(Event::Apply(config_map("a", 2, "x")));
    assert_eq!(
        mirror.get("default", "a").and_then(|a| a.metadata.resource_version.clone()).as_deref(),
        Some("2")
    );
    assert_eq!(mirror.by("owner", "x")[0].metadata.resource_version.as_deref(), Some("2"));
    mirror.handle(Event::Apply(config_map("a", 3, "y")));
    let told = std::iter::from_fn(|| changes.try_recv().ok()).count();
    assert_eq!(told, 2);
}

/// A server that answers streamed lists as it was told to, and lists in pages with one object.
fn server(streamed: fn() -> http::Response<String>) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        let answer = if query.contains("sendInitialEvents") {
            streamed()
        } else if query.contains("watch=true") {
            http::Response::new(String::new())
        } else {
            let meta = r#"{"name": "a", "namespace": "default", "resourceVersion": "1"}"#;
            let list = format!(
                r#"{{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {{"resourceVersion": "2"}},
                    "items": [{{"metadata": {meta}}}]}}"#
            );
            http::Response::new(list)
        };
        Ok::<_, std::io::Error>(answer.map(|body| http_body_util::Full::new(bytes::Bytes::from(body))))
    });
    Client::new(service, "default")
}

const REFUSAL: &str = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": CODE, "message": "no",
    "reason": "Invalid"}"#;

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_stream_is_asked_for_pages() {
    let at_once = || {
        let mut answer = http::Response::new(REFUSAL.replace("CODE", "422"));
        *answer.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
        answer
    };
    let in_the_stream = || {
        let status = REFUSAL.replace("CODE", "500").replace('\n', "");
        http::Response::new(format!("{{\"type\": \"ERROR\", \"object\": {status}}}\n"))
    };
    for streamed in [at_once as fn() -> http::Response<String>, in_the_stream] {
        let (mirror, task) = Mirror::<ConfigMap>::watch(&server(streamed), keep_all, &[]);
        tokio::time::timeout(std::time::Duration::from_secs(600), mirror.synced()).await.expect("synced");
        assert_eq!(names(&mirror.list()), ["a"]);
        task.abort();
    }
}

#[tokio::test]
async fn failures_of_the_watch_are_told_until_it_works_again() {
    let status =
        |code: u16, message: &str| Box::new(kube::core::Status::failure(message, "").with_code(code));
    let refused = |message: &str| watcher::Error::InitialListFailed(kube::Error::Api(status(403, message)));
    let mirror = mirror();
    mirror.clone().feed(futures::stream::iter([Ok(Event::Init), Err(refused("first"))])).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = told.clone();
    mirror.on_trouble(move |trouble| to.lock().expect("ours").push(trouble.clone()));
    // To begin a list is no success yet.
    mirror.clone().feed(futures::stream::iter([Ok(Event::Init), Err(refused("second"))])).await;
    let trouble = |message: &str, is_empty_handed| Trouble { message: message.to_owned(), is_empty_handed };
    assert_eq!(mirror.trouble(), Some(trouble("second", true)));
    mirror.clone().feed(futures::stream::iter([Ok(Event::Init), Ok(Event::InitDone)])).await;
    assert_eq!(mirror.trouble(), None);
    let expired = watcher::Error::WatchError(status(410, "too old"));
    let failed = watcher::Error::WatchFailed(kube::Error::Api(status(500, "third")));
    mirror.feed(futures::stream::iter([Err(expired), Err(failed)])).await;
    let told = told.lock().expect("ours").clone();
    assert_eq!(told, [trouble("first", true), trouble("second", true), trouble("third", false)]);
}
