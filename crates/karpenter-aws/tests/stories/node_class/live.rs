use std::time::Duration;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_aws::api::AwsError;
use karpenter_aws::api::ec2::{CapacityReservation, PlacementGroup};
use karpenter_aws::fake::{Call, FakeAws};
use karpenter_aws::options::AwsFeatureGates;
use karpenter_aws::provider::AwsProvider;
use karpenter_cloud::CloudProvider;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);

fn with_images(aws: &FakeAws) {
    aws.world(|cloud| cloud.add_al2023_images("1.35"));
}

#[tokio::test(start_paused = true)]
async fn class_becomes_ready_with_real_provider() {
    let (world, _) = World::start_live(AwsFeatureGates::default(), with_images).await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let status = world.class("default").await.status.expect("a status");
    let mut images: Vec<&str> = status.amis.iter().map(|image| image.id.as_str()).collect();
    images.sort_unstable();
    assert_eq!(images, ["ami-arm64standard", "ami-x8664neuron", "ami-x8664nvidia", "ami-x8664standard"]);
    // The dry run's launch template has the tags of this node class and an empty NodePool tag.
    let made = world.aws.world(|cloud| cloud.created_templates.clone());
    assert_eq!(made.len(), 1);
    assert!(["ami-arm64standard", "ami-x8664standard"].contains(&made[0].data.image_id.as_str()));
    assert_eq!(made[0].data.instance_profile_name, status.instance_profile);
    assert_eq!(made[0].tags["karpenter.k8s.aws/ec2nodeclass"], "default");
    assert_eq!(made[0].tags["karpenter.sh/nodepool"], "");
    assert_eq!(world.aws.world(|cloud| cloud.instances.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn provider_errors_become_conditions() {
    let off = AwsFeatureGates { node_class_cel: false };
    let on = AwsFeatureGates { node_class_cel: true };
    let nothing: Option<(Call, AwsError)> = None;
    let alias = |alias: &str| json!({"amiSelectorTerms": [{"alias": alias}]});
    // Columns: case, feature gates, failing call, node class, condition type, status, reason, part of the message.
    let table = [
        (
            "an alias that is over",
            off,
            nothing.clone(),
            alias("al2@latest"),
            "AMIsReady",
            "False",
            "UnsupportedAlias",
            "AL2",
        ),
        (
            "a version that never was",
            off,
            nothing.clone(),
            alias("al2023@v19990101"),
            "AMIsReady",
            "Unknown",
            "AMIsResolutionFailed",
            "al2023@v19990101",
        ),
        (
            "parameters may not be read",
            off,
            Some((Call::GetParameter, AwsError::new("AccessDeniedException", "not authorized"))),
            json!({}),
            "AMIsReady",
            "Unknown",
            "AMIsResolutionFailed",
            "ssm:GetParameter: AccessDeniedException: not authorized",
        ),
        (
            "an image that is not there",
            off,
            nothing.clone(),
            json!({"amiSelectorTerms": [{"id": "ami-none"}], "amiFamily": "AL2023"}),
            "AMIsReady",
            "False",
            "AMINotFound",
            "AMISelector did not match any AMIs",
        ),
        (
            "a field that no kubelet has",
            off,
            nothing.clone(),
            json!({"kubelet": {"maxPodz": 5}}),
            "ValidationSucceeded",
            "False",
            "InvalidKubeletConfiguration",
            "maxPodz",
        ),
        (
            "an expression without the gate",
            off,
            nothing.clone(),
            json!({"kubelet": {"maxPods": "vcpus * 10"}}),
            "ValidationSucceeded",
            "False",
            "KubeletExpressionsDisabled",
            "NodeClassCEL",
        ),
        (
            "an expression that fails on some type",
            on,
            nothing.clone(),
            json!({"kubelet": {"maxPods": "vcpus > 8 ? -1 : 1"}}),
            "ValidationSucceeded",
            "False",
            "KubeletExpressionEvaluationFailed",
            "outside the valid range",
        ),
        (
            "an expression that is fine",
            on,
            nothing.clone(),
            json!({"kubelet": {"maxPods": "vcpus * 10"}}),
            "Ready",
            "True",
            "Ready",
            "",
        ),
        (
            "reservations may not be read",
            off,
            Some((Call::DescribeCapacityReservations, AwsError::new("UnauthorizedOperation", "no"))),
            json!({"capacityReservationSelectorTerms": [{"id": "cr-1"}]}),
            "CapacityReservationsReady",
            "Unknown",
            "CapacityReservationsResolutionFailed",
            "ec2:DescribeCapacityReservations: UnauthorizedOperation: no",
        ),
        (
            "a placement group that is not there",
            off,
            nothing,
            json!({"placementGroupSelector": {"name": "mine"}}),
            "PlacementGroupReady",
            "False",
            "PlacementGroupNotFound",
            "Placement group \"mine\" not found",
        ),
    ];
    for (case, gates, fault, spec, condition, status, reason, words) in table {
        let (world, _) = World::start_live(gates, |aws| {
            with_images(aws);
            if let Some((call, error)) = fault {
                aws.fail_always(call, Some(error));
            }
        })
        .await;
        world.create_class("default", spec).await;
        world.pass(Duration::from_secs(20)).await;
        let said = world.said("default", condition).await.expect("a condition");
        assert_eq!(
            (said.status.as_str(), said.reason.as_str()),
            (status, reason),
            "{case}: {}",
            said.message
        );
        assert!(said.message.contains(words), "{case}: {}", said.message);
    }
}

fn reference() -> Value {
    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"})
}

/// Creates a NodePool, and a NodeClaim of it that is launched.
async fn launch(world: &World, provider: &AwsProvider, capacity_type: &str) -> NodeClaim {
    let pool = json!({
        "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": reference()}}},
    });
    let pools: Api<NodePool> = Api::all(world.client.clone());
    pools
        .create(&PostParams::default(), &serde_json::from_value(pool).expect("a pool"))
        .await
        .expect("created");
    world.pass(Duration::from_secs(1)).await;
    let only = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let requirements = json!([
        only("node.kubernetes.io/instance-type", "m5.large"),
        only("karpenter.sh/capacity-type", capacity_type),
        only("topology.kubernetes.io/zone", "us-west-2a"),
    ]);
    let claim = json!({
        "metadata": {"name": "claim", "uid": "uid-1", "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {"requirements": requirements, "nodeClassRef": reference()},
    });
    let mut claim: NodeClaim = serde_json::from_value(claim).expect("a claim");
    let machine = provider.create(&claim).await.expect("a machine");
    claim.metadata.labels.get_or_insert_default().extend(machine.labels);
    claim.metadata.annotations.get_or_insert_default().extend(machine.annotations);
    let status = json!({"providerID": machine.provider_id, "imageID": machine.image_id});
    claim.status = serde_json::from_value(status).expect("a status");
    claim
}

#[tokio::test(start_paused = true)]
async fn instance_drifts_with_changes_of_class() {
    type Change = fn(&World) -> Value;
    // Columns: case, changes in AWS and of the node class, expected drift reason.
    let table: [(&str, Change, Option<&str>); 8] = [
        ("nothing", |_| json!({}), None),
        ("another field of the spec", |_| json!({"userData": "echo"}), Some("NodeClassDrift")),
        ("a field that does not count", |_| json!({"ipPrefixCount": 1}), None),
        (
            "newer images",
            |world| {
                world.aws.world(|cloud| {
                    cloud.add_image(
                        "ami-new",
                        "new",
                        "x86_64",
                        "2026-01-01T00:00:00Z".parse().expect("a time"),
                    );
                });
                json!({"amiSelectorTerms": [{"id": "ami-new"}], "amiFamily": "AL2023"})
            },
            Some("AMIDrift"),
        ),
        (
            "another security group",
            |world| {
                world.aws.world(|cloud| cloud.add_security_group("sg-more", "more"));
                json!({})
            },
            Some("SecurityGroupDrift"),
        ),
        ("other subnets", |_| json!({"subnetSelectorTerms": [{"id": "subnet-b"}]}), Some("SubnetDrift")),
        (
            "groups before subnets",
            |world| {
                world.aws.world(|cloud| cloud.add_security_group("sg-more", "more"));
                json!({"subnetSelectorTerms": [{"id": "subnet-b"}]})
            },
            Some("SecurityGroupDrift"),
        ),
        (
            "no images at all, which says nothing",
            |_| json!({"amiSelectorTerms": [{"id": "ami-none"}], "amiFamily": "AL2023"}),
            Some("error"),
        ),
    ];
    for (case, change, expected) in table {
        let (world, provider) = World::start_live(AwsFeatureGates::default(), with_images).await;
        world.create_class("default", json!({})).await;
        world.until("default", "Ready", "True").await;
        let claim = launch(&world, &provider, "on-demand").await;
        assert_eq!(provider.drift_reason(&claim).await, Ok(None), "{case}: right after the launch");
        let spec = change(&world);
        world.patch_class("default", json!({ "spec": spec })).await;
        world.pass(6 * MINUTE).await;
        let found = match provider.drift_reason(&claim).await {
            Ok(reason) => reason,
            Err(_) => Some("error".to_owned()),
        };
        assert_eq!(found.as_deref(), expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_nodepool_or_class_nothing_drifts() {
    let (world, provider) = World::start_live(AwsFeatureGates::default(), with_images).await;
    world.create_class("default", json!({})).await;
    world.until("default", "Ready", "True").await;
    let mut claim = launch(&world, &provider, "on-demand").await;
    world.patch_class("default", json!({"spec": {"userData": "echo"}})).await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(provider.drift_reason(&claim).await, Ok(Some("NodeClassDrift".to_owned())));
    world.delete_class("default").await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(provider.drift_reason(&claim).await, Ok(None));
    if let Some(labels) = &mut claim.metadata.labels {
        labels.remove("karpenter.sh/nodepool");
    }
    assert_eq!(provider.drift_reason(&claim).await, Ok(None));
}

fn reservation(id: &str) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-west-2a".to_owned(),
        instance_match_criteria: "targeted".to_owned(),
        reservation_type: "default".to_owned(),
        state: "active".to_owned(),
        total_count: 2,
        available_count: 2,
        ..CapacityReservation::default()
    }
}

fn group(id: &str) -> PlacementGroup {
    PlacementGroup {
        id: id.to_owned(),
        name: "near".to_owned(),
        strategy: "cluster".to_owned(),
        state: "available".to_owned(),
        ..PlacementGroup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn reserved_instance_drifts_if_class_drops_reservation() {
    let own = json!({"capacityReservationSelectorTerms": [{"id": "cr-1"}]});
    let other = json!({"capacityReservationSelectorTerms": [{"id": "cr-2"}]});
    // Columns: case, whether EC2 still reports the instance as reserved, the changed node class, expected drift reason.
    let table = [
        ("its own reservation", true, &own, None),
        ("another reservation", true, &other, Some("CapacityReservationDrift")),
        ("another reservation, known only after a fresh read", false, &other, None),
    ];
    for (case, is_reserved, spec, expected) in table {
        let prepare = |aws: &FakeAws| {
            with_images(aws);
            aws.world(|cloud| {
                cloud.reservations =
                    ["cr-1", "cr-2"].map(|id| (id.to_owned(), reservation(id))).into_iter().collect();
            });
        };
        let (world, provider) = World::start_live(AwsFeatureGates::default(), prepare).await;
        world.create_class("default", own.clone()).await;
        world.until("default", "Ready", "True").await;
        let claim = launch(&world, &provider, "reserved").await;
        let labels = claim.metadata.labels.as_ref().expect("labels");
        assert_eq!(labels["karpenter.k8s.aws/capacity-reservation-id"], "cr-1", "{case}");
        assert_eq!(provider.drift_reason(&claim).await, Ok(None), "{case}: right after the launch");
        if !is_reserved {
            world.aws.world(|cloud| {
                for machine in cloud.instances.values_mut() {
                    machine.instance.capacity_reservation_id = None;
                    machine.instance.capacity_reservation_preference = None;
                }
            });
        }
        world.patch_class("default", json!({ "spec": spec })).await;
        world.pass(6 * MINUTE).await;
        assert_eq!(provider.drift_reason(&claim).await, Ok(expected.map(str::to_owned)), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn instance_drifts_if_placement_group_was_replaced() {
    let prepare = |aws: &FakeAws| {
        with_images(aws);
        aws.world(|cloud| cloud.placement_groups.insert("pg-1".to_owned(), group("pg-1")));
    };
    let (world, provider) = World::start_live(AwsFeatureGates::default(), prepare).await;
    world.create_class("default", json!({"placementGroupSelector": {"name": "near"}})).await;
    world.until("default", "Ready", "True").await;
    let claim = launch(&world, &provider, "on-demand").await;
    assert_eq!(
        claim.metadata.labels.as_ref().expect("labels")["karpenter.k8s.aws/placement-group-id"],
        "pg-1"
    );
    assert_eq!(provider.drift_reason(&claim).await, Ok(None));
    // While EC2 does not respond, drift cannot be decided.
    world.aws.fail_always(Call::DescribePlacementGroups, Some(AwsError::unreachable("down")));
    world.pass(2 * MINUTE).await;
    assert!(provider.drift_reason(&claim).await.is_err());
    world.aws.fail_always(Call::DescribePlacementGroups, None);
    world.aws.world(|cloud| cloud.placement_groups = [("pg-2".to_owned(), group("pg-2"))].into());
    world.pass(2 * MINUTE).await;
    assert_eq!(provider.drift_reason(&claim).await, Ok(Some("PlacementGroupDrift".to_owned())));
    // Drift of placement groups is checked after drift of subnets.
    world.patch_class("default", json!({"spec": {"subnetSelectorTerms": [{"id": "subnet-b"}]}})).await;
    world.pass(6 * MINUTE).await;
    assert_eq!(provider.drift_reason(&claim).await, Ok(Some("SubnetDrift".to_owned())));
}
