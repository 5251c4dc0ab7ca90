use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::files;
use super::*;
use crate::{ApiServer, Config};

/// A temporary directory, which is removed when the value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("karpenter-journal-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> ApiServer {
        ApiServer::open(Config::default(), &self.0).unwrap()
    }

    fn open_error(&self) -> PersistError {
        ApiServer::open(Config::default(), &self.0).unwrap_err()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &ApiServer, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(if body.is_null() { String::new() } else { body.to_string() })))
        .unwrap();
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn create(server: &ApiServer, name: &str) -> Value {
    let (code, made) = send(server, "POST", MAPS, json!({"metadata": {"name": name}})).await;
    assert_eq!(code, 201, "{made}");
    made
}

async fn names(server: &ApiServer) -> Vec<String> {
    let (_, list) = send(server, "GET", MAPS, Value::Null).await;
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_string()).collect()
}

#[tokio::test]
async fn restart_restores_objects_and_revisions() {
    let directory = Directory::new();
    let server = directory.open();
    let a = create(&server, "a").await;
    create(&server, "b").await;
    send(&server, "DELETE", &format!("{MAPS}/b"), Value::Null).await;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", definitions, definition).await.0, 201);
    let widgets = "/apis/example.com/v1/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    assert_eq!(send(&server, "POST", widgets, widget).await.0, 201);
    let revision = server.revision();
    drop(server);

    let server = directory.open();
    assert_eq!(server.revision(), revision);
    assert_eq!(names(&server).await, ["a"]);
    assert_eq!(send(&server, "GET", &format!("{MAPS}/a"), Value::Null).await.1, a);
    assert_eq!(send(&server, "GET", &format!("{widgets}/w"), Value::Null).await.0, 200);
    let c = create(&server, "c").await;
    assert_eq!(c["metadata"]["resourceVersion"], (revision + 1).to_string());
    assert_ne!(c["metadata"]["uid"], a["metadata"]["uid"]);
}

#[tokio::test]
async fn truncated_last_record_is_dropped() {
    let directory = Directory::new();
    let server = directory.open();
    create(&server, "a").await;
    drop(server);
    let journal = files::journal(&directory.0, 0);
    let whole = fs::read(&journal).unwrap();
    let server = directory.open();
    create(&server, "b").await;
    drop(server);
    let longer = fs::read(&journal).unwrap();
    // Whatever part of the last record is on disk, recovery gives the state before that record.
    for length in [whole.len() + 1, whole.len() + 7, whole.len() + 20, longer.len() - 1] {
        fs::write(&journal, &longer[..length]).unwrap();
        let server = directory.open();
        assert_eq!(names(&server).await, ["a"], "{length} bytes");
        drop(server);
        assert_eq!(fs::read(&journal).unwrap(), whole);
    }
    let mut blank = whole.clone();
    blank.extend([0; 4096]);
    fs::write(&journal, blank).unwrap();
    assert_eq!(names(&directory.open()).await, ["a"]);
}

#[tokio::test]
async fn corrupt_and_unknown_files_are_rejected() {
    let directory = Directory::new();
    let server = directory.open();
    create(&server, "a").await;
    drop(server);
    let journal = files::journal(&directory.0, 0);
    let good = fs::read(&journal).unwrap();
    let mut corrupt = good.clone();
    corrupt[100] ^= 1;
    fs::write(&journal, &corrupt).unwrap();
    assert!(matches!(directory.open_error(), PersistError::Corrupt { .. }));
    fs::write(&journal, "something else entirely").unwrap();
    assert!(matches!(directory.open_error(), PersistError::UnknownFormat(_)));
    fs::write(&journal, &good).unwrap();
    assert_eq!(names(&directory.open()).await, ["a"]);
}

#[tokio::test]
async fn directory_is_locked_by_one_server() {
    let directory = Directory::new();
    let server = directory.open();
    assert!(matches!(directory.open_error(), PersistError::InUse(_)));
    drop(server);
    directory.open();
}

fn files_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn snapshot_replaces_earlier_journals() {
    let directory = Directory::new();
    let server = directory.open();
    create(&server, "a").await;
    let (revision, entries) = server.core_for_tests().store.all_entries();
    drop(server);
    files::create_journal(&directory.0, 1).unwrap();
    files::write_snapshot(&directory.0, 1, revision, &entries).unwrap();
    // As long as the old journal exists, it and the snapshot contain the same commits.
    let server = directory.open();
    assert_eq!((names(&server).await, server.revision()), (vec!["a".to_string()], revision));
    create(&server, "b").await;
    drop(server);
    files::remove_before(&directory.0, 1).unwrap();
    assert_eq!(files_in(&directory.0), ["journal-00000001", "lock", "snapshot-00000001"]);
    assert_eq!(names(&directory.open()).await, ["a", "b"]);
    let snapshot = files::snapshot(&directory.0, 1);
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    assert!(matches!(directory.open_error(), PersistError::Corrupt { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_writes_are_on_disk_and_in_watches() {
    let directory = Directory::new();
    let server = directory.open();
    let start = server.revision();
    let watching = {
        let server = server.clone();
        tokio::spawn(async move {
            let request = Request::builder()
                .uri(format!("{MAPS}?watch=1&resourceVersion={start}"))
                .body(Full::new(Bytes::new()))
                .unwrap();
            let mut body = server.handle(request).await.into_body();
            for _ in 0..80 {
                body.frame().await.unwrap().unwrap();
            }
        })
    };
    let mut writers = Vec::new();
    for writer in 0..8 {
        let server = server.clone();
        writers.push(tokio::spawn(async move {
            for step in 0..10 {
                create(&server, &format!("w{writer}-{step}")).await;
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    watching.await.unwrap();
    // While the server still runs, its files contain every write that was acknowledged.
    let copy = Directory::new();
    fs::create_dir_all(&copy.0).unwrap();
    fs::copy(files::journal(&directory.0, 0), files::journal(&copy.0, 0)).unwrap();
    assert_eq!(names(&copy.open()).await.len(), 80);
}
