//! Tests of the subresources `scale` and `eviction`, and of their effect on the object.

use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn deployment(server: &Server, replicas: i64) -> String {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    server.create(&format!("{DEPLOYMENTS}?fieldManager=creator"), body).await;
    format!("{DEPLOYMENTS}/web")
}

fn scale(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}})
}

async fn apply(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    server.request("PATCH", path, "application/apply-patch+yaml", Some(body)).await
}

/// The managers that own the number of replicas, with their operation.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object();
    let shown = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        format!("{} {} {} {}", text("manager"), text("operation"), text("apiVersion"), text("subresource"))
    };
    entries.iter().filter(owns).map(shown).collect()
}

#[tokio::test]
async fn replicas_can_be_applied_through_scale() {
    let server = Server::new();
    let path = deployment(&server, 3).await;
    let (code, answer) = apply(&server, &format!("{path}/scale?fieldManager=scaler"), &scale(5)).await;
    assert_eq!(code, 409, "{answer}");
    assert_eq!(
        answer["message"],
        "Apply failed with 1 conflict: conflict with \"creator\" using autoscaling/v1: .spec.replicas"
    );
    let forced = format!("{path}/scale?fieldManager=scaler&force=true");
    let (code, answer) = apply(&server, &forced, &scale(5)).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(5)), "{answer}");
    assert_eq!(answer["metadata"].get("managedFields"), None);
    let (_, object) = server.get(&path).await;
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(owners(&object), ["scaler Apply apps/v1 scale"]);
    // The manager owns the field, so it may change the value without force.
    let (code, _) = apply(&server, &format!("{path}/scale?fieldManager=scaler"), &scale(6)).await;
    assert_eq!(code, 200);
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let (code, answer) = apply(&server, &format!("{path}/scale?fieldManager=scaler"), &other).await;
    assert_eq!((code, &answer["message"]), (400, &json!("invalid object type: apps/v1, Kind=Deployment")));
}

#[tokio::test]
async fn scale_of_other_name_or_kind_is_rejected() {
    let server = Server::new();
    let path = deployment(&server, 3).await;
    let mut body = scale(4);
    body["metadata"]["name"] = json!("other");
    let (code, answer) = server.put(&format!("{path}/scale"), body).await;
    let message = "the name of the object (other) does not match the name on the URL (web)";
    assert_eq!((code, &answer["message"]), (400, &json!(message)));
    let (code, _) = server.put(&format!("{path}/scale"), scale(4)).await;
    assert_eq!(code, 200);
    let (_, object) = server.get(&path).await;
    assert_eq!(object["spec"]["replicas"], 4);
}

async fn budget(server: &Server, allowed: usize) {
    let selector = json!({"matchLabels": {"app": "guarded"}});
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
        "spec": {"minAvailable": 1, "selector": selector},
    });
    server.create(BUDGETS, body).await;
    let status = json!({"status": {
        "disruptionsAllowed": allowed, "currentHealthy": allowed + 1, "desiredHealthy": 1,
        "expectedPods": allowed + 1, "observedGeneration": 1,
    }});
    assert_eq!(server.merge(&format!("{BUDGETS}/budget/status"), status).await.0, 200);
}

async fn running_pod(server: &Server, name: &str) {
    let mut body = pod(name, Some("node"));
    body["metadata"]["labels"] = json!({"app": "guarded"});
    server.create(PODS, body).await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(server.merge(&format!("{PODS}/{name}/status"), status).await.0, 200);
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

/// If a pod changes between the write of its PodDisruptionBudget and its deletion, only the deletion is retried, so the
/// budget is decremented once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eviction_of_changing_pod_charges_budget_once() {
    const EVICTIONS: usize = 40;
    let server = Server::with_history(100_000);
    budget(&server, EVICTIONS).await;
    for index in 0..EVICTIONS {
        let name = format!("p{index}");
        running_pod(&server, &name).await;
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (server, stop, path) = (server.clone(), stop.clone(), format!("{PODS}/{name}"));
                tokio::spawn(async move {
                    let mut step = 0;
                    while !stop.load(Ordering::Relaxed) {
                        step += 1;
                        let patch =
                            json!({"metadata": {"annotations": {format!("w{writer}"): step.to_string()}}});
                        server.merge(&path, patch).await;
                    }
                })
            })
            .collect();
        let (code, answer) = server.post(&format!("{PODS}/{name}/eviction"), eviction(&name)).await;
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(code, 201, "{answer}");
        let (_, budget) = server.get(&format!("{BUDGETS}/budget")).await;
        assert_eq!(budget["status"]["disruptionsAllowed"], EVICTIONS - 1 - index);
    }
    let (_, budget) = server.get(&format!("{BUDGETS}/budget")).await;
    assert_eq!(budget["status"]["disruptedPods"].as_object().unwrap().len(), EVICTIONS);
}

#[tokio::test]
async fn unobserved_budget_response_has_retry_after() {
    let server = Server::new();
    budget(&server, 1).await;
    running_pod(&server, "a").await;
    // The spec of the PodDisruptionBudget changed, and the disruption controller has not observed the change.
    assert_eq!(server.merge(&format!("{BUDGETS}/budget"), json!({"spec": {"minAvailable": 2}})).await.0, 200);
    let request = Request::builder()
        .method("POST")
        .uri(format!("{PODS}/a/eviction"))
        .header("content-type", "application/json");
    let (code, body, headers) = server.send(request, eviction("a").to_string()).await;
    let answer: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((code, &answer["details"]["retryAfterSeconds"]), (429, &json!(10)), "{answer}");
    assert_eq!(headers["retry-after"], "10");
}

#[tokio::test]
async fn yaml_responses_are_served_on_request() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let ask = async |path: &str| {
        let request = Request::builder().uri(path).header("accept", "application/yaml");
        let (code, body, headers) = server.send(request, String::new()).await;
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert_eq!(headers["content-type"], "application/yaml", "{text}");
        (code, serde_saphyr::from_str::<Value>(&text).unwrap())
    };
    for path in [MAPS.to_string(), format!("{MAPS}/a"), format!("{MAPS}/none"), format!("{PODS}?limit=x")] {
        let (code, answer) = server.get(&path).await;
        assert_eq!(ask(&path).await, (code, answer), "{path}");
    }
    assert_eq!(ask(&format!("{MAPS}?watch=1")).await.0, 406);
}

#[tokio::test]
async fn strategic_merge_patch_cannot_change_kind() {
    let server = Server::new();
    server.create(MAPS, map("a")).await;
    let patch = json!({"kind": "Secret", "data": {"x": "y"}});
    let path = format!("{MAPS}/a");
    let media = "application/strategic-merge-patch+json";
    let (code, answer) = server.request("PATCH", &path, media, Some(&patch)).await;
    assert_eq!((code, &answer["kind"], &answer["data"]["x"]), (200, &json!("ConfigMap"), &json!("y")));
}
