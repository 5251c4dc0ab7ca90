//! How fast the server is in one process: writes with watchers, large lists, the way of an event to a watcher, and
//! memory at ten thousand nodes and a hundred thousand pods.
//!
//! Run with `cargo run --release -p karpenter-apiserver --example throughput [pods] [nodes]`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use karpenter_apiserver::{ApiServer, Config};
use serde_json::{Value, json};

const WATCHERS: usize = 20;
const WRITERS: usize = 4;
const WRITES: usize = 40_000;
const PODS: &str = "/api/v1/namespaces/default/pods";

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let pods = arguments.next().unwrap_or(100_000);
    let nodes = arguments.next().unwrap_or(10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        writes("config maps", "/api/v1/namespaces/default/configmaps", map).await;
        writes("pods", PODS, pod).await;
        latency().await;
        list().await;
        memory(pods, nodes).await;
    });
}

async fn send(server: &ApiServer, method: &str, path: &str, body: Option<&Value>) -> http::Response<Bytes> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" })
        .body(Full::new(Bytes::from(body)))
        .expect("a request");
    let (parts, body) = server.handle(request).await.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    assert!(parts.status.is_success(), "{}", String::from_utf8_lossy(&bytes));
    http::Response::from_parts(parts, bytes)
}

fn watch(server: &ApiServer, path: &str, events: usize) -> tokio::task::JoinHandle<usize> {
    let (server, uri) = (server.clone(), format!("{path}?watch=1&resourceVersion={}", server.revision()));
    tokio::spawn(async move {
        let request = Request::builder().uri(uri).body(Full::new(Bytes::new())).expect("a request");
        let mut body = server.handle(request).await.into_body();
        let mut bytes = 0;
        for _ in 0..events {
            let frame = body.frame().await.expect("an event").expect("a frame");
            bytes += frame.into_data().expect("data").len();
        }
        bytes
    })
}

fn map(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{index}")},
        "data": {"key": "value"},
    })
}

fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-7d4b9c-{index}"), "labels": {"app": "web", "pod-template-hash": "7d4b9c"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "controller": true,
                "uid": "2f8a1b9e-5a55-4c6f-8f0e-1c5f0f8f6c11", "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", index % 1000),
            "containers": [{
                "name": "web", "image": "registry.example.com/web:1.27",
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
                "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [{"name": "MODE", "value": "production"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
            }],
        },
    })
}

async fn writes(what: &str, path: &'static str, object: fn(usize) -> Value) {
    let server = ApiServer::new(Config::default());
    let watchers: Vec<_> = (0..WATCHERS).map(|_| watch(&server, path, WRITES)).collect();
    tokio::task::yield_now().await;
    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for step in 0..WRITES / WRITERS {
                    send(&server, "POST", path, Some(&object(writer * WRITES + step))).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    let written = start.elapsed();
    let mut bytes = 0;
    for watcher in watchers {
        bytes += watcher.await.expect("a watcher");
    }
    println!(
        "{what}: {:.0} creates/s with {WATCHERS} watchers (all events delivered after {:.2?}, {} MB)",
        WRITES as f64 / written.as_secs_f64(),
        start.elapsed(),
        bytes / 1_000_000
    );
    let start = Instant::now();
    const PATCHES: usize = 10_000;
    for step in 0..PATCHES {
        let name = object(step % 100)["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let patch = json!({"metadata": {"annotations": {"step": step.to_string()}}});
        send(&server, "PATCH", &format!("{path}/{name}"), Some(&patch)).await;
    }
    println!("{what}: {:.0} patches/s by one writer", PATCHES as f64 / start.elapsed().as_secs_f64());
}

async fn latency() {
    let server = ApiServer::new(Config::default());
    let path = "/api/v1/namespaces/default/configmaps";
    let uri = format!("{path}?watch=1&resourceVersion={}", server.revision());
    let request = Request::builder().uri(uri).body(Full::new(Bytes::new())).expect("a request");
    let mut body = server.handle(request).await.into_body();
    let (seen, mut sightings) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(_)) = body.frame().await {
            if seen.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let mut delays = Vec::new();
    for index in 0..2000 {
        let object = map(index);
        let start = Instant::now();
        send(&server, "POST", path, Some(&object)).await;
        let at: Instant = sightings.recv().await.expect("an event");
        delays.push(at.saturating_duration_since(start));
    }
    delays.sort();
    let at = |share: f64| delays[(delays.len() as f64 * share) as usize];
    println!("from request to watcher: median {:.1?}, 99th percentile {:.1?}", at(0.5), at(0.99));
}

async fn list() {
    let server = ApiServer::new(Config::default());
    for index in 0..10_000 {
        send(&server, "POST", PODS, Some(&pod(index))).await;
    }
    let mut fastest = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..5 {
        let start = Instant::now();
        bytes = send(&server, "GET", "/api/v1/pods", None).await.body().len();
        fastest = fastest.min(start.elapsed());
    }
    let start = Instant::now();
    send(&server, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-7", None).await;
    println!(
        "list of 10000 pods: {fastest:.1?} ({:.1} MB); by node name: {:.1?}",
        bytes as f64 / 1e6,
        start.elapsed()
    );
}

async fn memory(pods: usize, nodes: usize) {
    let before = resident_bytes();
    let server = ApiServer::new(Config::default());
    for index in 0..nodes {
        let node = json!({
            "metadata": {"name": format!("node-{index}"), "labels": {"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "a"}},
            "spec": {"providerID": format!("kwok://node-{index}")},
            "status": {
                "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
                "allocatable": {"cpu": "15800m", "memory": "62Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        });
        send(&server, "POST", "/api/v1/nodes", Some(&node)).await;
    }
    let start = Instant::now();
    for index in 0..pods {
        send(&server, "POST", PODS, Some(&pod(index))).await;
    }
    let rate = pods as f64 / start.elapsed().as_secs_f64();
    println!(
        "{nodes} nodes and {pods} pods: {} MB resident, before them {} MB ({rate:.0} pods/s by one writer)",
        resident_bytes() / 1_000_000,
        before / 1_000_000
    );
}

/// Zero where the system does not say.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}
