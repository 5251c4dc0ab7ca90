//! Tests of the events and log lines of launches.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_aws::api::ec2::PlacementGroup;
use karpenter_aws::fake::Call;
use karpenter_aws::provider::DriftSource;
use karpenter_cloud::{CloudError, CloudProvider};
use serde_json::json;
use tokio::time::advance;

use super::world::World;
use crate::log::Log;

const TYPE: &str = labels::INSTANCE_TYPE;
const KIND: &str = labels::CAPACITY_TYPE;

#[tokio::test(start_paused = true)]
async fn missing_spot_role_is_logged_with_command() {
    let world = World::new().await;
    let log = Log::listen();
    world.cloud.world(|cloud| cloud.is_spot_role_missing = true);
    world.launch(&[(TYPE, &["m5.large"]), (KIND, &["spot"])]).await.unwrap_err();
    let expected = "Warning NodeClaim general-1 SpotServiceLinkedRoleCreationFailure: Attempted to launch a spot \
                    instance but failed due to \"AuthFailure.ServiceLinkedRoleCreationNotPermitted\"";
    assert_eq!(world.events().await, [expected]);
    let command = "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`";
    let errors = log.errors();
    assert!(errors.iter().any(|line| line.field("message").contains(command)), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_class_gets_event_on_its_users() {
    let world = World::new().await;
    let claim = world.claim(&[]);
    let machine = world.provider.create(&claim).await.unwrap();
    world.objects.classes.lock().unwrap().clear();

    let error = world.launch(&[]).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity { .. }), "{error:?}");
    let of_claim =
        "Warning NodeClaim general-2 FailedResolvingNodeClass: Failed resolving NodeClass".to_owned();
    assert_eq!(world.events().await, std::slice::from_ref(&of_claim));

    assert!(world.provider.instance_types(&world.pool()).await.unwrap().is_empty());
    let of_pool = "Warning NodePool general FailedResolvingNodeClass: Failed resolving NodeClass".to_owned();
    assert_eq!(world.events().await, [of_claim.clone(), of_pool.clone()]);

    // For a while, the drift check does not publish the same event again.
    let mut launched = world.claim(&[]);
    launched.status.get_or_insert_default().provider_id = Some(machine.provider_id);
    assert_eq!(world.drift.drift_reason(&launched).await.unwrap(), None);
    assert_eq!(world.events().await, [of_claim, of_pool]);
    let count = world.cloud.count(Call::CreateFleet);
    assert_eq!(count, 1, "nothing was launched without its class");
}

#[tokio::test(start_paused = true)]
async fn launch_fails_if_placement_group_was_deleted() {
    let world = World::new().await;
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        name: "group".to_owned(),
        strategy: "spread".to_owned(),
        state: "available".to_owned(),
        ..PlacementGroup::default()
    };
    world.cloud.world(|cloud| cloud.placement_groups.insert(group.id.clone(), group));
    world.change_class(|class| class["spec"]["placementGroupSelector"] = json!({"name": "group"}));
    let (class, claim) = (world.class(), world.claim(&[(TYPE, &["m5.large"])]));
    let types = world.provider.types().list(&class).await.unwrap();
    // The placement group is deleted after instance types were selected and before the launch.
    world.cloud.world(|cloud| cloud.placement_groups.clear());
    advance(Duration::from_secs(61)).await;
    let error = world.launcher.launch(&class, &claim, &types).await.unwrap_err();
    let CloudError::NodeClassNotReady { message } = &error else { panic!("{error:?}") };
    assert_eq!(message, "placement group \"group\" not found");
    assert_eq!(world.cloud.count(Call::CreateFleet), 0);
}
