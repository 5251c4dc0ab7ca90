//! Tests of errors in `CreateFleet` responses, and of their effect on the next launch.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_aws::api::AwsError;
use karpenter_aws::fake::Call;
use karpenter_cloud::{CloudError, CloudProvider};
use serde_json::json;
use tokio::time::advance;

use super::world::{World, zone};

const TYPE: &str = labels::INSTANCE_TYPE;
const KIND: &str = labels::CAPACITY_TYPE;
const ZONE: &str = labels::ZONE;

fn is_no_capacity(error: &CloudError) -> bool {
    matches!(error, CloudError::InsufficientCapacity { .. })
}

#[tokio::test(start_paused = true)]
async fn offering_without_capacity_is_unavailable_for_three_minutes() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.sell_out("m5.large", &zone("a"), "on-demand"));
    let there: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    assert!(is_no_capacity(&world.launch(there).await.unwrap_err()));
    assert!(is_no_capacity(&world.launch(there).await.unwrap_err()));
    assert_eq!(world.cloud.count(Call::CreateFleet), 1, "EC2 is not asked again");
    let elsewhere = [(TYPE, &["m5.large"][..]), (KIND, &["on-demand"])];
    let machine = world.launch(&elsewhere).await.unwrap();
    assert_ne!(machine.labels[ZONE], zone("a"));
    assert!(!world.offers().contains(&"m5.large a".to_owned()));
    let spot = [(TYPE, &["m5.large"][..]), (KIND, &["spot"]), (ZONE, &["us-west-2a"])];
    assert!(world.launch(&spot).await.is_ok(), "spot of the same type is another pool");
    advance(Duration::from_secs(180)).await;
    world.cloud.world(|cloud| cloud.pool_capacity.clear());
    assert!(world.launch(there).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_of_successful_fleet_mark_offerings_unavailable() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.sell_out("m5.large", &zone("a"), "on-demand"));
    let any: &[(&str, &[&str])] =
        &[(TYPE, &["m5.large", "m5.xlarge"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    assert_eq!(world.launch(any).await.unwrap().labels[TYPE], "m5.xlarge");
    world.launch(any).await.unwrap();
    assert_eq!(world.offers(), ["m5.xlarge a"]);
    let failures = world.metrics.launch_failures.clone();
    let zone_id = world.class().status.as_ref().unwrap().subnets[0].zone_id.clone().unwrap();
    let values = [zone("a"), zone_id, "on-demand".to_owned(), "LaunchFailed".to_owned()];
    assert_eq!(failures.with_label_values(&values.each_ref().map(String::as_str)).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn partial_fleet_is_shared_among_claims() {
    let world = World::new().await;
    world.cloud.world(|cloud| {
        let pool = ("m5.large".to_owned(), zone("a"), "on-demand".to_owned());
        cloud.pool_capacity.insert(pool, 3);
    });
    let there: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    let answers = futures::future::join_all((0..5).map(|_| world.launch(there))).await;
    let (launched, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((launched.len(), refused.len()), (3, 2));
    assert!(refused.iter().all(|answer| is_no_capacity(answer.as_ref().unwrap_err())));
}

#[tokio::test(start_paused = true)]
async fn missing_instances_without_error_fail_the_launch() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.fleet_instances_max = Some(0));
    let error = world.launch(&[]).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::CreateRefused { reason, .. } if reason == "LaunchFailed"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_spot_role_makes_spot_unavailable() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.is_spot_role_missing = true);
    let any: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["spot", "on-demand"])];
    assert!(
        is_no_capacity(&world.launch(any).await.unwrap_err()),
        "insufficient capacity, so the pods are planned again"
    );
    let machine = world.launch(any).await.unwrap();
    assert_eq!(machine.labels[KIND], "on-demand");
    assert!(is_no_capacity(&world.launch(&[(KIND, &["spot"])]).await.unwrap_err()));
    world.cloud.world(|cloud| cloud.is_spot_role_missing = false);
    advance(Duration::from_secs(180)).await;
    assert_eq!(world.launch(any).await.unwrap().labels[KIND], "spot");
}

#[tokio::test(start_paused = true)]
async fn subnet_with_most_free_addresses_is_used() {
    let world = World::new().await;
    world.cloud.world(|cloud| {
        cloud.add_subnet("subnet-a2", &zone("a"), Some("usw2-az1"));
        cloud.subnets.get_mut("subnet-a").unwrap().available_ip_count = 50;
        cloud.subnets.get_mut("subnet-a2").unwrap().available_ip_count = 60;
    });
    world.change_class(|class| class["metadata"]["generation"] = json!(1));
    advance(Duration::from_secs(61)).await;
    world.learn_addresses().await;
    let there: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    let subnet_of = |world: &World| {
        let fleet = world.fleets().pop().unwrap();
        fleet.launch_template_configs[0].overrides[0].subnet_id.clone().unwrap()
    };
    world.launch(there).await.unwrap();
    assert_eq!(subnet_of(&world), "subnet-a2");
    // An m5.large has a pod capacity of 29, so 31 of the subnet's 60 addresses are left in the estimate.
    assert_eq!(world.subnets.left("subnet-a2"), 31);
    world.launch(there).await.unwrap();
    assert_eq!(subnet_of(&world), "subnet-a");
    assert_eq!(world.subnets.left("subnet-a"), 21);
    advance(Duration::from_secs(61)).await;
    world.learn_addresses().await;
    assert_eq!(world.subnets.left("subnet-a2"), 59, "EC2's own count ends all estimates");
}

