//! Deployments and their kind.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::World;

fn deployment(replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

fn condition(deployment: &Deployment, kind: &str) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.clone())
}

/// What `kubectl rollout status` waits for.
fn rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && condition(deployment, "Available").as_deref() == Some("True")
}

async fn rollout(world: &World) -> Deployment {
    let look = async || world.api::<Deployment>().get("web").await.expect("the deployment");
    world.until("the rollout", look, rolled_out).await
}

fn images(pods: &[Pod]) -> Vec<String> {
    let mut images: Vec<String> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.spec.as_ref()?.containers.first()?.image.clone())
        .collect();
    images.sort();
    images
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_scales_rolls_and_goes_back() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.create::<Deployment>(deployment(3, "v1")).await;
    let first = rollout(&world).await;
    let revision = |deployment: &Deployment| {
        deployment
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get("deployment.kubernetes.io/revision").cloned())
    };
    assert_eq!(revision(&first).as_deref(), Some("1"));
    let pods = world.pods("app=web").await;
    assert_eq!(images(&pods), ["v1", "v1", "v1"]);
    assert!(pods.iter().all(|pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())));

    world.merge::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    rollout(&world).await;
    assert_eq!(world.pods("app=web").await.len(), 5);

    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    world.merge::<Deployment>("web", image("v2")).await;
    let second = rollout(&world).await;
    assert_eq!(revision(&second).as_deref(), Some("2"));
    assert_eq!(images(&world.pods("app=web").await), ["v2"; 5]);

    // `kubectl rollout undo` puts the old template back: the old set comes to life again as revision 3.
    world.merge::<Deployment>("web", image("v1")).await;
    let third = rollout(&world).await;
    assert_eq!(revision(&third).as_deref(), Some("3"));
    let sets = world.api::<ReplicaSet>().list(&ListParams::default()).await.expect("sets");
    assert_eq!(sets.items.len(), 2);
    world.stop().await;
}
