//! Tests of create, update, patch and writes to subresources.

use super::*;

#[tokio::test]
async fn names_can_be_generated() {
    let server = Server::new();
    let made = server.create(MAPS, json!({"metadata": {"generateName": "web-"}})).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = Server::new();
    let before = server.api.revision();
    let (code, made) = server.post(&format!("{MAPS}?dryRun=All"), map("a")).await;
    assert_eq!(code, 201);
    assert!(made["metadata"]["uid"].is_string());
    assert_eq!(server.api.revision(), before);
    let (code, _) = server.post(&format!("{MAPS}?dryRun=Some"), map("a")).await;
    assert_eq!(code, 422);
}

/// Published manifests of cluster-scoped kinds sometimes state a namespace, which kube-apiserver ignores.
#[tokio::test]
async fn namespace_of_cluster_scoped_object_is_dropped() {
    let server = Server::new();
    let class = |namespace: &str| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a", "namespace": namespace}, "value": 1});
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let made = server.create(path, class("elsewhere")).await;
    assert_eq!(made["metadata"].get("namespace"), None);
    let named = format!("{path}/a");
    for content_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let patch = json!({"metadata": {"namespace": "elsewhere", "labels": {"patched": "yes"}}});
        let (code, patched) = server.request("PATCH", &named, content_type, Some(&patch)).await;
        assert_eq!(code, 200, "{patched}");
        assert_eq!(patched["metadata"].get("namespace"), None);
        assert_eq!(patched["metadata"]["labels"]["patched"], "yes");
    }
    let apply = format!("{named}?fieldManager=me&force=true");
    let (code, applied) =
        server.request("PATCH", &apply, "application/apply-patch+yaml", Some(&class("elsewhere"))).await;
    assert_eq!(code, 200, "{applied}");
    assert_eq!(applied["metadata"].get("namespace"), None);
}

#[tokio::test]
async fn name_and_namespace_must_match_path() {
    let server = Server::new();
    let mut foreign = map("a");
    foreign["metadata"]["namespace"] = json!("elsewhere");
    let (code, refused) = server.post(MAPS, foreign).await;
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    server.create(MAPS, map("a")).await;
    let (code, refused) = server.put(&format!("{MAPS}/a"), map("b")).await;
    assert_eq!(code, 400);
    assert_eq!(refused["message"], "the name of the object (b) does not match the name on the URL (a)");
    let (code, _) = server.post(MAPS, json!({"kind": "Secret", "metadata": {"name": "a"}})).await;
    assert_eq!(code, 400);
    let (code, _) = server.post("/api/v1/configmaps", map("a")).await;
    assert_eq!(code, 405);
    let (code, refused) = server.get("/api/v1/nonsense").await;
    assert_eq!(code, 404);
    assert_eq!(refused["message"], "the server could not find the requested resource");
    assert_eq!(server.get("/apis/nonsense/v1/a").await, (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn unconditional_update_depends_on_kind() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let mut changed = map("a");
    changed["data"] = json!({"x": "1"});
    assert_eq!(server.put(&format!("{MAPS}/a"), changed).await.0, 200);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}});
    // For a Lease that does not exist, an update creates it.
    assert_eq!(server.put(&format!("{leases}/a"), lease.clone()).await.0, 201);
    let (code, refused) = server.put(&format!("{leases}/a"), lease).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
         specified for an update"
    );
}

