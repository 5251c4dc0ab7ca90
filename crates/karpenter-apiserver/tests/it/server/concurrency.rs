//! Tests with concurrent writers and watches: every watch gets every change exactly once, in the order of revisions.

use std::collections::BTreeMap;

use super::*;

const WRITERS: usize = 4;
const WRITES_EACH: usize = 150;
const WATCHERS: usize = 6;

async fn collect(server: Server, after: u64, count: usize) -> Vec<(u64, String, String)> {
    let events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={after}"), count).await;
    events
        .iter()
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_string();
            (revision(&event["object"]), event["type"].as_str().unwrap().to_string(), name)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_get_every_change_once() {
    let server = Server::with_history(100_000);
    let start = server.api.revision();
    let total = WRITERS * WRITES_EACH;
    let watchers: Vec<_> =
        (0..WATCHERS).map(|_| tokio::spawn(collect(server.clone(), start, total))).collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for step in 0..WRITES_EACH / 3 {
                    let name = format!("w{writer}-{step}");
                    server.create(MAPS, map(&name)).await;
                    let path = format!("{MAPS}/{name}");
                    assert_eq!(server.merge(&path, json!({"data": {"x": "1"}})).await.0, 200);
                    assert_eq!(server.delete(&path, None).await.0, 200);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut seen = Vec::new();
    for watcher in watchers {
        seen.push(watcher.await.unwrap());
    }
    let revisions: Vec<u64> = seen[0].iter().map(|event| event.0).collect();
    let expected: Vec<u64> = (start + 1..=start + total as u64).collect();
    assert_eq!(revisions, expected);
    for other in &seen[1..] {
        assert_eq!(other, &seen[0]);
    }
    let mut histories: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, kind, name) in &seen[0] {
        histories.entry(name).or_default().push(kind);
    }
    assert!(histories.values().all(|history| *history == ["ADDED", "MODIFIED", "DELETED"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn list_and_following_watch_miss_no_change() {
    let server = Server::with_history(100_000);
    let writer = {
        let server = server.clone();
        tokio::spawn(async move {
            for step in 0..400 {
                server.create(MAPS, map(&format!("m{step:03}"))).await;
            }
        })
    };
    let mut readers = Vec::new();
    for _ in 0..8 {
        let server = server.clone();
        readers.push(tokio::spawn(async move {
            let (_, list) = server.get(MAPS).await;
            let mut known = names(&list);
            let missing = 400 - known.iter().filter(|name| name.starts_with('m')).count();
            for (_, _, name) in collect(server.clone(), revision(&list), missing).await {
                known.push(name);
            }
            known
        }));
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    for reader in readers {
        let mut known = reader.await.unwrap();
        known.retain(|name| name.starts_with('m'));
        let expected: Vec<String> = (0..400).map(|step| format!("m{step:03}")).collect();
        assert_eq!(known, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_of_one_object_are_all_applied() {
    let server = Server::new();
    server.create(MAPS, map("shared")).await;
    let path = format!("{MAPS}/shared");
    let mut writers = Vec::new();
    for writer in 0..8 {
        let (server, path) = (server.clone(), path.clone());
        writers.push(tokio::spawn(async move {
            for step in 0..25 {
                let patch = json!({"data": {format!("k{writer}-{step}"): "x"}});
                assert_eq!(server.merge(&path, patch).await.0, 200);
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let (_, shared) = server.get(&path).await;
    assert_eq!(shared["data"].as_object().unwrap().len(), 200);
}
