//! Tests of the embedded server with plain HTTP requests, without a socket.

mod concurrency;
mod definitions;
mod deletes;
mod lists;
mod subresources;
mod watches;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use karpenter_apiserver::clock::Clock;
use karpenter_apiserver::encode::RespBody;
use karpenter_apiserver::{ApiServer, Config};
use serde_json::{Value, json};

/// A clock that the test advances.
#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

#[derive(Clone)]
struct Server {
    api: ApiServer,
    clock: Arc<TestClock>,
}

impl Server {
    fn new() -> Self {
        Self::with_history(1000)
    }

    fn with_history(history_limit: usize) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(1_700_000_000)));
        let config = Config { clock: clock.clone(), history_limit, ..Config::default() };
        Self { api: ApiServer::new(config), clock }
    }

    fn pass_seconds(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds, Ordering::Relaxed);
    }

    async fn send(&self, request: http::request::Builder, body: String) -> (u16, RespBody, http::HeaderMap) {
        let response = self.api.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let (parts, body) = response.into_parts();
        (parts.status.as_u16(), body, parts.headers)
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let builder = Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = body.map(ToString::to_string).unwrap_or_default();
        let (code, body, _) = self.send(builder, body).await;
        let bytes = body.collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        (code, value)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, "", None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.request("POST", path, "application/json", Some(&body)).await
    }

    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.request("PUT", path, "application/json", Some(&body)).await
    }

    async fn merge(&self, path: &str, body: Value) -> (u16, Value) {
        self.request("PATCH", path, "application/merge-patch+json", Some(&body)).await
    }

    async fn delete(&self, path: &str, options: Option<Value>) -> (u16, Value) {
        self.request("DELETE", path, "application/json", options.as_ref()).await
    }

    /// Creates an object; panics if the request fails.
    async fn create(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.post(path, body).await;
        assert_eq!(code, 201, "{answer}");
        answer
    }

    /// Opens a watch and returns its next `count` events.
    async fn watch(&self, path: &str, count: usize) -> Vec<Value> {
        let (code, mut body, _) = self.send(Request::builder().uri(path), String::new()).await;
        assert_eq!(code, 200);
        let mut events = Vec::new();
        while events.len() < count {
            let Some(frame) = body.frame().await else { break };
            let bytes = frame.unwrap().into_data().unwrap();
            events.push(serde_json::from_slice(&bytes).unwrap());
        }
        events
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_string()).collect()
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
