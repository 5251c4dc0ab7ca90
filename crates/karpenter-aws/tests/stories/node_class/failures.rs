use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::fake::Call;
use karpenter_aws::node_class::{ImagesError, KubeletProblem};
use serde_json::{Value, json};

use super::world::World;
use crate::log::{Line, Log};

const MINUTE: Duration = Duration::from_secs(60);

/// Faults that concern all node classes, because the resources are shared.
const CONCERNS_ALL_CLASSES: [&str; 2] = ["no images", "kubelet"];

fn denied() -> AwsError {
    AwsError::new("UnauthorizedOperation", "You are not authorized to perform this operation.")
}

/// A fault to inject, and how it is repaired.
enum Fault {
    Call(Call, AwsError),
    Setup(fn(&World), fn(&World)),
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_shown_and_clears_with_its_cause() {
    let no_policy =
        "User is not authorized to perform this operation because no identity-based policy allows it";
    // Columns: case, node class spec, fault, condition type, its status, its reason, its message, status of Ready
    // during the fault.
    type Row<'a> = (&'a str, Value, Fault, &'a str, &'a str, &'a str, String, &'a str);
    let table: Vec<Row> = vec![
        (
            "no subnets",
            json!({"subnetSelectorTerms": [{"tags": {"a": "b"}}]}),
            Fault::Setup(
                |_| {},
                |world| {
                    world.aws.world(|cloud| {
                        let subnet = cloud.subnets.values_mut().next().expect("a subnet");
                        subnet.tags.insert("a".to_owned(), "b".to_owned());
                    });
                },
            ),
            "SubnetsReady",
            "False",
            "SubnetsNotFound",
            "SubnetSelector did not match any Subnets".to_owned(),
            "False",
        ),
        (
            "no groups",
            json!({"securityGroupSelectorTerms": [{"name": "later"}]}),
            Fault::Setup(
                |_| {},
                |world| {
                    world.aws.world(|cloud| cloud.add_security_group("sg-later", "later"));
                },
            ),
            "SecurityGroupsReady",
            "False",
            "SecurityGroupsNotFound",
            "SecurityGroupSelector did not match any SecurityGroups".to_owned(),
            "False",
        ),
        (
            "no images",
            json!({}),
            Fault::Setup(
                |world| world.sources.set_images(Ok(Vec::new())),
                |world| world.sources.find_image(),
            ),
            "AMIsReady",
            "False",
            "AMINotFound",
            "AMISelector did not match any AMIs".to_owned(),
            "False",
        ),
        (
            "images cannot be read",
            json!({}),
            Fault::Setup(
                |world| {
                    let error = AwsError::new("AccessDeniedException", "not authorized");
                    world.sources.set_images(Err(ImagesError::Aws { action: "ssm:GetParameter", error }));
                },
                |world| world.sources.find_image(),
            ),
            "AMIsReady",
            "Unknown",
            "AMIsResolutionFailed",
            "ssm:GetParameter: AccessDeniedException: not authorized".to_owned(),
            "Unknown",
        ),
        (
            "subnets may not be read",
            json!({}),
            Fault::Call(Call::DescribeSubnets, denied()),
            "SubnetsReady",
            "Unknown",
            "SubnetsResolutionFailed",
            "ec2:DescribeSubnets: UnauthorizedOperation: You are not authorized to perform this operation."
                .to_owned(),
            "Unknown",
        ),
        (
            "credentials are too old",
            json!({}),
            Fault::Call(Call::DescribeSecurityGroups, AwsError::new("ExpiredToken", "The token has expired")),
            "SecurityGroupsReady",
            "Unknown",
            "SecurityGroupsResolutionFailed",
            "ec2:DescribeSecurityGroups: ExpiredToken: The token has expired".to_owned(),
            "Unknown",
        ),
        (
            "no credentials",
            json!({}),
            Fault::Call(
                Call::DescribeSubnets,
                AwsError::no_credentials("no usable credentials: the chain is empty"),
            ),
            "SubnetsReady",
            "Unknown",
            "SubnetsResolutionFailed",
            "ec2:DescribeSubnets: no usable credentials: the chain is empty".to_owned(),
            "Unknown",
        ),
        (
            "a region that is not enabled",
            json!({}),
            Fault::Call(
                Call::DescribeSubnets,
                AwsError::new("AuthFailure", "AWS was not able to validate the provided access credentials"),
            ),
            "SubnetsReady",
            "Unknown",
            "SubnetsResolutionFailed",
            "ec2:DescribeSubnets: AuthFailure: AWS was not able to validate the provided access credentials"
                .to_owned(),
            "Unknown",
        ),
        (
            "the role may not be passed",
            json!({}),
            Fault::Call(
                Call::AddRoleToInstanceProfile,
                AwsError::new("AccessDenied", "not authorized to perform: iam:PassRole"),
            ),
            "InstanceProfileReady",
            "Unknown",
            "InstanceProfileResolutionFailed",
            "iam:AddRoleToInstanceProfile: AccessDenied: not authorized to perform: iam:PassRole".to_owned(),
            "Unknown",
        ),
        (
            "the region does not answer",
            json!({}),
            Fault::Call(Call::DescribeSubnets, AwsError::unreachable("dns error: no such host")),
            "SubnetsReady",
            "Unknown",
            "SubnetsResolutionFailed",
            "ec2:DescribeSubnets: dns error: no such host".to_owned(),
            "Unknown",
        ),
        (
            "no role",
            json!({"role": "later"}),
            Fault::Setup(
                |_| {},
                |world| {
                    world.aws.world(|cloud| cloud.roles.insert("later".to_owned()));
                },
            ),
            "InstanceProfileReady",
            "False",
            "RoleNotFound",
            "Role \"later\" not found".to_owned(),
            "False",
        ),
        (
            "profiles may not be made",
            json!({}),
            Fault::Call(Call::CreateInstanceProfile, AwsError::new("AccessDenied", "not authorized")),
            "InstanceProfileReady",
            "Unknown",
            "InstanceProfileResolutionFailed",
            "iam:CreateInstanceProfile: AccessDenied: not authorized".to_owned(),
            "Unknown",
        ),
        (
            "no placement group",
            json!({"placementGroupSelector": {"name": "later"}}),
            Fault::Setup(
                |_| {},
                |world| {
                    world.aws.world(|cloud| {
                        let group = karpenter_aws::api::ec2::PlacementGroup {
                            id: "pg-1".to_owned(),
                            name: "later".to_owned(),
                            strategy: "cluster".to_owned(),
                            state: "available".to_owned(),
                            ..Default::default()
                        };
                        cloud.placement_groups.insert(group.id.clone(), group);
                    });
                },
            ),
            "PlacementGroupReady",
            "False",
            "PlacementGroupNotFound",
            "Placement group \"later\" not found".to_owned(),
            "False",
        ),
        (
            "placement groups may not be read",
            json!({"placementGroupSelector": {"name": "near"}}),
            Fault::Setup(
                |world| world.aws.fail_always(Call::DescribePlacementGroups, Some(denied())),
                |world| {
                    world.aws.fail_always(Call::DescribePlacementGroups, None);
                    world.aws.world(|cloud| {
                        let group = karpenter_aws::api::ec2::PlacementGroup {
                            id: "pg-1".to_owned(),
                            name: "near".to_owned(),
                            strategy: "cluster".to_owned(),
                            state: "available".to_owned(),
                            ..Default::default()
                        };
                        cloud.placement_groups.insert(group.id.clone(), group);
                    });
                },
            ),
            "PlacementGroupReady",
            "False",
            "PlacementGroupResolutionFailed",
            "Failed to resolve placement group".to_owned(),
            "False",
        ),
        (
            "reservations may not be read",
            json!({"capacityReservationSelectorTerms": [{"id": "cr-1"}]}),
            Fault::Call(Call::DescribeCapacityReservations, denied()),
            "CapacityReservationsReady",
            "Unknown",
            "CapacityReservationsResolutionFailed",
            "ec2:DescribeCapacityReservations: UnauthorizedOperation: You are not authorized to perform this operation."
                .to_owned(),
            "Unknown",
        ),
        (
            "user data that EC2 does not take",
            json!({}),
            Fault::Call(
                Call::CreateLaunchTemplate,
                AwsError::new("InvalidUserData.Malformed", "User data is limited to 16384 bytes"),
            ),
            "ValidationSucceeded",
            "False",
            "UserDataSizeLimitExceeded",
            "ec2:CreateLaunchTemplate rejected the rendered user data as too large: Rendered user data exceeds the \
             EC2 user data size limit"
                .to_owned(),
            "False",
        ),
        (
            "no instance profile",
            json!({"role": null, "instanceProfile": "later"}),
            Fault::Setup(
                |_| {},
                |world| {
                    world.aws.world(|cloud| {
                        let profile = karpenter_aws::api::iam::InstanceProfile {
                            name: "later".to_owned(),
                            ..Default::default()
                        };
                        cloud.profiles.insert("later".to_owned(), profile);
                    });
                },
            ),
            "ValidationSucceeded",
            "False",
            "InstanceProfileNotFound",
            "Instance profile \"later\" not found".to_owned(),
            "False",
        ),
        (
            "the cluster may not be read",
            json!({}),
            Fault::Call(Call::DescribeCluster, AwsError::new("AccessDeniedException", "no")),
            "ValidationSucceeded",
            "False",
            "ClusterCIDRResolutionFailed",
            "Failed to detect the cluster CIDR".to_owned(),
            "False",
        ),
        (
            "templates may not be made",
            json!({}),
            Fault::Call(Call::CreateLaunchTemplate, denied()),
            "ValidationSucceeded",
            "False",
            "CreateLaunchTemplateAuthCheckFailed",
            format!("Controller isn't authorized to call ec2:CreateLaunchTemplate: {no_policy}"),
            "False",
        ),
        (
            "fleets may not be made",
            json!({}),
            Fault::Call(Call::CreateFleet, denied()),
            "ValidationSucceeded",
            "False",
            "CreateFleetAuthCheckFailed",
            format!("Controller isn't authorized to call ec2:CreateFleet: {no_policy}"),
            "False",
        ),
        (
            "machines may not be run",
            json!({}),
            Fault::Call(Call::RunInstances, denied()),
            "ValidationSucceeded",
            "False",
            "RunInstancesAuthCheckFailed",
            format!("Controller isn't authorized to call ec2:RunInstances: {no_policy}"),
            "False",
        ),
        (
            "groups of another network",
            json!({}),
            Fault::Call(
                Call::RunInstances,
                AwsError::new("InvalidParameter", "belong to different networks"),
            ),
            "ValidationSucceeded",
            "Unknown",
            "DryRunFailed",
            "ec2:RunInstances: InvalidParameter: belong to different networks".to_owned(),
            "Unknown",
        ),
        (
            "kubelet",
            json!({}),
            Fault::Setup(
                |world| {
                    let (reason, message) = ("InvalidKubeletConfiguration", "why".to_owned());
                    world.sources.set_kubelet_problem(Some(KubeletProblem { reason, message }));
                },
                |world| world.sources.set_kubelet_problem(None),
            ),
            "ValidationSucceeded",
            "False",
            "InvalidKubeletConfiguration",
            "why".to_owned(),
            "False",
        ),
    ];
    for (case, spec, fault, condition, status, reason, words, ready) in table {
        let world = World::start().await;
        world.create_class("other", json!({})).await;
        world.until("other", "Ready", "True").await;
        let log = Log::listen();
        match &fault {
            Fault::Call(call, error) => world.aws.fail_always(*call, Some(error.clone())),
            Fault::Setup(begin, _) => begin(&world),
        }
        world.create_class("default", spec).await;
        world.pass(Duration::from_secs(20)).await;
        // However often it is retried, the failure is logged once.
        let logged: Vec<Line> =
            log.errors().into_iter().filter(|line| line.field("nodeclass") == "default").collect();
        let [line] = logged.as_slice() else { panic!("{case}: not one line but {logged:?}") };
        assert_eq!(line.field("condition"), condition, "{case}");
        assert!(!line.field("error").is_empty() && !line.field("advice").is_empty(), "{case}: {line:?}");
        if !CONCERNS_ALL_CLASSES.contains(&case) {
            assert_eq!(world.said("other", "Ready").await.expect("a condition").status, "True", "{case}");
        }
        let said = world.said("default", condition).await.expect("a condition");
        let found = (said.status.as_str(), said.reason.as_str(), said.message.as_str());
        assert_eq!(found, (status, reason, words.as_str()), "{case}");
        assert_eq!(world.said("default", "Ready").await.expect("a condition").status, ready, "{case}");
        match &fault {
            Fault::Call(call, _) => world.aws.fail_always(*call, None),
            Fault::Setup(_, end) => end(&world),
        }
        // The node class becomes ready when the cached outcome of the dry run has expired, or earlier.
        world.pass(45 * MINUTE).await;
        assert_eq!(world.said("default", "Ready").await.expect("a condition").status, "True", "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_block_devices_are_reported_and_affect_no_other_class() {
    let world = World::start().await;
    world.create_class("good", json!({})).await;
    world.create_class("no-volume", json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]})).await;
    world.create_class("no-name", json!({"blockDeviceMappings": [{"ebs": {"volumeSize": "20Gi"}}]})).await;
    world.create_class("no-size", json!({"blockDeviceMappings": [{"ebs": {"volumeSize": "Ti"}}]})).await;
    world.until("good", "Ready", "True").await;
    for (name, reason, words) in [
        ("no-volume", "InvalidBlockDeviceMappings", "spec.blockDeviceMappings[0].ebs is missing"),
        ("no-name", "InvalidBlockDeviceMappings", "spec.blockDeviceMappings[0].deviceName is missing"),
        ("no-size", "InvalidSpecification", "spec cannot be parsed"),
    ] {
        let said = world.until(name, "ValidationSucceeded", "False").await;
        assert_eq!(said.reason, reason, "{name}");
        assert!(said.message.contains(words), "{name}: {}", said.message);
        assert_eq!(world.said(name, "Ready").await.expect("a condition").status, "False");
    }
    // A repaired node class becomes ready, and a deleted node class is removed.
    let disks = json!({"spec": {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}]}});
    world.patch_class("no-volume", disks).await;
    world.until("no-volume", "Ready", "True").await;
    world.delete_class("no-size").await;
    world.pass(Duration::from_secs(5)).await;
    assert!(world.object("no-size").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn failing_class_does_not_delay_others() {
    let world = World::start().await;
    world.create_class("broken", json!({"role": "missing"})).await;
    world.create_class("also-broken", json!({"subnetSelectorTerms": [{"id": "subnet-none"}]})).await;
    world.pass(Duration::from_secs(10)).await;
    world.create_class("good", json!({})).await;
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.said("good", "Ready").await.expect("a condition").status, "True");
    assert_eq!(world.said("broken", "Ready").await.expect("a condition").status, "False");
}

