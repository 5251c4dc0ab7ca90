//! Tests of instances after their launch: reading, listing, tagging, termination.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_aws::api::ec2::InstanceState;
use karpenter_aws::api::zonal_shift::Shift;
use karpenter_aws::api::{AwsError, Tags};
use karpenter_aws::fake::Call;
use karpenter_aws::instance_calls::instance_id;
use karpenter_aws::instances::Freshness;
use karpenter_cloud::{CloudError, CloudProvider};
use tokio::time::advance;

use super::world::World;

async fn launched(world: &World) -> NodeClaim {
    let mut claim = world.claim(&[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let machine = world.provider.create(&claim).await.unwrap();
    claim.metadata.labels = Some(machine.labels);
    claim.status.get_or_insert_default().provider_id = Some(machine.provider_id);
    claim
}

fn provider_id(claim: &NodeClaim) -> String {
    claim.status.as_ref().unwrap().provider_id.clone().unwrap()
}

fn id(claim: &NodeClaim) -> String {
    instance_id(&provider_id(claim)).unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn instance_lifecycle_from_running_to_terminated() {
    let world = World::new().await;
    let claim = launched(&world).await;
    assert_eq!(world.provider.delete(&claim).await, Ok(()));
    let found = world.provider.get(&provider_id(&claim)).await.unwrap();
    assert!(found.is_terminating);
    assert!(world.provider.list().await.unwrap()[0].is_terminating);
    assert_eq!(world.provider.delete(&claim).await, Ok(()));
    assert_eq!(world.cloud.count(Call::TerminateInstances), 1, "terminating already; no second call");
    advance(Duration::from_secs(60)).await;
    assert!(world.provider.delete(&claim).await.unwrap_err().is_not_found());
    assert!(world.provider.get(&provider_id(&claim)).await.unwrap_err().is_not_found());
    assert!(world.provider.list().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn terminations_are_batched() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..10).map(|_| launched(&world))).await;
    world.cloud.forget_calls();
    let answers = futures::future::join_all(claims.iter().map(|claim| world.provider.delete(claim))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(
        (world.cloud.count(Call::DescribeInstances), world.cloud.count(Call::TerminateInstances)),
        (1, 1)
    );
    assert_eq!(world.cloud.world(|cloud| cloud.terminations[0].len()), 10);
}

#[tokio::test(start_paused = true)]
async fn terminated_instances_are_described_with_one_call() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..10).map(|_| launched(&world))).await;
    futures::future::join_all(claims[1..].iter().map(|claim| world.provider.delete(claim))).await;
    // The instance is terminated, but EC2 returns it for a while.
    advance(Duration::from_secs(60)).await;
    world.cloud.forget_calls();
    let answers = futures::future::join_all(claims.iter().map(|claim| world.provider.delete(claim))).await;
    assert_eq!(answers[0], Ok(()));
    assert!(answers[1..].iter().all(|answer| answer.as_ref().is_err_and(CloudError::is_not_found)));
    assert_eq!(world.cloud.count(Call::DescribeInstances), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_instance_does_not_affect_batch() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..3).map(|_| launched(&world))).await;
    world.cloud.world(|cloud| cloud.instances.remove(&id(&claims[1])));
    world.cloud.forget_calls();
    let answers = futures::future::join_all(claims.iter().map(|claim| world.provider.delete(claim))).await;
    let found: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(found, [true, false, true]);
    assert!(answers[1].as_ref().unwrap_err().is_not_found());
    assert_eq!(world.cloud.count(Call::DescribeInstances), 4, "one batch, then single calls");
}

#[tokio::test(start_paused = true)]
async fn single_calls_after_failed_batch_are_limited() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..300).map(|_| launched(&world))).await;
    world.cloud.world(|cloud| cloud.instances.remove(&id(&claims[7])));
    world.cloud.set_latency(Duration::from_millis(100));
    world.cloud.forget_calls();
    let answers = futures::future::join_all(claims.iter().map(|claim| world.provider.delete(claim))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 299);
    assert_eq!(world.cloud.count(Call::DescribeInstances), 301, "one batch, then single calls");
    assert_eq!(world.cloud.concurrent_calls_max(), 50);
}

