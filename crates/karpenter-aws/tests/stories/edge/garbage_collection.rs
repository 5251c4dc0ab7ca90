use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_aws::api::AwsError;
use karpenter_aws::api::ec2::{Ec2Instance, InstanceState};
use karpenter_aws::api::iam::InstanceProfile;
use karpenter_aws::fake::{Call, FakeInstance};
use karpenter_aws::garbage_collection::{InstanceCollector, ProfileCollector};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::world::{EPOCH, World, ZONE};

fn machine(world: &World, id: &str) {
    let instance = Ec2Instance {
        id: id.to_owned(),
        zone: ZONE.to_owned(),
        launched_at: EPOCH.parse().ok(),
        state: InstanceState::Running,
        tags: [(labels::NODEPOOL.to_owned(), "default".to_owned())].into(),
        ..Ec2Instance::default()
    };
    let since = EPOCH.parse().expect("a time");
    let fake = FakeInstance { instance, visible_at: since, runs_at: since, ends_at: None };
    world.aws.world(|world| world.instances.insert(id.to_owned(), fake));
}

fn ended(world: &World) -> BTreeSet<String> {
    world.aws.world(|world| world.terminations.iter().flatten().cloned().collect())
}

#[tokio::test(start_paused = true)]
async fn instances_without_claim_are_terminated_with_their_nodes() {
    let world = World::start().await;
    machine(&world, "i-1");
    machine(&world, "i-2");
    world.claim("known", "i-1", json!({})).await;
    world
        .create::<Node>(
            json!({"metadata": {"name": "lost"}, "spec": {"providerID": format!("aws:///{ZONE}/i-2")}}),
        )
        .await;
    let collector = InstanceCollector::new(world.context.clone(), world.machines());
    world.spawn(collector, InstanceCollector::watch, 1);
    // A new instance may be running before its provider id is in the NodeClaim's status.
    world.pass(Duration::from_secs(25)).await;
    assert!(ended(&world).is_empty());
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(ended(&world), BTreeSet::from(["i-2".to_owned()]));
    let nodes: Api<Node> = Api::all(world.client.clone());
    assert!(nodes.get_opt("lost").await.expect("an answer").is_none());
    assert!(nodes.get_opt("known").await.expect("an answer").is_some());
}

#[tokio::test(start_paused = true)]
async fn collector_runs_often_at_start_and_survives_aws_failures() {
    let world = World::start().await;
    machine(&world, "i-2");
    world.aws.fail_next(Call::DescribeInstances, vec![AwsError::unreachable("down"); 3]);
    world.aws.fail_next(Call::TerminateInstances, [AwsError::new("RequestLimitExceeded", "slow down")]);
    let collector = InstanceCollector::new(world.context.clone(), world.machines());
    world.spawn(collector, InstanceCollector::watch, 1);
    world.pass(Duration::from_secs(75)).await;
    assert_eq!(ended(&world), BTreeSet::from(["i-2".to_owned()]));
    world.pass(Duration::from_secs(400)).await;
    world.aws.forget_calls();
    world.pass(Duration::from_secs(600)).await;
    assert_eq!(world.aws.count(Call::DescribeInstances), 5);
}

fn profile(world: &World, name: &str, path: &str) {
    let profile =
        InstanceProfile { name: name.to_owned(), path: path.to_owned(), ..InstanceProfile::default() };
    world.aws.world(|world| world.profiles.insert(name.to_owned(), profile));
}

#[tokio::test(start_paused = true)]
async fn only_unused_profiles_are_deleted() {
    let world = World::start().await;
    let mine = "/karpenter/us-west-2/cluster/uid/";
    for name in ["of-class", "of-claim", "fresh", "old"] {
        profile(&world, name, mine);
    }
    profile(&world, "of-another-cluster", "/karpenter/us-west-2/cluster2/uid/");
    profile(&world, "of-others", "/");
    world.class("default", json!({"instanceProfile": "of-class"})).await;
    world.claim("one", "i-1", json!({})).await;
    let claims: Api<karpenter_api::types::NodeClaim> = Api::all(world.client.clone());
    let annotations = json!({labels::AWS_ANNOTATION_INSTANCE_PROFILE_NAME: "of-claim"});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    claims.patch("one", &PatchParams::default(), &patch).await.expect("patched");
    world.pass(Duration::from_secs(1)).await;
    let collector = ProfileCollector::new(world.context.clone(), world.machines(), "us-west-2", "cluster");
    world.spawn(collector, ProfileCollector::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    let left: BTreeSet<String> = world.aws.world(|world| world.profiles.keys().cloned().collect());
    let expected = ["fresh", "of-another-cluster", "of-claim", "of-class", "of-others"];
    assert_eq!(left, expected.into_iter().map(str::to_owned).collect());
    world.aws.forget_calls();
    world.pass(Duration::from_secs(3600)).await;
    assert_eq!(world.aws.count(Call::ListInstanceProfiles), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_profile_deletion_does_not_block_others() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        profile(&world, name, "/karpenter/us-west-2/cluster/uid/");
    }
    // The deletion of the first profile fails; it is retried later.
    world.aws.fail_next(Call::DeleteInstanceProfile, [AwsError::new("DeleteConflict", "in use")]);
    let collector = ProfileCollector::new(world.context.clone(), world.machines(), "us-west-2", "cluster");
    world.spawn(collector, ProfileCollector::watch, 1);
    let left = || world.aws.world(|world| world.profiles.keys().cloned().collect::<Vec<String>>());
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(left(), ["a"]);
    world.pass(Duration::from_secs(61)).await;
    assert!(left().is_empty());
}