#[tokio::test]
async fn all_patch_types_are_supported() {
    let server = Server::new();
    server.create(PODS, pod("a", None)).await;
    let path = format!("{PODS}/a");
    let patch = |kind: &'static str, body: Value| {
        let (server, path) = (server.clone(), path.clone());
        async move { server.request("PATCH", &path, kind, Some(&body)).await }
    };
    let (code, _) = patch(
        "application/json-patch+json",
        json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "1"}}]),
    )
    .await;
    assert_eq!(code, 200);
    let image = json!({"spec": {"containers": [{"name": "main", "image": "pause:2"}]}});
    let (code, patched) = patch("application/strategic-merge-patch+json", image).await;
    assert_eq!((code, &patched["spec"]["containers"][0]["image"]), (200, &json!("pause:2")), "{patched}");
    let (code, refused) = patch("application/json", json!({})).await;
    assert_eq!(code, 415, "{refused}");

    let apply = |manager: &'static str, body: Value| {
        let server = server.clone();
        async move {
            let path = format!("{MAPS}/applied?fieldManager={manager}");
            server.request("PATCH", &path, "application/apply-patch+yaml", Some(&body)).await
        }
    };
    let mut wanted = map("applied");
    wanted["data"] = json!({"x": "1"});
    assert_eq!(apply("one", wanted.clone()).await.0, 201);
    let (code, same) = apply("one", wanted.clone()).await;
    assert_eq!(code, 200);
    assert_eq!(same["metadata"]["managedFields"][0]["manager"], "one");
    wanted["data"] = json!({"x": "2"});
    let (code, conflict) = apply("two", wanted.clone()).await;
    assert_eq!((code, conflict["reason"].as_str()), (409, Some("Conflict")), "{conflict}");
    let (code, refused) = apply("", wanted).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn deployments_can_be_scaled() {
    let server = Server::new();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    });
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    server.create(deployments, deployment).await;
    let (code, scale) = server.get(&format!("{deployments}/web/scale")).await;
    assert_eq!((code, &scale["kind"], &scale["spec"]["replicas"]), (200, &json!("Scale"), &json!(2)));
    let (code, scale) =
        server.merge(&format!("{deployments}/web/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)), "{scale}");
    let (_, deployment) = server.get(&format!("{deployments}/web")).await;
    assert_eq!(deployment["spec"]["replicas"], 5);
    assert_eq!(deployment["metadata"]["generation"], 2);
}

#[tokio::test]
async fn pods_are_bound_once_and_evicted() {
    let server = Server::new();
    server.create(PODS, pod("a", None)).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n1"},
    });
    let (code, answer) = server.post(&format!("{PODS}/a/binding"), binding.clone()).await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")), "{answer}");
    let (_, bound) = server.get(&format!("{PODS}/a")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(server.post(&format!("{PODS}/a/binding"), binding).await.0, 409);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    let (code, answer) = server.post(&format!("{PODS}/a/eviction"), eviction).await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")), "{answer}");
    let (_, leaving) = server.get(&format!("{PODS}/a")).await;
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    let (code, refused) = server.get(&format!("{PODS}/a/log")).await;
    assert_eq!(code, 501);
    assert!(refused["message"].as_str().unwrap().contains("not supported here"));
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let server = Server::new();
    let node = json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}});
    server.create("/api/v1/nodes", node).await;
    let status = json!({"status": {"phase": "Running"}, "spec": {"unschedulable": false}});
    let (code, patched) = server.merge("/api/v1/nodes/n1/status", status).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["spec"]["unschedulable"], true);
    let (_, found) = server.get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").await;
    assert_eq!(names(&found), ["n1"]);
}

#[tokio::test]
async fn reviews_are_answered_and_not_stored() {
    let server = Server::new();
    let before = server.api.revision();
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let (code, answer) = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(server.api.revision(), before);
}

#[tokio::test]
async fn events_are_served_in_two_groups() {
    let server = Server::new();
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested", "message": "hello", "type": "Normal", "source": {"component": "test"},
    });
    server.create("/api/v1/namespaces/default/events", event).await;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (_, list) = server.get(&format!("{path}?fieldSelector=regarding.name%3Dp")).await;
    assert_eq!(list["items"][0]["note"], "hello");
    assert_eq!(
        (&list["apiVersion"], &list["items"][0]["apiVersion"]),
        (&json!("events.k8s.io/v1"), &Value::Null)
    );
    assert_eq!(list["items"][0]["regarding"]["name"], "p");
    let (_, core) = server.get("/api/v1/events?fieldSelector=involvedObject.name%3Dp,source%3Dtest").await;
    assert_eq!(core["items"][0]["message"], "hello");
}