#[tokio::test(start_paused = true)]
async fn failed_termination_is_reported_and_counted() {
    let world = World::new().await;
    let claim = launched(&world).await;
    world.cloud.fail_next(Call::TerminateInstances, [AwsError::new("UnauthorizedOperation", "x")]);
    let found = world.provider.delete(&claim).await.unwrap_err();
    assert!(matches!(found, CloudError::Unauthorized { .. }), "{found}");
    let zone = claim.metadata.labels.as_ref().unwrap()[labels::ZONE].clone();
    let zone_id = claim.metadata.labels.as_ref().unwrap()[labels::AWS_ZONE_ID].clone();
    let count =
        world.metrics.termination_failures.with_label_values(&[zone.as_str(), zone_id.as_str()]).get();
    assert_eq!(count, 1);
    assert_eq!(world.provider.delete(&claim).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn claim_without_instance_is_not_found() {
    let world = World::new().await;
    let claim = world.claim(&[]);
    assert!(world.provider.delete(&claim).await.unwrap_err().is_not_found());
    for strange in ["", "kwok://x", "aws:///", "aws:///us-west-2a/i-0"] {
        assert!(world.provider.get(strange).await.unwrap_err().is_not_found(), "{strange}");
    }
    // The status of the NodeClaim was not written, but this process has the launch in its cache.
    world.provider.create(&claim).await.unwrap();
    assert_eq!(world.provider.delete(&claim).await, Ok(()));
    assert_eq!(world.cloud.count(Call::TerminateInstances), 1);
}

#[tokio::test(start_paused = true)]
async fn instance_not_visible_yet_is_not_missing() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.visible_after = Duration::from_secs(5));
    let claim = launched(&world).await;
    assert!(world.provider.get(&provider_id(&claim)).await.unwrap_err().is_not_found());
    assert!(world.provider.list().await.unwrap().is_empty());
    advance(Duration::from_secs(5)).await;
    assert!(world.provider.get(&provider_id(&claim)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn instance_is_cached_until_fresh_read() {
    let world = World::new().await;
    let claim = launched(&world).await;
    let instances = world.provider.instances();
    instances.get(&id(&claim), Freshness::Cached).await.unwrap();
    world.cloud.forget_calls();
    instances.get(&id(&claim), Freshness::Cached).await.unwrap();
    assert_eq!(world.cloud.count(Call::DescribeInstances), 0);
    instances.get(&id(&claim), Freshness::Fresh).await.unwrap();
    assert_eq!(world.cloud.count(Call::DescribeInstances), 1);
    world.cloud.world(|cloud| cloud.instances.clear());
    instances.list().await.unwrap();
    let found = instances.get(&id(&claim), Freshness::Cached).await.unwrap_err();
    assert!(found.is_not_found(), "a list drops cached instances that do not exist any more");
}

#[tokio::test(start_paused = true)]
async fn only_instances_of_cluster_are_listed() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..4).map(|_| launched(&world))).await;
    world.cloud.world(|cloud| {
        let mut tags = |claim: &NodeClaim, change: fn(&mut Tags)| {
            change(&mut cloud.instances.get_mut(&id(claim)).unwrap().instance.tags);
        };
        tags(&claims[0], |tags| drop(tags.insert("eks:eks-cluster-name".to_owned(), "other".to_owned())));
        tags(&claims[1], |tags| drop(tags.remove("karpenter.sh/nodepool")));
        tags(&claims[2], |tags| drop(tags.remove("karpenter.k8s.aws/ec2nodeclass")));
    });
    let listed = world.provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].provider_id, provider_id(&claims[3]));
}

