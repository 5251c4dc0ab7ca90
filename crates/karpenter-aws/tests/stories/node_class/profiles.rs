use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::fake::Call;
use karpenter_aws::garbage_collection::Profiles as _;
use serde_json::json;

use super::world::{ROLE, World};

const MINUTE: Duration = Duration::from_secs(60);

async fn profile_of(world: &World) -> String {
    world.class("default").await.status.and_then(|status| status.instance_profile).expect("a profile")
}

#[tokio::test(start_paused = true)]
async fn role_with_path_gets_one_profile() {
    let world = World::start().await;
    world.create_class("default", json!({"role": format!("/team/a/{ROLE}")})).await;
    world.until("default", "Ready", "True").await;
    let name = profile_of(&world).await;
    assert_eq!(world.aws.world(|cloud| cloud.profiles[&name].roles.clone()), [ROLE]);
    // After an hour, all caches have expired.
    world.pass(60 * MINUTE).await;
    assert_eq!(profile_of(&world).await, name);
    assert_eq!(world.aws.count(Call::CreateInstanceProfile), 1);
    assert_eq!(world.aws.world(|cloud| cloud.profiles.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn changed_role_gets_new_profile_and_both_are_kept() {
    let world = World::start().await;
    world.aws.world(|cloud| cloud.roles.insert("other".to_owned()));
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let first = profile_of(&world).await;
    world.patch_class("default", json!({"spec": {"role": "other"}})).await;
    world.pass(Duration::from_secs(10)).await;
    let second = profile_of(&world).await;
    assert_ne!(first, second);
    assert_eq!(world.aws.world(|cloud| cloud.profiles[&second].roles.clone()), ["other"]);
    assert_eq!(
        world.aws.world(|cloud| cloud.profiles[&first].roles.clone()),
        [ROLE],
        "machines still use it"
    );
    let protected = world.profiles.protected();
    assert!(protected.contains(&first) && protected.contains(&second), "{protected:?}");
    world.pass(61 * MINUTE).await;
    assert!(world.profiles.protected().is_empty());
    // After the role was changed back, the node class uses the earlier profile again.
    world.patch_class("default", json!({"spec": {"role": ROLE}})).await;
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(profile_of(&world).await, first);
    assert_eq!(world.aws.count(Call::CreateInstanceProfile), 2);
}

#[tokio::test(start_paused = true)]
async fn named_profile_is_used_and_created_one_protected() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let made = profile_of(&world).await;
    world.aws.forget_calls();
    world.patch_class("default", json!({"spec": {"role": null, "instanceProfile": "mine"}})).await;
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(profile_of(&world).await, "mine");
    assert_eq!(world.aws.count(Call::GetInstanceProfile), 0);
    assert!(world.profiles.protected().contains(&made));
}

#[tokio::test(start_paused = true)]
async fn upstream_profiles_are_kept() {
    let world = World::start().await;
    world.aws.world(|cloud| {
        let profile = karpenter_aws::api::iam::InstanceProfile {
            name: "cluster_42".to_owned(),
            roles: vec![ROLE.to_owned()],
            ..Default::default()
        };
        cloud.profiles.insert("cluster_42".to_owned(), profile);
    });
    world.aws.fail_always(Call::CreateInstanceProfile, Some(AwsError::new("AccessDenied", "no")));
    world.create_class("default", json!({})).await;
    world.until("default", "InstanceProfileReady", "Unknown").await;
    // The node class is in the state in which an upstream release leaves it.
    let kind = kube::core::GroupVersionKind::gvk("karpenter.k8s.aws", "v1", "EC2NodeClass");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses");
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(world.client.clone(), &resource);
    let patch = kube::api::Patch::Merge(json!({"status": {"instanceProfile": "cluster_42"}}));
    api.patch_status("default", &Default::default(), &patch).await.expect("patched");
    world.until("default", "Ready", "True").await;
    assert_eq!(profile_of(&world).await, "cluster_42");
}

#[tokio::test(start_paused = true)]
async fn deleted_profile_is_created_again() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let name = profile_of(&world).await;
    world.aws.world(|cloud| cloud.profiles.clear());
    world.pass(20 * MINUTE).await;
    assert_eq!(profile_of(&world).await, name);
    assert_eq!(world.aws.world(|cloud| cloud.profiles[&name].roles.clone()), [ROLE]);
}

#[tokio::test(start_paused = true)]
async fn missing_role_creates_no_profiles() {
    let world = World::start().await;
    world.create_class("default", json!({"role": "missing"})).await;
    world.until("default", "InstanceProfileReady", "False").await;
    world.pass(10 * MINUTE).await;
    assert!(world.aws.world(|cloud| cloud.profiles.is_empty()), "what was made in vain is deleted");
    let tries = world.aws.count(Call::CreateInstanceProfile);
    assert!((5..=12).contains(&tries), "about one a minute: {tries}");
}

#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_second_profile() {
    let world = World::start().await;
    // The call that adds the role succeeds but returns an error, and deleting the profile fails.
    world.aws.fail_next(Call::AddRoleToInstanceProfile, [AwsError::unreachable("connection reset")]);
    world.aws.fail_next(Call::DeleteInstanceProfile, [AwsError::unreachable("connection reset")]);
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    assert_eq!(world.aws.world(|cloud| cloud.profiles.len()), 1);
    let name = profile_of(&world).await;
    assert_eq!(world.aws.world(|cloud| cloud.profiles[&name].roles.clone()), [ROLE]);
}
