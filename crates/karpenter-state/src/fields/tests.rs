//! Tests of reading protobuf with the tables of fields. `recorded` has responses of a real kube-apiserver (1.35.4) with
//! a pod and a node in which every field that is read is set, as protobuf and as JSON.

mod every_field;
mod go;
mod list_stream;

use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{TryStreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::protobuf::{messages, protobuf_client, to_json};
use kube::Client;
use kube::api::Api;
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const POD: &[u8] = include_bytes!("recorded/pod.pb");
const PODS: &[u8] = include_bytes!("recorded/pods.pb");
const NODE: &[u8] = include_bytes!("recorded/node.pb");
const STATUS: &[u8] = include_bytes!("recorded/status.pb");
const WATCH: &[u8] = include_bytes!("recorded/watch.pb");

fn read_json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

fn pod_json() -> Value {
    read_json(include_bytes!("recorded/pod.json"))
}

/// The parts of the server's JSON that the converted JSON has too.
fn as_far_as(converted: &Value, full: &Value, path: &str) -> Value {
    match (converted, full) {
        (Value::Object(converted), Value::Object(full)) => {
            let known = converted.iter().map(|(key, value)| {
                let path = format!("{path}.{key}");
                let of_full = full.get(key).unwrap_or_else(|| panic!("{path} is not in the JSON"));
                (key.clone(), as_far_as(value, of_full, &path))
            });
            Value::Object(known.collect::<Map<_, _>>())
        }
        (Value::Array(converted), Value::Array(full)) => {
            assert_eq!(converted.len(), full.len(), "{path}");
            let pairs = converted.iter().zip(full);
            pairs.map(|(converted, full)| as_far_as(converted, full, path)).collect()
        }
        (_, full) => full.clone(),
    }
}

#[test]
fn converted_fields_equal_the_json_of_the_server() {
    for (name, protobuf, full) in
        [("pod", POD, pod_json()), ("node", NODE, read_json(include_bytes!("recorded/node.json")))]
    {
        let converted = read_json(&to_json::object(protobuf, PODS_AND_NODES).expect("understood"));
        assert_eq!(converted, as_far_as(&converted, &full, ""), "{name}");
    }
}

#[test]
fn all_fields_of_the_table_are_converted() {
    let mut full = pod_json();
    let drop = |value: &mut Value, fields: &[&str]| {
        let object = value.as_object_mut().expect("an object");
        fields.iter().for_each(|field| drop(object.remove(*field)));
    };
    drop(
        &mut full["spec"],
        &["dnsPolicy", "enableServiceLinks", "securityContext", "serviceAccount", "serviceAccountName"],
    );
    drop(&mut full["status"], &["qosClass", "observedGeneration", "podIPs"]);
    for list in ["containers", "initContainers"] {
        for container in full["spec"][list].as_array_mut().expect("containers") {
            let how = [
                "image",
                "env",
                "imagePullPolicy",
                "terminationMessagePath",
                "terminationMessagePolicy",
                "volumeMounts",
            ];
            drop(container, &how);
        }
    }
    for volume in full["spec"]["volumes"].as_array_mut().expect("volumes") {
        drop(volume, &["emptyDir", "projected"]);
    }
    for condition in full["status"]["conditions"].as_array_mut().expect("conditions") {
        drop(condition, &["lastProbeTime", "message", "observedGeneration"]);
        if condition["lastTransitionTime"].is_null() {
            drop(condition, &["lastTransitionTime"]);
        }
    }
    for status in full["status"]["containerStatuses"].as_array_mut().expect("statuses") {
        drop(status, &["image", "imageID", "ready", "restartCount", "state", "lastState"]);
    }
    let template = &mut full["spec"]["volumes"][2]["ephemeral"]["volumeClaimTemplate"]["metadata"];
    drop(template, &["creationTimestamp"]);
    let converted = read_json(&to_json::object(POD, PODS_AND_NODES).expect("understood"));
    assert_eq!(converted, full);
}

#[test]
fn lists_and_error_statuses_are_converted() {
    let list = read_json(&to_json::object(PODS, PODS_AND_NODES).expect("understood"));
    assert_eq!(list["kind"], "PodList");
    assert!(list["metadata"]["resourceVersion"].is_string());
    assert_eq!(list["items"][0]["metadata"]["name"], "rich");
    let status = read_json(&to_json::object(STATUS, PODS_AND_NODES).expect("understood"));
    assert_eq!(status["kind"], "Status");
    assert_eq!((&status["code"], &status["reason"]), (&json!(404), &json!("NotFound")));
    assert_eq!(status["details"], json!({"name": "none", "kind": "pods"}));
}

/// The lines of a watch whose bytes arrive in chunks of this size.
fn lines(size: usize) -> Vec<Value> {
    let chunks = stream::iter(WATCH.chunks(size).map(|chunk| Ok(Bytes::copy_from_slice(chunk))));
    let messages: Vec<Bytes> = block_on(messages(chunks).try_collect()).expect("messages");
    messages
        .iter()
        .map(|message| read_json(&to_json::event(message, PODS_AND_NODES).expect("understood")))
        .collect()
}

#[test]
fn watch_is_converted_independent_of_chunk_boundaries() {
    let whole = lines(usize::MAX);
    let kinds: Vec<&str> = whole.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(kinds, ["ADDED", "BOOKMARK"]);
    assert_eq!(whole[0]["object"]["spec"]["tolerations"], pod_json()["spec"]["tolerations"]);
    assert_eq!(whole[1]["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    for size in [1, 3, 4, 5, 1000] {
        assert_eq!(lines(size), whole, "in chunks of {size}");
    }
}

proptest! {
    #[test]
    fn malformed_input_does_not_panic(at in 0..POD.len(), byte: u8, cut in 0..POD.len()) {
        let mut bytes = POD.to_vec();
        bytes[at] = byte;
        for bytes in [&bytes[..], &POD[..cut]] {
            if let Some(text) = to_json::object(bytes, PODS_AND_NODES) {
                prop_assert!(serde_json::from_slice::<Value>(&text).is_ok());
            }
        }
    }
}

/// A server that answers every request with the same bytes and counts requests for protobuf.
fn server(kind: &'static str, body: &'static [u8]) -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        count.fetch_add(usize::from(accepts.contains("protobuf")), Ordering::Relaxed);
        let answer = Response::builder().header(CONTENT_TYPE, kind).body(Full::new(Bytes::from_static(body)));
        async move { answer.map_err(Error::other) }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn caller_gets_the_same_objects_with_and_without_protobuf() {
    let (client, asked) = server(PROTOBUF, POD);
    let dense_pod = Api::<Pod>::default_namespaced(protobuf_client(&client, PODS_AND_NODES, |_| {}))
        .get("rich")
        .await
        .expect("a pod");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let (client, _) = server("application/json", include_bytes!("recorded/pod.json"));
    let pod = Api::<Pod>::default_namespaced(protobuf_client(&client, PODS_AND_NODES, |_| {}))
        .get("rich")
        .await
        .expect("a pod");
    assert_eq!(dense_pod.metadata, pod.metadata);
    assert_eq!(dense_pod.spec.map(|spec| spec.affinity), pod.spec.map(|spec| spec.affinity));
    let (client, _) = server(PROTOBUF, NODE);
    let node =
        Api::<Node>::all(protobuf_client(&client, PODS_AND_NODES, |_| {})).get("rich").await.expect("a node");
    assert_eq!(node.spec.and_then(|spec| spec.provider_id).as_deref(), Some("kwok://rich"));
}

#[tokio::test]
async fn protobuf_is_disabled_after_undecodable_response() {
    static TOLD: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let (client, asked) = server(PROTOBUF, b"k8s\0something else");
    let tell = |_: &str| {
        TOLD.fetch_add(1, Ordering::Relaxed);
    };
    let api = Api::<Pod>::default_namespaced(protobuf_client(&client, PODS_AND_NODES, tell));
    for _ in 0..3 {
        assert!(api.get("rich").await.is_err());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(TOLD.load(Ordering::Relaxed), 1);
}
