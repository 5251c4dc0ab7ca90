use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::fake::Call;
use serde_json::json;

use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn deleted_class_waits_for_claims_and_cleans_up() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.create_class("other", json!({})).await;
    world.until("default", "Ready", "True").await;
    world.until("other", "Ready", "True").await;
    for number in 1..=7 {
        world.create_claim(&format!("claim-{number}"), "default", json!({}), json!([])).await;
    }
    world.create_claim("of-other", "other", json!({}), json!([])).await;
    world.delete_class("default").await;
    world.pass(MINUTE).await;
    assert!(world.object("default").await.is_some());
    let waiting: Vec<(String, String)> = world
        .events("default")
        .await
        .into_iter()
        .filter(|(reason, _)| reason == "WaitingOnNodeClaimTermination")
        .collect();
    let words =
        "Waiting on NodeClaim termination for claim-1, claim-2, claim-3, claim-4, claim-5 and 2 other(s)";
    assert_eq!(waiting, [("WaitingOnNodeClaimTermination".to_owned(), words.to_owned())]);
    for number in 1..=7 {
        world.delete_claim(&format!("claim-{number}")).await;
    }
    world.pass(Duration::from_secs(5)).await;
    assert!(world.object("default").await.is_none());
    // Only the profile and the launch template of the other node class are left.
    let other =
        world.class("other").await.status.and_then(|status| status.instance_profile).expect("a profile");
    let left: Vec<String> = world.aws.world(|cloud| cloud.profiles.keys().cloned().collect());
    assert_eq!(left, [other]);
    let templates: Vec<String> = world.aws.world(|cloud| {
        let tags = cloud.launch_templates.values().map(|stored| stored.template.tags.clone());
        tags.filter_map(|tags| tags.get("karpenter.k8s.aws/ec2nodeclass").cloned()).collect()
    });
    assert_eq!(templates, ["other"]);
}

#[tokio::test(start_paused = true)]
async fn legacy_profile_is_deleted_with_class() {
    let world = World::start().await;
    // The name is derived from cluster, region and node class.
    let name =
        karpenter_aws::profiles::legacy_profile_name("cluster", "us-west-2", "default").expect("a name");
    world.aws.world(|cloud| {
        let profile = karpenter_aws::api::iam::InstanceProfile {
            name: name.clone(),
            path: "/".to_owned(),
            roles: vec!["r".to_owned()],
            ..Default::default()
        };
        cloud.profiles.insert(name.clone(), profile);
    });
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    world.delete_class("default").await;
    world.pass(Duration::from_secs(5)).await;
    assert!(world.object("default").await.is_none());
    assert!(world.aws.world(|cloud| cloud.profiles.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn failed_cleanup_keeps_class_and_is_reported() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let error = AwsError::new("AccessDenied", "not authorized to perform iam:DeleteInstanceProfile");
    world.aws.fail_always(Call::DeleteInstanceProfile, Some(error));
    world.delete_class("default").await;
    world.pass(MINUTE).await;
    assert!(world.object("default").await.is_some());
    let logged: Vec<(String, String)> =
        world.events("default").await.into_iter().filter(|(reason, _)| reason == "CleanUpFailed").collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].1.contains("iam:DeleteInstanceProfile: AccessDenied"), "{logged:?}");
    world.aws.fail_always(Call::DeleteInstanceProfile, None);
    world.pass(2 * MINUTE).await;
    assert!(world.object("default").await.is_none());
    assert!(world.aws.world(|cloud| cloud.profiles.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn isolated_vpc_skips_iam_cleanup() {
    let world = World::start_with(|_, settings| settings.is_isolated_vpc = true).await;
    world.create_class("default", json!({"role": null, "instanceProfile": "mine"})).await;
    world.until("default", "SubnetsReady", "True").await;
    world.delete_class("default").await;
    world.pass(Duration::from_secs(5)).await;
    assert!(world.object("default").await.is_none());
    for call in [Call::ListInstanceProfiles, Call::GetInstanceProfile, Call::DeleteInstanceProfile] {
        assert_eq!(world.aws.count(call), 0, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn recreated_class_of_same_name_starts_from_scratch() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let first = world.class("default").await;
    world.delete_class("default").await;
    world.pass(Duration::from_secs(5)).await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let second = world.class("default").await;
    let profile = |class: &karpenter_api::types::EC2NodeClass| {
        class.status.as_ref().and_then(|status| status.instance_profile.clone()).expect("a profile")
    };
    assert_ne!(profile(&first), profile(&second));
    assert_eq!(world.aws.world(|cloud| cloud.profiles.len()), 1);
    // The outcome of the first node class's dry run is not used for the second node class.
    assert_eq!(world.aws.count(Call::CreateFleet), 2);
}
