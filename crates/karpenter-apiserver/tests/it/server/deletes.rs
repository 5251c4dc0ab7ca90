//! Tests of deletion: grace period, finalizers, propagation policy and preconditions.

use super::*;

#[tokio::test]
async fn scheduled_pod_gets_grace_period() {
    let server = Server::new();
    server.create(PODS, pod("a", Some("n1"))).await;
    let (code, first) = server.delete(&format!("{PODS}/a"), None).await;
    assert_eq!(code, 200);
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(first["metadata"]["deletionTimestamp"], "2023-11-14T22:13:50Z");
    // A second delete request changes nothing if its grace period is longer than the time that is left.
    let (_, second) = server.delete(&format!("{PODS}/a"), Some(json!({"gracePeriodSeconds": 60}))).await;
    assert_eq!(revision(&second), revision(&first));
    server.pass_seconds(2);
    let (_, third) = server.delete(&format!("{PODS}/a"), Some(json!({"gracePeriodSeconds": 10}))).await;
    assert_eq!(third["metadata"]["deletionTimestamp"], "2023-11-14T22:13:30Z");
    assert_eq!(third["metadata"]["deletionGracePeriodSeconds"], 10);
    let (_, last) = server.delete(&format!("{PODS}/a?gracePeriodSeconds=0"), None).await;
    assert_eq!(last["kind"], "Pod");
    assert_eq!(server.get(&format!("{PODS}/a")).await.0, 404);
    let events = server.watch(&format!("{PODS}?watch=1&resourceVersion={}", revision(&third)), 2).await;
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("MODIFIED"), &json!("DELETED")));
    assert!(revision(&events[1]["object"]) > revision(&events[0]["object"]));
}

#[tokio::test]
async fn unscheduled_pod_is_deleted_immediately() {
    let server = Server::new();
    server.create(PODS, pod("a", None)).await;
    server.delete(&format!("{PODS}/a"), None).await;
    assert_eq!(server.get(&format!("{PODS}/a")).await.0, 404);
}

#[tokio::test]
async fn finalizer_delays_deletion() {
    let server = Server::new();
    let mut object = map("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.create(MAPS, object).await;
    let (code, held) = server.delete(&format!("{MAPS}/a"), None).await;
    assert_eq!((code, held["kind"].as_str()), (200, Some("ConfigMap")));
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    let (_, again) = server.delete(&format!("{MAPS}/a"), None).await;
    assert_eq!(revision(&again), revision(&held));
    server.merge(&format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get(&format!("{MAPS}/a")).await.0, 404);
}

#[tokio::test]
async fn propagation_policy_sets_finalizer() {
    let server = Server::new();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        server.create(MAPS, map(policy.to_lowercase().as_str())).await;
        let path = format!("{MAPS}/{}", policy.to_lowercase());
        let (_, held) = server.delete(&path, Some(json!({"propagationPolicy": policy}))).await;
        assert_eq!(held["metadata"]["finalizers"], json!([finalizer]));
        assert!(held["metadata"]["deletionTimestamp"].is_string());
    }
    server.create(MAPS, map("background")).await;
    let (_, status) = server.delete(&format!("{MAPS}/background?propagationPolicy=Background"), None).await;
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let (code, refused) = server.delete(&format!("{MAPS}/orphan?propagationPolicy=Never"), None).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn failed_precondition_prevents_deletion() {
    let server = Server::new();
    let made = server.create(MAPS, map("a")).await;
    for precondition in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let (code, refused) =
            server.delete(&format!("{MAPS}/a"), Some(json!({"preconditions": precondition}))).await;
        assert_eq!((code, refused["reason"].as_str()), (409, Some("Conflict")));
    }
    let matching = json!({"uid": made["metadata"]["uid"]});
    let (code, _) = server.delete(&format!("{MAPS}/a"), Some(json!({"preconditions": matching}))).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let before = server.api.revision();
    assert_eq!(server.delete(&format!("{MAPS}/a?dryRun=All"), None).await.0, 200);
    assert_eq!(server.delete(&format!("{MAPS}?dryRun=All"), None).await.0, 200);
    assert_eq!(server.api.revision(), before);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.0, 200);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let server = Server::new();
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"color": color});
        server.create(MAPS, object).await;
    }
    let (code, deleted) = server.delete(&format!("{MAPS}?labelSelector=color%3Dred"), None).await;
    assert_eq!((code, names(&deleted)), (200, vec!["a".to_string(), "c".to_string()]));
    let (_, left) = server.get(MAPS).await;
    assert_eq!(names(&left), ["b"]);
}

#[tokio::test]
async fn namespace_deletion_waits_for_finalizer() {
    let server = Server::new();
    server.create("/api/v1/namespaces", json!({"metadata": {"name": "team"}})).await;
    let (_, terminating) = server.delete("/api/v1/namespaces/team", None).await;
    assert_eq!(terminating["status"]["phase"], "Terminating");
    let (code, refused) = server.post("/api/v1/namespaces/team/configmaps", map("late")).await;
    assert_eq!(code, 403, "{refused}");
    let mut finished = terminating.clone();
    finished["spec"]["finalizers"] = json!([]);
    let (code, answer) = server.put("/api/v1/namespaces/team/finalize", finished).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(server.get("/api/v1/namespaces/team").await.0, 404);
}
