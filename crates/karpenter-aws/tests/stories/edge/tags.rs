use std::time::Duration;

use karpenter_api::labels;
use karpenter_aws::api::AwsError;
use karpenter_aws::api::Tags;
use karpenter_aws::api::ec2::{Ec2Instance, InstanceState};
use karpenter_aws::fake::{Call, FakeInstance};
use karpenter_aws::tagging::{ANNOTATION_CLUSTER_NAME_TAGGED, ANNOTATION_TAGGED, Tagging};
use serde_json::json;

use super::world::{EPOCH, World, ZONE};

fn machine(world: &World, id: &str, tags: &[(&str, &str)]) {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let instance = Ec2Instance {
        id: id.to_owned(),
        zone: ZONE.to_owned(),
        launched_at: EPOCH.parse().ok(),
        state: InstanceState::Running,
        tags,
        ..Ec2Instance::default()
    };
    let since = EPOCH.parse().expect("a time");
    let fake = FakeInstance { instance, visible_at: since, runs_at: since, ends_at: None };
    world.aws.world(|world| world.instances.insert(id.to_owned(), fake));
}

fn tags_of(world: &World, id: &str) -> Tags {
    world.aws.world(|world| world.instances[id].instance.tags.clone())
}

async fn is_marked(world: &World, name: &str) -> bool {
    let annotations =
        world.get_claim(name).await.and_then(|claim| claim.metadata.annotations).unwrap_or_default();
    [ANNOTATION_TAGGED, ANNOTATION_CLUSTER_NAME_TAGGED]
        .iter()
        .all(|key| annotations.get(*key).map(String::as_str) == Some("true"))
}

#[tokio::test(start_paused = true)]
async fn instances_are_tagged_one_call_per_second() {
    let world = World::start().await;
    for number in 0..5 {
        let id = format!("i-{number}");
        machine(&world, &id, &[("Name", "mine")]);
        world.claim(&format!("claim-{number}"), &id, json!({})).await;
    }
    let tagging = Tagging::new(world.context.clone(), world.machines(), "cluster".to_owned());
    world.spawn(tagging, Tagging::watch, 1);
    world.pass(Duration::from_millis(2500)).await;
    assert_eq!(world.aws.count(Call::CreateTags), 3);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.aws.count(Call::CreateTags), 5);
    for number in 0..5 {
        let name = format!("claim-{number}");
        assert!(is_marked(&world, &name).await);
        let tags = tags_of(&world, &format!("i-{number}"));
        let expected =
            [("Name", "mine"), ("eks:eks-cluster-name", "cluster"), ("karpenter.sh/nodeclaim", &name)];
        let expected = expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(tags, expected);
    }
    // Tagged once only.
    world.pass(Duration::from_secs(600)).await;
    assert_eq!(world.aws.count(Call::CreateTags), 5);
}

#[tokio::test(start_paused = true)]
async fn instance_with_all_tags_is_only_annotated() {
    let world = World::start().await;
    let all = [("Name", "n"), ("eks:eks-cluster-name", "cluster"), ("karpenter.sh/nodeclaim", "one")];
    machine(&world, "i-1", &all);
    world.claim("one", "i-1", json!({labels::CAPACITY_TYPE: "on-demand"})).await;
    let tagging = Tagging::new(world.context.clone(), world.machines(), "cluster".to_owned());
    world.spawn(tagging, Tagging::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.aws.count(Call::CreateTags), 0);
    assert!(is_marked(&world, "one").await);
}

#[tokio::test(start_paused = true)]
async fn failed_tagging_is_retried_and_missing_instance_is_not() {
    let world = World::start().await;
    machine(&world, "i-1", &[]);
    world.claim("one", "i-1", json!({})).await;
    world.claim("gone", "i-404", json!({})).await;
    world.aws.fail_next(Call::CreateTags, [AwsError::new("RequestLimitExceeded", "slow down")]);
    let tagging = Tagging::new(world.context.clone(), world.machines(), "cluster".to_owned());
    world.spawn(tagging, Tagging::watch, 1);
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(world.aws.count(Call::CreateTags), 2);
    assert!(is_marked(&world, "one").await);
    assert!(!is_marked(&world, "gone").await);
}
