use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::store::keep_all;

/// A server that answers streamed lists with the given response, and paged lists with one object.
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
async fn paged_list_is_used_if_server_does_not_stream() {
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
        let (store, task) = Store::<ConfigMap>::watch(&server(streamed), keep_all, &[]);
        tokio::time::timeout(std::time::Duration::from_secs(600), store.synced()).await.expect("synced");
        let names: Vec<_> = store.list().iter().map(|object| object.metadata.name.clone()).collect();
        assert_eq!(names, [Some("a".to_owned())]);
        task.abort();
    }
}

#[tokio::test]
async fn watch_failure_is_reported_until_the_watch_recovers() {
    let status =
        |code: u16, message: &str| Box::new(kube::core::Status::failure(message, "").with_code(code));
    let refused = |message: &str| watcher::Error::InitialListFailed(kube::Error::Api(status(403, message)));
    let store = Store::<ConfigMap>::empty(keep_all, &[]);
    store.clone().apply_events(futures::stream::iter([Ok(Event::Init), Err(refused("first"))])).await;
    let notified = Arc::new(Mutex::new(Vec::new()));
    let to = notified.clone();
    store.on_watch_failure(move |failure| to.lock().expect("ours").push(failure.clone()));
    // The event `Init`, the start of a list, does not end the failure.
    store.clone().apply_events(futures::stream::iter([Ok(Event::Init), Err(refused("second"))])).await;
    let failure = |message: &str, is_before_first_list| WatchFailure {
        message: message.to_owned(),
        is_before_first_list,
    };
    assert_eq!(store.watch_failure(), Some(failure("second", true)));
    store.clone().apply_events(futures::stream::iter([Ok(Event::Init), Ok(Event::InitDone)])).await;
    assert_eq!(store.watch_failure(), None);
    let expired = watcher::Error::WatchError(status(410, "too old"));
    let failed = watcher::Error::WatchFailed(kube::Error::Api(status(500, "third")));
    store.apply_events(futures::stream::iter([Err(expired), Err(failed)])).await;
    let notified = notified.lock().expect("ours").clone();
    assert_eq!(notified, [failure("first", true), failure("second", true), failure("third", false)]);
}
