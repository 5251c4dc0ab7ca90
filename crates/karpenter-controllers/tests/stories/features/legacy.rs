//! Tests of the v1alpha5 API: derived objects, conditions of their owners, and the label
//! `karpenter.sh/provisioner-name`.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{EC2NodeClass, NodePool};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::world::{World, with_gates};

fn legacy_api(world: &World, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(world.client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

fn provisioners(world: &World) -> Api<DynamicObject> {
    legacy_api(world, "karpenter.sh", "v1alpha5", "Provisioner")
}

fn templates(world: &World) -> Api<DynamicObject> {
    legacy_api(world, "karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate")
}

async fn create(api: &Api<DynamicObject>, kind: (&str, &str), name: &str, spec: Value) {
    let object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name}, "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(object).expect("an object"))
        .await
        .expect("created");
}

async fn provisioner(world: &World, name: &str, spec: Value) {
    create(&provisioners(world), ("karpenter.sh/v1alpha5", "Provisioner"), name, spec).await;
}

async fn template(world: &World, name: &str) {
    let spec =
        json!({"instanceProfile": "p", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}});
    create(&templates(world), ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"), name, spec).await;
}

async fn served() -> World {
    let mut world = World::start(with_gates("")).await;
    world.serve_legacy().await;
    world
}

/// Status and reason of the condition `Active`.
async fn active(world: &World, name: &str) -> (String, String) {
    let object = provisioners(world).get(name).await.expect("there");
    let condition = &object.data["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[tokio::test(start_paused = true)]
async fn legacy_objects_own_derived_objects_and_delete_them() {
    let world = served().await;
    template(&world, "shared").await;
    let spec =
        json!({"providerRef": {"name": "shared"}, "ttlSecondsAfterEmpty": 30, "ttlSecondsUntilExpired": 600});
    provisioner(&world, "old", spec).await;
    world.sleep(10).await;
    let pool = world.all::<NodePool>().get("old").await.expect("derived");
    let owner = &pool.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Provisioner", Some(true)));
    assert_eq!(pool.spec.template.spec.node_class_ref.name, "shared");
    assert_eq!(pool.annotations()["compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired"], "600");
    let class = world.all::<EC2NodeClass>().get("shared").await.expect("derived");
    assert_eq!(class.owner_references()[0].kind, "AWSNodeTemplate");
    // Manual edits of derived objects are reverted, even of fields that the Provisioner does not set. Edits of the
    // Provisioner are applied.
    let more = Patch::Merge(json!({"spec": {"weight": 3, "limits": {"cpu": "1"}, "template": {"spec": {
        "terminationGracePeriod": "1h"}}, "disruption": {"consolidateAfter": "7h"}}}));
    world.all::<NodePool>().patch("old", &PatchParams::default(), &more).await.expect("edited");
    world.sleep(10).await;
    let undone = world.all::<NodePool>().get("old").await.expect("there");
    assert_eq!(serde_json::to_value(&undone.spec).unwrap(), serde_json::to_value(&pool.spec).unwrap());
    let weight = |weight: Value| Patch::Merge(json!({"spec": {"weight": weight}}));
    world.all::<NodePool>().patch("old", &PatchParams::default(), &weight(json!(7))).await.expect("edited");
    provisioners(&world).patch("old", &PatchParams::default(), &weight(json!(50))).await.expect("edited");
    world.sleep(10).await;
    let pool = world.all::<NodePool>().get("old").await.expect("there");
    assert_eq!(pool.spec.weight, Some(50));
    let settled = pool.resource_version();
    world.sleep(600).await;
    let pool = world.all::<NodePool>().get("old").await.expect("there");
    assert_eq!(pool.resource_version(), settled, "nothing is written when nothing changes");
    provisioners(&world).delete("old", &DeleteParams::background()).await.expect("deleted");
    world.sleep(60).await;
    let left = world.all::<NodePool>().get_opt("old").await.expect("asked");
    assert!(left.is_none(), "{:?}", left.map(|pool| pool.metadata));
    assert!(world.all::<EC2NodeClass>().get_opt("shared").await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn deleting_a_provisioner_with_orphan_propagation_leaves_no_pool_that_could_grow() {
    let world = served().await;
    template(&world, "shared").await;
    provisioner(&world, "old", json!({"providerRef": {"name": "shared"}})).await;
    world.sleep(10).await;
    assert!(world.all::<NodePool>().get_opt("old").await.expect("asked").is_some());
    provisioners(&world).delete("old", &DeleteParams::orphan()).await.expect("deleted");
    world.sleep(60).await;
    assert!(world.all::<NodePool>().get_opt("old").await.expect("asked").is_none());
}

#[tokio::test(start_paused = true)]
async fn unservable_objects_state_the_reason_and_do_not_affect_others() {
    let world = served().await;
    template(&world, "shared").await;
    provisioner(&world, "lost", json!({"providerRef": {"name": "nowhere"}})).await;
    // The NodePool `default` was created by the test, before the Provisioner with the same name.
    provisioner(&world, "default", json!({"providerRef": {"name": "shared"}})).await;
    let restricted = json!({"providerRef": {"name": "shared"}, "labels": {"kubernetes.io/mine": "x"}});
    provisioner(&world, "restricted", restricted).await;
    provisioner(&world, "fine", json!({"providerRef": {"name": "shared"}})).await;
    world.sleep(10).await;
    let expected = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(active(&world, "lost").await, expected("False", "TemplateNotFound"));
    assert_eq!(active(&world, "default").await, expected("False", "NameConflict"));
    assert_eq!(active(&world, "restricted").await, expected("False", "Invalid"));
    assert_eq!(
        active(&world, "fine").await,
        expected("Unknown", "NotReconciled"),
        "this provider does not support EC2NodeClass"
    );
    let untouched = world.all::<NodePool>().get("default").await.expect("there");
    assert!(untouched.owner_references().is_empty());
    template(&world, "nowhere").await;
    world.sleep(10).await;
    assert_eq!(active(&world, "lost").await.0, "Unknown", "its AWSNodeTemplate exists now");
}

#[tokio::test(start_paused = true)]
async fn class_for_kubelet_settings_exists_as_long_as_the_settings() {
    let world = served().await;
    template(&world, "shared").await;
    let spec = json!({"providerRef": {"name": "shared"}, "kubeletConfiguration": {"maxPods": 50}});
    provisioner(&world, "dense", spec).await;
    world.sleep(10).await;
    let split = world.all::<EC2NodeClass>().get("shared-dense").await.expect("derived");
    assert_eq!(split.owner_references()[0].kind, "Provisioner");
    let without = Patch::Merge(json!({"spec": {"kubeletConfiguration": null}}));
    provisioners(&world).patch("dense", &PatchParams::default(), &without).await.expect("edited");
    world.sleep(10).await;
    assert!(world.all::<EC2NodeClass>().get_opt("shared-dense").await.expect("asked").is_none());
    let pool = world.all::<NodePool>().get("dense").await.expect("there");
    assert_eq!(pool.spec.template.spec.node_class_ref.name, "shared");
}

#[tokio::test(start_paused = true)]
async fn nodes_of_derived_pools_have_the_provisioner_label_and_pods_may_select_it() {
    let world = World::start(with_gates("")).await;
    let label = Patch::Merge(
        json!({"metadata": {"labels": {"compatibility.karpenter.sh/derived-from": "provisioner"}}}),
    );
    world.all::<NodePool>().patch("default", &PatchParams::default(), &label).await.expect("labelled");
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeSelector": {"karpenter.sh/provisioner-name": "default"},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }});
    let pods = world.namespaced::<k8s_openapi::api::core::v1::Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
    world.sleep(120).await;
    assert_eq!(world.running().await, (1, 1));
    let selected = ListParams::default().labels("karpenter.sh/provisioner-name");
    let nodes = world.all::<Node>().list(&selected).await.expect("listed").items;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].labels()["karpenter.sh/nodepool"], "default");
    let claims = world.claims().await;
    assert!(claims[0].spec.requirements.iter().all(|one| one.key != "karpenter.sh/provisioner-name"));
}