#[tokio::test(start_paused = true)]
async fn instance_is_described_without_nodepool_and_class() {
    let world = World::new().await;
    launched(&world).await;
    world.objects.pools.lock().unwrap().clear();
    world.objects.classes.lock().unwrap().clear();
    let found = world.provider.list().await.unwrap().remove(0);
    assert_eq!(found.labels[labels::NODEPOOL], "general");
    assert_eq!(found.labels[labels::INSTANCE_TYPE], "m5.large");
    assert!(found.capacity.is_empty(), "the capacity is unknown without an instance type");
    assert!(!found.labels.contains_key(labels::AWS_ZONE_ID));
}

#[tokio::test(start_paused = true)]
async fn instances_in_shifted_zone_are_not_touched() {
    let world = World::new().await;
    let claim = launched(&world).await;
    let instances = world.provider.instances();
    let known = instances.get(&id(&claim), Freshness::Fresh).await.unwrap();
    let shift = Shift {
        away_from_zone_id: known.zone_id.clone().unwrap(),
        is_applied: true,
        started_at: None,
        expires_at: Some(world.clock.now() + Duration::from_secs(3600)),
    };
    world.shifts.replace(&[shift]);
    world.cloud.forget_calls();
    assert!(instances.get(&id(&claim), Freshness::Fresh).await.is_ok(), "the cached instance is used");
    let found = world.provider.delete(&claim).await.unwrap_err();
    assert!(found.to_string().contains("zonally shifted availability zone"), "{found}");
    assert!(instances.create_tags(&id(&claim), &Tags::new()).await.is_err());
    assert_eq!(world.cloud.calls(), [], "no EC2 calls");
    world.cloud.world(|cloud| cloud.visible_after = Duration::ZERO);
    let hidden = world.cloud.world(|cloud| cloud.instances.remove(&id(&claim))).unwrap();
    instances.list().await.unwrap();
    assert!(instances.get(&id(&claim), Freshness::Cached).await.is_ok(), "a list does not drop it either");
    world.cloud.world(|cloud| cloud.instances.insert(id(&claim), hidden));
    world.shifts.replace(&[]);
    assert_eq!(world.provider.delete(&claim).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn tags_are_created() {
    let world = World::new().await;
    let claim = launched(&world).await;
    let tags = Tags::from([("Name".to_owned(), "node".to_owned())]);
    world.provider.instances().create_tags(&id(&claim), &tags).await.unwrap();
    let found = world.provider.instances().get(&id(&claim), Freshness::Fresh).await.unwrap();
    assert_eq!(found.tags["Name"], "node");
    assert!(world.provider.instances().create_tags("i-0", &tags).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn throttled_batch_is_not_split() {
    let world = World::new().await;
    let claims = futures::future::join_all((0..5).map(|_| launched(&world))).await;
    world.cloud.forget_calls();
    world.cloud.fail_always(Call::DescribeInstances, Some(AwsError::new("RequestLimitExceeded", "x")));
    let answers = futures::future::join_all(claims.iter().map(|claim| world.provider.delete(claim))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(CloudError::Throttled { .. }))));
    assert_eq!(world.cloud.count(Call::DescribeInstances), 1);
}

#[tokio::test(start_paused = true)]
async fn stopped_instances_are_listed() {
    let world = World::new().await;
    let claim = launched(&world).await;
    for state in [InstanceState::Running, InstanceState::Stopping, InstanceState::Stopped] {
        world.cloud.world(|cloud| cloud.instances.get_mut(&id(&claim)).unwrap().instance.state = state);
        assert!(!world.provider.get(&provider_id(&claim)).await.unwrap().is_terminating, "{state:?}");
        assert_eq!(world.provider.list().await.unwrap().len(), 1, "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn drift_check_uses_cached_instance() {
    let world = World::new().await;
    let mut claim = launched(&world).await;
    claim.status.get_or_insert_default().image_id = Some("ami-x8664standard".to_owned());
    assert_eq!(world.provider.drift_reason(&claim).await.unwrap(), None);
    world.change_class(|class| class["status"]["securityGroups"] = serde_json::json!([{"id": "sg-other"}]));
    assert_eq!(world.provider.drift_reason(&claim).await.unwrap().as_deref(), Some("SecurityGroupDrift"));
}
