use std::io::Error;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, Response, Uri};
use http_body_util::Full;
use k8s_openapi::api::core::v1::Pod;
use karpenter_runtime::protobuf::list_stream::{events, list_of};
use karpenter_runtime::protobuf::{protobuf_client, to_json};
use kube::api::Api;
use kube::client::Body;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fields::PODS_AND_NODES;

const PODS: &[u8] = include_bytes!("../recorded/pods.pb");
const WATCH: &[u8] = include_bytes!("../recorded/watch.pb");
const STATUS: &[u8] = include_bytes!("../recorded/status.pb");

fn lines(bytes: &[u8], size: usize) -> Result<Vec<Value>, Error> {
    let chunks = stream::iter(bytes.chunks(size).map(|chunk| Ok(Bytes::copy_from_slice(chunk))));
    let lines: Vec<Bytes> = block_on(events(chunks, PODS_AND_NODES).try_collect())?;
    Ok(lines.iter().map(|line| serde_json::from_slice(line).expect("JSON")).collect())
}

#[test]
fn list_is_converted_independent_of_chunk_boundaries() {
    let whole = lines(PODS, usize::MAX).expect("decoded");
    let list: Value =
        serde_json::from_slice(&to_json::object(PODS, PODS_AND_NODES).expect("decoded")).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let (last, added) = whole.split_last().expect("lines");
    assert_eq!(added.len(), items.len());
    for (line, item) in added.iter().zip(items) {
        assert_eq!(line["type"], "ADDED");
        let mut object = line["object"].clone();
        let types = object.as_object_mut().map(|object| (object.remove("apiVersion"), object.remove("kind")));
        assert_eq!(
            types,
            Some((Some(json!("v1")), Some(json!("Pod")))),
            "the list has the type, not its items"
        );
        assert_eq!(&object, item);
    }
    assert_eq!(last["type"], "BOOKMARK");
    assert_eq!(last["object"]["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
    for size in [1, 3, 7, 1000] {
        assert_eq!(lines(PODS, size).expect("decoded"), whole, "in chunks of {size}");
    }
}

#[test]
fn truncated_list_has_no_final_bookmark() {
    let cut = lines(&PODS[..PODS.len() / 2], 100).expect_err("cut off");
    assert_ne!(cut.kind(), std::io::ErrorKind::InvalidData, "it is no decoding error");
    let other = lines(STATUS, 100).expect_err("no list");
    assert_eq!(other.kind(), std::io::ErrorKind::InvalidData);
}

proptest! {
    #[test]
    fn malformed_input_does_not_panic(at in 0..PODS.len(), byte: u8, cut in 0..PODS.len()) {
        let mut bytes = PODS.to_vec();
        bytes[at] = byte;
        for bytes in [&bytes[..], &PODS[..cut]] {
            let _ = lines(bytes, 512);
        }
    }
}

#[test]
fn only_watches_with_initial_events_become_lists() {
    let cases = [
        (
            "/api/v1/pods?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&resourceVersion=0",
            Some("/api/v1/pods"),
        ),
        (
            "/api/v1/pods?watch=true&fieldSelector=a%3Db&sendInitialEvents=true",
            Some("/api/v1/pods?fieldSelector=a%3Db"),
        ),
        ("/api/v1/pods?watch=true&resourceVersion=5", None),
        ("/api/v1/pods?limit=500", None),
        ("/api/v1/pods", None),
    ];
    for (asked, expected) in cases {
        let asked: Uri = asked.parse().expect("a path");
        assert_eq!(list_of(&asked).map(|uri| uri.to_string()).as_deref(), expected, "{asked}");
    }
}

/// A test server with this minor version; it answers lists and watches with recorded responses and records requests.
fn server(minor: &'static str, asked: Arc<Mutex<Vec<String>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().to_string();
        asked.lock().expect("asked").push(path.clone());
        let protobuf = "application/vnd.kubernetes.protobuf";
        let (kind, body) = match path.as_str() {
            "/version" => {
                let version = json!({
                    "major": "1", "minor": minor, "gitVersion": "", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
                });
                ("application/json", Bytes::from(version.to_string()))
            }
            "/api/v1/pods" => (protobuf, Bytes::from_static(PODS)),
            _ => ("application/vnd.kubernetes.protobuf;stream=watch", Bytes::from_static(WATCH)),
        };
        let answer = Response::builder().header("content-type", kind).body(Full::new(body));
        async move { answer.map_err(Error::other) }
    });
    Client::new(service, "default")
}

/// The first events that a watcher gets, and the requests that the server got.
async fn initial_events(minor: &'static str) -> (Vec<String>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let api = Api::<Pod>::all(protobuf_client(&server(minor, asked.clone()), PODS_AND_NODES, |_| {}));
    let config = watcher::Config::default().streaming_lists();
    let events = watcher::watcher(api, config).take(3).map(|event| match event.expect("an event") {
        Event::Init => "init".to_owned(),
        Event::InitApply(pod) => pod.name_any(),
        Event::InitDone => "done".to_owned(),
        other => panic!("{other:?}"),
    });
    let events = events.collect().await;
    let asked = std::mem::take(&mut *asked.lock().expect("asked"));
    let kind_of = |path: String| if path.contains("watch=true") { "watch".to_owned() } else { path };
    (events, asked.into_iter().map(kind_of).collect())
}

#[tokio::test]
async fn watcher_gets_the_same_events_from_old_and_new_servers() {
    let (of_list, asked) = initial_events("35+").await;
    assert_eq!(of_list, ["init", "rich", "done"]);
    assert_eq!(asked, ["/version", "/api/v1/pods"]);
    let (of_watch, asked) = initial_events("32").await;
    assert_eq!(of_watch, of_list);
    assert_eq!(asked, ["/version", "watch"]);
}
