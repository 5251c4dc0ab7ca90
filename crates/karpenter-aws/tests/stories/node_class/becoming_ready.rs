use std::time::Duration;

use karpenter_aws::fake::Call;
use serde_json::json;

use super::world::{ROLE, World};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn new_class_becomes_ready() {
    let world = World::start().await;
    world.create_class("default", json!({"tags": {"team": "a"}})).await;
    world.until("default", "Ready", "True").await;
    let class = world.class("default").await;
    assert_eq!(class.metadata.finalizers.as_deref(), Some(&["karpenter.k8s.aws/termination".to_owned()][..]));
    let status = class.status.clone().expect("a status");
    assert_eq!(status.subnets.len(), world.aws.world(|cloud| cloud.subnets.len()));
    assert!(status.subnets.iter().all(|subnet| subnet.zone_id.is_some()));
    assert_eq!(status.security_groups[0].id, "sg-nodes");
    assert_eq!(status.amis[0].id, "ami-1");
    let mut conditions: Vec<(&str, &str, Option<i64>)> = status
        .conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status.as_str(), one.observed_generation))
        .collect();
    conditions.sort_unstable();
    let expected = [
        "AMIsReady",
        "CapacityReservationsReady",
        "InstanceProfileReady",
        "PlacementGroupReady",
        "Ready",
        "SecurityGroupsReady",
        "SubnetsReady",
        "ValidationSucceeded",
    ];
    assert_eq!(conditions, expected.map(|kind| (kind, "True", Some(1))));
    // IAM has the profile, with the role, under the path of the node class.
    let name = status.instance_profile.expect("a profile");
    let profile = world.aws.world(|cloud| cloud.profiles.get(&name).cloned()).expect("made");
    assert_eq!(profile.roles, [ROLE]);
    let uid = class.metadata.uid.expect("a uid");
    assert_eq!(profile.path, format!("/karpenter/us-west-2/cluster/{uid}/"));
    assert_eq!(profile.tags["team"], "a");
    assert_eq!(profile.tags["karpenter.k8s.aws/ec2nodeclass"], "default");
    // There was a dry run, but no instance was launched.
    let (fleets, machines) = world.aws.world(|cloud| (cloud.fleets.clone(), cloud.instances.len()));
    assert!(!fleets.is_empty() && fleets.iter().all(|fleet| fleet.is_dry_run));
    assert_eq!(machines, 0);
}

#[tokio::test(start_paused = true)]
async fn dry_run_is_cached_for_half_an_hour() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    world.pass(29 * MINUTE).await;
    assert_eq!((world.aws.count(Call::CreateFleet), world.aws.count(Call::RunInstances)), (1, 1));
    world.pass(12 * MINUTE).await;
    assert_eq!((world.aws.count(Call::CreateFleet), world.aws.count(Call::RunInstances)), (2, 2));
    // A change of the node class causes a new dry run.
    world.patch_class("default", json!({"metadata": {"annotations": {"again": "please"}}})).await;
    world.pass(MINUTE).await;
    assert_eq!(world.aws.count(Call::CreateFleet), 3);
}

#[tokio::test(start_paused = true)]
async fn number_of_calls_follows_cache_ttls() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    world.aws.forget_calls();
    world.pass(30 * MINUTE).await;
    // Because of subnets there is one reconcile per minute; security groups are cached for a minute, profiles for 15
    // minutes.
    for (call, least, most) in [
        (Call::DescribeSubnets, 25, 31),
        (Call::DescribeSecurityGroups, 25, 31),
        (Call::GetInstanceProfile, 1, 3),
        (Call::CreateInstanceProfile, 0, 0),
    ] {
        let count = world.aws.count(call);
        assert!((least..=most).contains(&count), "{call:?}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn disabled_dry_run_makes_no_calls() {
    let world = World::start_with(|_, settings| settings.is_dry_run_disabled = true).await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    for call in [Call::CreateLaunchTemplate, Call::CreateFleet, Call::RunInstances] {
        assert_eq!(world.aws.count(call), 0, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reservations_need_feature_gate() {
    let world = World::start_with(|context, _| context.gates.reserved_capacity = false).await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    assert_eq!(world.said("default", "CapacityReservationsReady").await, None);
    assert_eq!(world.aws.count(Call::DescribeCapacityReservations), 0);
}

#[tokio::test(start_paused = true)]
async fn status_follows_free_addresses_of_subnets() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let roomy = world.aws.world(|cloud| {
        let id = cloud.subnets.keys().next_back().expect("a subnet").clone();
        cloud.subnets.get_mut(&id).expect("there").available_ip_count = 9000;
        id
    });
    world.pass(2 * MINUTE).await;
    assert_eq!(world.class("default").await.status.expect("a status").subnets[0].id, roomy);
}

#[tokio::test(start_paused = true)]
async fn changed_spec_is_reconciled_immediately() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    world.patch_class("default", json!({"spec": {"subnetSelectorTerms": [{"id": "subnet-a"}]}})).await;
    world.pass(Duration::from_secs(5)).await;
    let class = world.class("default").await;
    let status = class.status.expect("a status");
    let ids: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    assert_eq!(ids, ["subnet-a"]);
    assert!(
        status
            .conditions
            .iter()
            .all(|one| one.observed_generation == Some(2) && one.status.as_str() == "True")
    );
}
