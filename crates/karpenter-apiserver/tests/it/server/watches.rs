//! Tests of watches: how they start, which events they send, and how they end.

use super::*;

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn watch_starts_at_requested_revision() {
    let server = Server::new();
    let a = server.create(MAPS, map("a")).await;
    server.create(MAPS, map("b")).await;
    let events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", revision(&a)), 1).await;
    assert_eq!(
        (events[0]["type"].as_str(), &events[0]["object"]["metadata"]["name"]),
        (Some("ADDED"), &json!("b"))
    );
    for start in ["", "&resourceVersion=0"] {
        let events = server.watch(&format!("{MAPS}?watch=true{start}"), 2).await;
        assert_eq!(kinds(&events), ["ADDED", "ADDED"]);
    }
}

#[tokio::test]
async fn watch_list_ends_with_bookmark() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = server.watch(&format!("{MAPS}?{query}"), 2).await;
    assert_eq!(kinds(&events), ["ADDED", "BOOKMARK"]);
    let mark = &events[1]["object"];
    assert_eq!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(revision(mark), server.api.revision());
    assert_eq!(mark["kind"], "ConfigMap");
    let (code, refused) = server.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn watch_from_expired_revision_returns_gone() {
    let server = Server::with_history(2);
    let a = server.create(MAPS, map("a")).await;
    for name in ["b", "c", "d"] {
        server.create(MAPS, map(name)).await;
    }
    let events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", revision(&a)), 5).await;
    assert_eq!(kinds(&events), ["ERROR"]);
    assert_eq!(events[0]["object"]["code"], 410);
    assert_eq!(events[0]["object"]["reason"], "Expired");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_timeout_with_bookmark() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    server.create("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await;
    let query = "watch=1&resourceVersion=1&timeoutSeconds=90&allowWatchBookmarks=true";
    let events = server.watch(&format!("{MAPS}?{query}"), 9).await;
    assert_eq!(kinds(&events), ["ADDED", "BOOKMARK", "BOOKMARK"]);
    assert_eq!(revision(&events[1]["object"]), server.api.revision());
}

#[tokio::test]
async fn tables_can_be_watched() {
    let server = Server::new();
    for name in ["a", "b"] {
        server.create(MAPS, map(name)).await;
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let builder = Request::builder().uri(format!("{MAPS}?watch=1")).header("accept", accept);
    let (_, mut body, _) = server.send(builder, String::new()).await;
    for index in 0..2 {
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(event["object"]["kind"], "Table");
        let columns = event["object"]["columnDefinitions"].as_array().map_or(0, Vec::len);
        assert_eq!(columns > 0, index == 0, "only the first event has columns");
    }
}

#[tokio::test]
async fn stopping_the_server_ends_watches() {
    let server = Server::new();
    let (_, mut body, _) =
        server.send(Request::builder().uri(format!("{MAPS}?watch=1")), String::new()).await;
    server.api.stop();
    assert!(body.frame().await.is_none());
}