#[tokio::test(start_paused = true)]
async fn unused_addresses_of_other_zones_are_released() {
    let world = World::new().await;
    let before: Vec<i64> = ["subnet-a", "subnet-b"].map(|id| world.subnets.left(id)).to_vec();
    let machine = world.launch(&[(TYPE, &["m5.large"]), (KIND, &["on-demand"])]).await.unwrap();
    let used = if machine.labels[ZONE] == zone("a") { "subnet-a" } else { "subnet-b" };
    for (id, before) in ["subnet-a", "subnet-b"].into_iter().zip(before) {
        let expected = if id == used { before - 29 } else { before };
        assert_eq!(world.subnets.left(id), expected, "{id}");
    }
    world.cloud.fail_next(Call::CreateFleet, [AwsError::new("InternalError", "x")]);
    let before = world.subnets.left("subnet-b");
    world.launch(&[(TYPE, &["m5.large"]), (ZONE, &["us-west-2b"])]).await.unwrap_err();
    assert_eq!(world.subnets.left("subnet-b"), before, "nothing was launched, nothing is used");
}

#[tokio::test(start_paused = true)]
async fn subnet_without_addresses_is_avoided() {
    let world = World::new().await;
    world.cloud.world(|cloud| cloud.subnets.get_mut("subnet-a").unwrap().available_ip_count = 0);
    let there: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    assert!(is_no_capacity(&world.launch(there).await.unwrap_err()));
    assert_eq!(world.subnets.left("subnet-a"), 0);
    let other: &[(&str, &[&str])] = &[(TYPE, &["c5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    assert!(is_no_capacity(&world.launch(other).await.unwrap_err()), "no type can go there");
    assert_eq!(world.cloud.count(Call::CreateFleet), 1);
    world.cloud.world(|cloud| cloud.add_subnet("subnet-a2", &zone("a"), Some("usw2-az1")));
    world.change_class(|_| ());
    advance(Duration::from_secs(61)).await;
    world.learn_addresses().await;
    world.launch(other).await.unwrap();
    let fleet = world.fleets().pop().unwrap();
    assert_eq!(fleet.launch_template_configs[0].overrides[0].subnet_id.as_deref(), Some("subnet-a2"));
}

#[tokio::test(start_paused = true)]
async fn failed_calls_have_a_reason() {
    let cases = [
        (
            Call::CreateFleet,
            "UnauthorizedOperation",
            "Unauthorized",
            "Error creating fleet request: User is not authorized",
        ),
        (
            Call::CreateFleet,
            "RequestLimitExceeded",
            "RequestLimitExceeded",
            "Error creating fleet request: Request limit exceeded",
        ),
        (
            Call::CreateFleet,
            "MaxFleetCountExceeded",
            "FleetQuotaExceeded",
            "Error creating fleet request: A fleet launch",
        ),
        (Call::CreateFleet, "ExpiredToken", "Unauthorized", "Error creating fleet request: The credentials"),
        (
            Call::CreateLaunchTemplate,
            "UnauthorizedOperation",
            "Unauthorized",
            "Error getting launch template configs: User is",
        ),
        (
            Call::DescribeLaunchTemplates,
            "InternalError",
            "InternalError",
            "Error getting launch template configs: An internal",
        ),
    ];
    for (call, code, reason, message) in cases {
        let world = World::new().await;
        world.cloud.fail_next(call, [AwsError::new(code, "x")]);
        let error = world.launch(&[(TYPE, &["m5.large"])]).await.unwrap_err();
        let CloudError::CreateRefused { reason: found, message: text } = &error else {
            panic!("{call:?} {code}: {error:?}")
        };
        assert_eq!(found, reason, "{call:?} {code}");
        assert!(text.starts_with(message), "{call:?} {code}: {text}");
        assert!(
            world.launch(&[(TYPE, &["m5.large"])]).await.is_ok(),
            "{call:?} {code}: no offering becomes unavailable"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn missing_template_is_created_again() {
    let world = World::new().await;
    let any: &[(&str, &[&str])] = &[(TYPE, &["m5.large"])];
    world.launch(any).await.unwrap();
    world.cloud.world(|cloud| cloud.launch_templates.clear());
    world.launch(any).await.unwrap();
    assert_eq!(world.cloud.count(Call::CreateLaunchTemplate), 2);
    assert_eq!(world.cloud.count(Call::CreateFleet), 3, "including one without a template");
    let gone = || AwsError::new("InvalidLaunchTemplateName.NotFoundException", "x");
    world.cloud.fail_next(Call::CreateFleet, [gone(), gone()]);
    let error = world.launch(any).await.unwrap_err();
    let expected = "Launch templates not found when creating fleet request: Instance launch failed";
    assert_eq!(error.to_string(), expected, "one retry only");
}

#[tokio::test(start_paused = true)]
async fn missing_template_is_created_again_for_every_error_form() {
    for code in ["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"] {
        let world = World::new().await;
        let any: &[(&str, &[&str])] = &[(TYPE, &["m5.large"])];
        world.launch(any).await.unwrap();
        // The `CreateFleet` call succeeds, and its response contains the errors.
        world.cloud.world(|cloud| {
            cloud.launch_templates.clear();
            cloud.missing_template_code = Some(code);
        });
        world.launch(any).await.unwrap();
        assert_eq!(world.cloud.count(Call::CreateLaunchTemplate), 2, "{code}");
        // The whole CreateFleet call fails with the error.
        world.cloud.fail_next(Call::CreateFleet, [AwsError::new(code, "x")]);
        world.launch(any).await.unwrap();
        assert_eq!(world.cloud.count(Call::CreateFleet), 5, "{code}: including two without a template");
    }
}

#[tokio::test(start_paused = true)]
async fn full_spread_group_makes_zone_unavailable() {
    let world = World::new().await;
    world.cloud.world(|cloud| {
        let group = karpenter_aws::api::ec2::PlacementGroup {
            id: "pg-1".to_owned(),
            name: "group".to_owned(),
            strategy: "spread".to_owned(),
            state: "available".to_owned(),
            ..Default::default()
        };
        cloud.placement_groups.insert("pg-1".to_owned(), group);
    });
    world.change_class(|class| class["spec"]["placementGroupSelector"] = json!({"id": "pg-1"}));
    let there: &[(&str, &[&str])] =
        &[(TYPE, &["m5.large", "m5.xlarge"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    for _ in 0..7 {
        world.launch(there).await.unwrap();
    }
    assert!(is_no_capacity(&world.launch(there).await.unwrap_err()));
    let fleets = world.cloud.count(Call::CreateFleet);
    assert!(is_no_capacity(&world.launch(there).await.unwrap_err()));
    assert_eq!(world.cloud.count(Call::CreateFleet), fleets, "known to be full, for every type");
    world.change_class(|_| ());
    assert!(world.launch(there).await.is_ok(), "outside of the group there is room");
}

#[tokio::test(start_paused = true)]
async fn unavailability_is_scoped_to_placement_group() {
    let world = World::new().await;
    world.cloud.world(|cloud| {
        let group = karpenter_aws::api::ec2::PlacementGroup {
            id: "pg-1".to_owned(),
            name: "group".to_owned(),
            strategy: "partition".to_owned(),
            partition_count: 3,
            state: "available".to_owned(),
            ..Default::default()
        };
        cloud.placement_groups.insert("pg-1".to_owned(), group);
        cloud.sell_out("m5.large", &zone("a"), "on-demand");
    });
    world.change_class(|class| class["spec"]["placementGroupSelector"] = json!({"id": "pg-1"}));
    let partition = |number: &'static [&'static str]| -> Vec<(&'static str, &'static [&'static str])> {
        vec![
            (TYPE, &["m5.large"]),
            (KIND, &["on-demand"]),
            (ZONE, &["us-west-2a"]),
            (labels::AWS_PLACEMENT_GROUP_PARTITION, number),
        ]
    };
    assert!(is_no_capacity(&world.launch(&partition(&["1"])).await.unwrap_err()));
    world.cloud.world(|cloud| cloud.pool_capacity.clear());
    let fleets = world.cloud.count(Call::CreateFleet);
    assert!(
        is_no_capacity(&world.launch(&partition(&["1"])).await.unwrap_err()),
        "believed for three minutes"
    );
    assert_eq!(world.cloud.count(Call::CreateFleet), fleets);
    assert!(world.launch(&partition(&["2"])).await.is_ok(), "another partition is another matter");
    world.change_class(|_| ());
    let plain: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["on-demand"]), (ZONE, &["us-west-2a"])];
    assert!(world.launch(plain).await.is_ok(), "and so is no group at all");
}

#[tokio::test(start_paused = true)]
async fn instance_types_of_nodepool() {
    let world = World::new().await;
    let types = world.provider.instance_types(&world.pool()).await.unwrap();
    assert_eq!(types.len(), 13);
    world.change_class(|class| class["status"]["subnets"] = json!([]));
    assert!(
        world.provider.instance_types(&world.pool()).await.is_err(),
        "a class without subnets has no types"
    );
}
