//! Tests of the v1alpha5 API on EC2: a Provisioner launches instances, and the Provisioner and its AWSNodeTemplate get
//! a status.

use std::time::Duration;

use karpenter_api::crds;
use karpenter_aws::api::iam::InstanceProfile;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::world::{World, define};

const MINUTE: Duration = Duration::from_secs(60);

fn api(world: &World, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(world.client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn provisioner_gets_instances_with_v1alpha5_labels_and_status() {
    let mut world = World::start().await;
    define(&world.client, crds::legacy()).await;
    world.serve_legacy().await;
    let templates = api(&world, "karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate");
    let provisioners = api(&world, "karpenter.sh", "v1alpha5", "Provisioner");
    world.aws.world(|world| world.profiles.insert("nodes".to_owned(), InstanceProfile::default()));
    create(&templates, json!({
        "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "shared"},
        "spec": {
            "amiFamily": "AL2", "amiSelector": {"aws::ids": "ami-x8664standard"},
            "subnetSelector": {"karpenter.sh/discovery": "cluster"},
            "securityGroupSelector": {"karpenter.sh/discovery": "cluster"},
            "tags": {"team": "shop"},
        },
    }))
    .await;
    create(
        &provisioners,
        json!({
            "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "old"},
            "spec": {"providerRef": {"name": "shared"}, "ttlSecondsAfterEmpty": 30},
        }),
    )
    .await;
    world.pass(2 * MINUTE).await;
    let status = provisioners.get("old").await.expect("there").data["status"].clone();
    assert_eq!(status["conditions"][0]["status"], "True", "{status:#}");
    let found = templates.get("shared").await.expect("there").data["status"].clone();
    assert!(!found["subnets"].as_array().expect("subnets").is_empty(), "{found:#}");
    assert!(found["subnets"][0].get("zone").is_some() && found["subnets"][0].get("zoneID").is_none());
    assert!(!found["securityGroups"].as_array().expect("groups").is_empty());
    assert_eq!(found["amis"][0]["id"], "ami-x8664standard");

    world.inflate(3).await;
    world.pass(3 * MINUTE).await;
    assert_eq!(world.running_pods().await, 3);
    for machine in world.machines() {
        let tags = world.aws.world(|world| world.instances[&machine].instance.tags.clone());
        assert_eq!(tags["karpenter.sh/provisioner-name"], "old");
        assert_eq!(tags["Name"], "karpenter.sh/provisioner-name/old");
        assert_eq!(tags["team"], "shop");
    }
    provisioners.delete("old", &DeleteParams::default()).await.expect("deleted");
    world.pass(10 * MINUTE).await;
    assert_eq!(world.machines(), Vec::<String>::new());
    assert!(world.claims().await.is_empty());
}
