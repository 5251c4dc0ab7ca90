//! Tests of deletion: garbage collection of dependents, and namespaces.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::world::World;

fn deployment(namespace: &str) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"fake-kubelet/stop-seconds": "2"}},
            "spec": {"terminationGracePeriodSeconds": 3, "containers": [{"name": "c", "image": "i"}]}}},
    })
}

async fn running(world: &World, count: usize) {
    let is_running =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let look = async || world.pods("app=web").await;
    world.until("running pods", look, |pods| pods.len() == count && pods.iter().all(is_running)).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_deployment_deletes_its_replica_sets_and_pods() {
    for params in [DeleteParams::background(), DeleteParams::foreground()] {
        let world = World::start().await;
        world.node("n1", json!({})).await;
        world.create::<Deployment>(deployment("default")).await;
        running(&world, 2).await;
        world.api::<Deployment>().delete("web", &params).await.expect("deleted");
        let foreground = params == DeleteParams::foreground();
        if foreground {
            let waiting = world.api::<Deployment>().get("web").await.expect("still exists");
            assert_eq!(waiting.metadata.finalizers, Some(vec!["foregroundDeletion".to_string()]));
        }
        let look = async || {
            let all = ListParams::default();
            let deployments = world.api::<Deployment>().list(&all).await.expect("listed").items.len();
            let sets = world.api::<ReplicaSet>().list(&all).await.expect("listed").items.len();
            let pods = world.pods("app=web").await.len();
            if foreground && deployments == 0 {
                assert_eq!((sets, pods), (0, 0), "the owner was deleted before its dependents");
            }
            (deployments, sets, pods)
        };
        world.until("nothing left", look, |left| *left == (0, 0, 0)).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_are_adopted_by_new_owner_of_the_same_name() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.create::<Deployment>(deployment("default")).await;
    running(&world, 2).await;
    let before: Vec<String> =
        world.pods("app=web").await.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    world.api::<Deployment>().delete("web", &DeleteParams::orphan()).await.expect("deleted");
    let gone = async || world.api::<Deployment>().get_opt("web").await.expect("an answer");
    world.until("the deployment is gone", gone, Option::is_none).await;
    let sets = async || world.api::<ReplicaSet>().list(&ListParams::default()).await.expect("sets").items;
    let left = world
        .until("an orphaned set", sets, |sets| {
            sets.len() == 1 && sets[0].metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
        })
        .await;
    world.create::<Deployment>(deployment("default")).await;
    world
        .until("adoption", sets, |sets| {
            sets.len() == 1
                && sets[0].metadata.owner_references.as_ref().is_some_and(|owners| owners.len() == 1)
        })
        .await;
    running(&world, 2).await;
    let after: Vec<String> =
        world.pods("app=web").await.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    assert_eq!(before, after);
    assert_eq!(left[0].metadata.uid, sets().await[0].metadata.uid);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_collection_includes_custom_resources() {
    let world = World::start().await;
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    }))
    .expect("a definition");
    world.all().create(&PostParams::default(), &definition).await.expect("created");
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &resource);
    let parent = widgets
        .create(&PostParams::default(), &DynamicObject::new("parent", &resource))
        .await
        .expect("created");
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "parent", "uid": parent.metadata.uid}]);
    let mut child = DynamicObject::new("child", &resource);
    child.metadata.owner_references = serde_json::from_value(owner.clone()).ok();
    widgets.create(&PostParams::default(), &child).await.expect("created");
    world.create::<ConfigMap>(json!({"metadata": {"name": "settings", "ownerReferences": owner}})).await;
    // One minute is long enough for the garbage collector to process all of them.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(widgets.get_opt("child").await.expect("an answer").is_some());
    widgets.delete("parent", &DeleteParams::background()).await.expect("deleted");
    let look = async || {
        let child = widgets.get_opt("child").await.expect("an answer").is_some();
        let settings = world.api::<ConfigMap>().get_opt("settings").await.expect("an answer").is_some();
        (child, settings)
    };
    world.until("all gone", look, |left| *left == (false, false)).await;
    // The owner reference points to an object that never existed.
    let lost = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "ghost", "uid": "no-such"}]);
    world.create::<ConfigMap>(json!({"metadata": {"name": "lost", "ownerReferences": lost}})).await;
    let look = async || world.api::<ConfigMap>().get_opt("lost").await.expect("an answer");
    world.until("the object with a missing owner is deleted", look, Option::is_none).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_namespace_deletes_its_content() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "team"}})).expect("a namespace");
    world.all::<Namespace>().create(&PostParams::default(), &namespace).await.expect("created");
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "team");
    let account = async || accounts.get_opt("default").await.expect("an answer");
    world.until("its service account", account, Option::is_some).await;
    world.create::<Deployment>(deployment("team")).await;
    world
        .create::<ConfigMap>(
            json!({"metadata": {"name": "held", "namespace": "team", "finalizers": ["example.com/hold"]}}),
        )
        .await;
    running(&world, 2).await;
    world.all::<Namespace>().delete("team", &DeleteParams::default()).await.expect("deleted");
    let look = async || world.all::<Namespace>().get_opt("team").await.expect("an answer");
    let message = |namespace: &Option<Namespace>| {
        let conditions = namespace.as_ref()?.status.as_ref()?.conditions.clone()?;
        conditions
            .into_iter()
            .find(|one| one.type_ == "NamespaceFinalizersRemaining" && one.status == "True")?
            .message
    };
    let held =
        world.until("the message about finalizers", look, |namespace| message(namespace).is_some()).await;
    let expected =
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    assert_eq!(message(&held).as_deref(), Some(expected));
    assert!(world.pods("app=web").await.is_empty());
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "team");
    let release = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &Default::default(), &release).await.expect("released");
    world.until("the namespace is gone", look, Option::is_none).await;
    world.stop().await;
}
