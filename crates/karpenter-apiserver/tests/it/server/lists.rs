//! Tests of lists: pagination, revisions, selectors and representations.

use super::*;

#[tokio::test]
async fn pages_of_list_have_one_revision() {
    let server = Server::new();
    for name in ["a", "b", "c", "d", "e"] {
        server.create(MAPS, map(name)).await;
    }
    let (_, first) = server.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete(&format!("{MAPS}/c"), None).await;
    server.create(MAPS, map("bb")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"]["continue"], Value::Null);
}

#[tokio::test]
async fn expired_continue_token_allows_inconsistent_continuation() {
    let server = Server::with_history(3);
    for name in ["a", "b", "c", "d"] {
        server.create(MAPS, map(name)).await;
    }
    let (_, first) = server.get(&format!("{MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    for name in ["e", "f", "g", "h"] {
        server.create(MAPS, map(name)).await;
    }
    let (code, expired) = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((code, expired["reason"].as_str()), (410, Some("Expired")));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((code, names(&rest)), (200, vec!["b".to_string(), "c".to_string()]));
}

#[tokio::test]
async fn list_at_revision_returns_earlier_state() {
    let server = Server::new();
    let a = server.create(MAPS, map("a")).await;
    server.create(MAPS, map("b")).await;
    let then = revision(&a);
    let list = |query: String| {
        let server = server.clone();
        async move { server.get(&format!("{MAPS}?{query}")).await }
    };
    let (_, exact) = list(format!("resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(names(&exact), ["a"]);
    assert_eq!(revision(&exact), then);
    let (_, newer) = list(format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(names(&newer), ["a", "b"]);
    let (_, any) = list("resourceVersion=0&limit=1".into()).await;
    assert_eq!(names(&any), ["a", "b"]);
    let (code, future) = list("resourceVersion=9999".into()).await;
    assert_eq!((code, future["reason"].as_str()), (504, Some("Timeout")));
    let (code, wrong) = list("resourceVersionMatch=Exact".into()).await;
    assert_eq!(code, 422);
    assert_eq!(
        wrong["message"],
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is \
         forbidden unless resourceVersion is provided"
    );
    let (code, _) = list("resourceVersion=abc".into()).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn lists_are_filtered_by_selectors() {
    let server = Server::new();
    server.create(PODS, pod("a", Some("n1"))).await;
    server.create(PODS, pod("b", Some("n2"))).await;
    server.create(PODS, pod("c", None)).await;
    let (_, on_node) = server.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await;
    assert_eq!(names(&on_node), ["a"]);
    let (_, unscheduled) = server.get("/api/v1/pods?fieldSelector=spec.nodeName%3D").await;
    assert_eq!(names(&unscheduled), ["c"]);
    let (_, by_name) = server.get("/api/v1/pods?fieldSelector=metadata.name%3Db").await;
    assert_eq!(names(&by_name), ["b"]);
    let (code, refused) = server.get("/api/v1/pods?fieldSelector=spec.x%3D1").await;
    assert_eq!((code, refused["message"].as_str()), (400, Some("field label not supported: spec.x")));
}

#[tokio::test]
async fn table_and_metadata_representations_are_served() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let ask = |path: &'static str, accept: &'static str| {
        let server = server.clone();
        async move {
            let builder = Request::builder().uri(path).header("accept", accept);
            let (code, body, _) = server.send(builder, String::new()).await;
            let bytes = body.collect().await.unwrap().to_bytes();
            (code, serde_json::from_slice::<Value>(&bytes).unwrap())
        }
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, list) = ask(MAPS, table).await;
    assert_eq!(list["kind"], "Table");
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, one) = ask("/api/v1/namespaces/default/configmaps/a", table).await;
    assert_eq!(one["rows"][0]["cells"][0], "a");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let (_, list) = ask(MAPS, partial).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    let (code, _) = ask(MAPS, "application/vnd.kubernetes.protobuf").await;
    assert_eq!(code, 406);
}