#[tokio::test(start_paused = true)]
async fn ready_class_stays_ready_with_message_while_aws_fails() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let before = world.class("default").await.status.expect("a status");
    let error = AwsError::new("RequestLimitExceeded", "Request limit exceeded.");
    world.aws.fail_always(Call::DescribeSubnets, Some(error.clone()));
    world.aws.fail_always(Call::DescribeSecurityGroups, Some(error));
    world.pass(3 * MINUTE).await;
    let said = world.said("default", "SubnetsReady").await.expect("a condition");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "SubnetsReady"));
    assert_eq!(said.message, "ec2:DescribeSubnets: RequestLimitExceeded: Request limit exceeded.");
    assert_eq!(world.said("default", "Ready").await.expect("a condition").status, "True");
    let after = world.class("default").await.status.expect("a status");
    assert_eq!((after.subnets, after.security_groups), (before.subnets, before.security_groups));
    // Conditions that were observed for the earlier spec do not apply to the new one.
    world.patch_class("default", json!({"spec": {"subnetSelectorTerms": [{"id": "subnet-a"}]}})).await;
    world.until("default", "SubnetsReady", "Unknown").await;
    world.aws.fail_always(Call::DescribeSubnets, None);
    world.aws.fail_always(Call::DescribeSecurityGroups, None);
    world.until("default", "Ready", "True").await;
    assert_eq!(world.said("default", "SubnetsReady").await.expect("a condition").message, "");
    world.pass(Duration::from_secs(1)).await;
    let logged = [
        "Status: True -> Unknown, Reason: SubnetsResolutionFailed, Message: ec2:DescribeSubnets: RequestLimitExceeded",
        "Status: Unknown -> True, Reason: SubnetsReady",
    ];
    let events = world.events("default").await;
    for part in logged {
        let is_told = |(reason, words): &(String, String)| reason == "SubnetsReady" && words.contains(part);
        assert!(events.iter().any(is_told), "{part}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_increasing_back_off() {
    let world = World::start().await;
    world.aws.fail_always(Call::DescribeSubnets, Some(denied()));
    world.create_class("default", json!({})).await;
    world.pass(Duration::from_secs(30)).await;
    // Reconciles take place after 0, 1, 3, 7 and 15 seconds; one more is caused by the first write to the node class
    // itself.
    let soon = world.aws.count(Call::DescribeSubnets);
    assert!((4..=8).contains(&soon), "{soon}");
    world.aws.forget_calls();
    world.pass(20 * MINUTE).await;
    let late = world.aws.count(Call::DescribeSubnets);
    assert!((18..=24).contains(&late), "{late}");
}

#[tokio::test(start_paused = true)]
async fn throttled_dry_run_changes_nothing_and_is_retried() {
    let world = World::start().await;
    let busy = AwsError::new("RequestLimitExceeded", "Request limit exceeded.");
    world.aws.fail_next(Call::CreateFleet, vec![busy.clone(), busy.clone()]);
    world.aws.fail_next(Call::RunInstances, vec![busy; 8]);
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    // The call was throttled twice before it succeeded. The dry run was tried in one subnet after another until one was
    // allowed.
    assert!(world.aws.count(Call::CreateFleet) >= 3);
    assert_eq!(world.aws.count(Call::CreateInstanceProfile), 1);
}
