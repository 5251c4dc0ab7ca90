//! Tests of v1alpha5 objects that cannot be served: which of them get a condition with which message, and that the
//! condition is removed when the object is fixed.

use std::sync::Arc;

use karpenter_api::crds;
use karpenter_api::types::NodePool;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::legacy::LegacyKinds;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::Kwok;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::world::World;
use crate::embedded::{ClusterView, TokioClock, clock, define, define_kinds};

const CLASS: (&str, &str) = ("karpenter.k8s.aws/v1", "EC2NodeClass");
const TEMPLATE: (&str, &str) = ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate");

async fn edit(world: &World, name: &str, spec: Value) {
    let templates = world.of_kind(TEMPLATE);
    let patch = Patch::Merge(json!({ "spec": spec }));
    templates.patch(name, &PatchParams::default(), &patch).await.expect("edited");
}

/// Waits until the Provisioner's condition has the reason, and returns its message.
async fn until_reason(world: &World, reason: &str) -> String {
    let active = async || world.active("old").await;
    world.until(reason, active, |(_, found, _)| found == reason).await.2
}

#[tokio::test(start_paused = true)]
async fn existing_class_of_another_owner_is_not_used_and_the_provisioner_reports_it() {
    let world = World::start().await;
    let theirs = json!({"apiVersion": CLASS.0, "kind": CLASS.1, "metadata": {"name": "shared"}, "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "theirs",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }});
    world.apply(&theirs).await.expect("a class");
    world.sleep(10).await;
    world.provisioner("old", json!({})).await;
    let message = until_reason(&world, "NameConflict").await;
    assert!(message.contains("AWSNodeTemplate shared: EC2NodeClass shared exists"), "{message}");
    assert!(world.list::<NodePool>().await.is_empty(), "nothing is derived");
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.sleep(120).await;
    assert!(world.nodes_of("old").await.is_empty());
    let class = world.of_kind(CLASS).get("shared").await.expect("there");
    assert_eq!(class.data["spec"]["instanceProfile"], "theirs");
    world.of_kind(CLASS).delete("shared", &DeleteParams::default()).await.expect("deleted");
    world.until_running(1).await;
    until_reason(&world, "Active").await;
}

#[tokio::test(start_paused = true)]
async fn unservable_template_is_reported_on_its_provisioner() {
    let world = World::start().await;
    let spec = json!({"subnetSelector": {"a": "b"}, "launchTemplate": "mine"});
    let template = json!({"apiVersion": TEMPLATE.0, "kind": TEMPLATE.1, "metadata": {"name": "unmanaged"}, "spec": spec});
    world.apply(&template).await.expect("a template");
    world.provisioner("old", json!({"providerRef": {"name": "unmanaged"}})).await;
    let message = until_reason(&world, "Unsupported").await;
    assert!(message.starts_with("AWSNodeTemplate unmanaged: E16: "), "{message}");
    assert!(world.list::<NodePool>().await.is_empty(), "nothing is derived");
    let mended = json!({"launchTemplate": null, "instanceProfile": "p", "securityGroupSelector": {"a": "b"}});
    edit(&world, "unmanaged", mended).await;
    until_reason(&world, "Active").await;
}

#[tokio::test(start_paused = true)]
async fn template_that_becomes_unservable_is_reported_and_derived_objects_stay() {
    let world = World::start().await;
    world.provisioner("old", json!({})).await;
    until_reason(&world, "Active").await;
    edit(&world, "shared", json!({"amiFamily": "Ubuntu"})).await;
    let message = until_reason(&world, "Unsupported").await;
    assert!(message.starts_with("AWSNodeTemplate shared: E06: "), "{message}");
    assert!(message.ends_with("its NodePool is kept unchanged until this is fixed"), "{message}");
    let class = world.of_kind(CLASS).get("shared").await.expect("there");
    assert_eq!(class.data["spec"]["amiSelectorTerms"], json!([{"alias": "al2@latest"}]));
    assert_eq!(world.list::<NodePool>().await.len(), 1);
    edit(&world, "shared", json!({"amiFamily": "Bottlerocket"})).await;
    until_reason(&world, "Active").await;
}

#[tokio::test(start_paused = true)]
async fn objects_with_names_longer_than_a_label_have_conditions() {
    let world = World::start().await;
    let long = "a".repeat(70);
    world.template(&long).await;
    let spec = json!({"providerRef": {"name": long}, "ttlSecondsAfterEmpty": 30});
    let provisioner = json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner",
        "metadata": {"name": long}, "spec": spec});
    world.apply(&provisioner).await.expect("a Provisioner");
    let active = async || world.active(&long).await.0;
    world.until("the Provisioner is active", active, |status| status == "True").await;
    // The kwok provider does not set the status of a node class, so the test sets it.
    let classes = world.of_kind(CLASS).list(&ListParams::default()).await.expect("listed").items;
    let [class] = &classes[..] else { panic!("{classes:?}") };
    let found = json!({"status": {"subnets": [{"id": "subnet-1", "zone": "us-east-1a"}]}});
    let (name, patch) = (class.name_any(), Patch::Merge(found));
    world.of_kind(CLASS).patch_status(&name, &PatchParams::default(), &patch).await.expect("a status");
    let subnets = async || {
        let template = world.of_kind(TEMPLATE).get(&long).await.expect("there");
        template.data["status"]["subnets"].as_array().map_or(0, Vec::len)
    };
    world.until("the template's status lists its subnets", subnets, |count| *count == 1).await;
}

#[tokio::test(start_paused = true)]
async fn readiness_names_missing_v1alpha5_crds() {
    let clock = clock();
    let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
    let client = Client::new(server, "default");
    define_kinds(&client).await;
    let cloud = Arc::new(Kwok::generic(client.clone(), clock));
    let operator = Operator::watch(client.clone(), cloud, clock, Options::default());
    let pages = operator.health_pages();
    let _kinds = LegacyKinds::watch(&operator.context().client, &operator.context().stores);
    let readiness = async || String::from_utf8(pages("/readyz", "").body).expect("text");
    let names_only_legacy_kinds = |body: &String| {
        let lines: Vec<&str> = body.lines().collect();
        lines.len() == 2
            && lines[0].starts_with("not listed yet: Provisioner: ")
            && lines[1].starts_with("not listed yet: AWSNodeTemplate: ")
    };
    let view = ClusterView::new(client.clone(), clock);
    view.until("only the v1alpha5 kinds are missing", readiness, names_only_legacy_kinds).await;
    assert_eq!(pages("/readyz", "").status, 500);
    define(&client, crds::legacy()).await;
    view.until("ready", async || pages("/readyz", "").status, |status| *status == 200).await;
}
