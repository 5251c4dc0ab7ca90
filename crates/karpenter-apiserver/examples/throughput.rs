//! Measures the embedded API server within one process: writes while watches run, large lists, the latency of watch
//! events, and the memory for ten thousand nodes and a hundred thousand pods.
//!
//! Run it with `cargo run --release -p karpenter-apiserver --example throughput [pods] [nodes]`. Wall time is
//! unreliable on a busy machine, so writes are also reported in processor time. With `throughput once
//! create|patch|status N`, the program only does N writes of one kind to pods, for profilers that count instructions.
//! With `throughput start DIR`, it measures the start of a server that serves the CustomResourceDefinitions in DIR.

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|argument| argument.parse().ok());
    let text = |index: usize| arguments.get(index).map(String::as_str).unwrap_or_default();
    let (pods, nodes) = (number(0).unwrap_or(100_000), number(1).unwrap_or(10_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match text(0) {
            "once" => return once(text(1), number(2).unwrap_or(1000)).await,
            "start" => return start(std::path::Path::new(text(1))).await,
            _ => {}
        }
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
        .header(
            "content-type",
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
        )
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

/// Does one kind of write, from one writer.
async fn once(what: &str, count: usize) {
    let server = ApiServer::new(Config::default());
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    let created = if what == "create" { count } else { 100 };
    let mut before = processor_seconds();
    for index in 0..created {
        send(&server, "POST", PODS, Some(&pod(index))).await;
    }
    if what != "create" {
        before = processor_seconds();
    }
    for step in 0..if what == "create" { 0 } else { count } {
        let path = format!("{PODS}/web-7d4b9c-{}", step % 100);
        if what == "status" {
            let mut status = status.clone();
            status["status"]["conditions"][0]["status"] =
                json!(if step / 100 % 2 == 0 { "True" } else { "False" });
            send(&server, "PATCH", &format!("{path}/status"), Some(&status)).await;
        } else {
            let patch = json!({"metadata": {"annotations": {"step": step.to_string()}}});
            send(&server, "PATCH", &path, Some(&patch)).await;
        }
    }
    let spent = processor_seconds() - before;
    println!("{count} times {what}: {:.1} µs of processor time each", spent * 1e6 / count.max(1) as f64);
}

/// Measures the start of a server that serves all CustomResourceDefinitions in a directory.
async fn start(directory: &std::path::Path) {
    let begin = Instant::now();
    let server = ApiServer::new(Config::default());
    println!("server: {:.1?}", begin.elapsed());
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("a directory of definitions")
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read(&file).expect("a definition");
        let at = Instant::now();
        let request = Request::builder()
            .method("POST")
            .uri("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .header("content-type", "application/yaml")
            .body(Full::new(Bytes::from(text)))
            .expect("a request");
        let response = server.handle(request).await;
        assert!(response.status().is_success(), "{}", file.display());
        println!("{}: {:.1?}", file.file_name().unwrap_or_default().display(), at.elapsed());
    }
    for path in ["/api", "/apis", "/openapi/v3", "/api/v1/namespaces"] {
        let at = Instant::now();
        send(&server, "GET", path, None).await;
        println!("{path}: {:.1?}", at.elapsed());
    }
    println!("ready after {:.1?}", begin.elapsed());
}

async fn writes(what: &str, path: &'static str, object: fn(usize) -> Value) {
    let server = ApiServer::new(Config::default());
    let watchers: Vec<_> = (0..WATCHERS).map(|_| watch(&server, path, WRITES)).collect();
    tokio::task::yield_now().await;
    let (start, processor) = (Instant::now(), processor_seconds());
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
        "{what}: {:.0} creates/s with {WATCHERS} watchers (all events delivered after {:.2?}, {} MB; {:.0} µs of \
         processor time per create)",
        WRITES as f64 / written.as_secs_f64(),
        start.elapsed(),
        bytes / 1_000_000,
        (processor_seconds() - processor) * 1e6 / WRITES as f64
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

/// The resident memory of this process in bytes; zero if the system does not report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The processor time of all threads of this process; zero if the system does not report it.
fn processor_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the process name, may contain spaces and parentheses, so the text after its last closing
    // parenthesis is split.
    let after_name = status.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}
