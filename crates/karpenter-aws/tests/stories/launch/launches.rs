use std::time::Duration;

use karpenter_api::labels;
use karpenter_aws::api::ec2::{
    CapacityReservation, OnDemandAllocationStrategy, PlacementGroup, SpotAllocationStrategy,
    TargetCapacityType,
};
use karpenter_aws::fake::Call;
use karpenter_cloud::{CloudError, CloudProvider};
use serde_json::{Value, json};

use super::world::{Setup, World, zone};

const TYPE: &str = labels::INSTANCE_TYPE;
const KIND: &str = labels::CAPACITY_TYPE;
const ZONE: &str = labels::ZONE;

fn reservation(id: &str, instance_type: &str, letter: &str, left: i64) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: instance_type.to_owned(),
        zone: zone(letter),
        instance_match_criteria: "targeted".to_owned(),
        reservation_type: "default".to_owned(),
        state: "active".to_owned(),
        total_count: 10,
        available_count: left,
        ..CapacityReservation::default()
    }
}

/// A test environment whose node class selects these capacity reservations, with the reservations' counts.
async fn reserving(reservations: Vec<CapacityReservation>) -> World {
    let world = World::new().await;
    world.cloud.world(|cloud| {
        cloud.reservations = reservations.iter().map(|held| (held.id.clone(), held.clone())).collect();
    });
    world.change_class(|class| {
        let terms: Vec<Value> = reservations.iter().map(|held| json!({"id": held.id})).collect();
        class["spec"]["capacityReservationSelectorTerms"] = json!(terms);
        let shown: Vec<Value> = reservations
            .iter()
            .map(|held| {
                json!({
                    "id": held.id, "availabilityZone": held.zone, "instanceType": held.instance_type,
                    "instanceMatchCriteria": "targeted", "ownerID": held.owner_id,
                    "reservationType": held.reservation_type, "interruptible": held.is_interruptible,
                })
            })
            .collect();
        class["status"]["capacityReservations"] = json!(shown);
    });
    world.learn_reservations().await;
    world
}

#[tokio::test(start_paused = true)]
async fn claim_gets_cheapest_instance_with_its_labels() {
    let world = World::new().await;
    let machine = world.launch(&[(TYPE, &["m5.large", "m5.xlarge"]), (KIND, &["on-demand"])]).await.unwrap();
    let label = |key: &str| machine.labels.get(key).map(String::as_str);
    assert_eq!(label(TYPE), Some("m5.large"));
    assert_eq!(label(KIND), Some("on-demand"));
    assert_eq!(label(labels::NODEPOOL), Some("general"));
    assert_eq!(label(labels::AWS_INSTANCE_TENANCY), Some("default"));
    assert_eq!(label(labels::ARCH), Some("amd64"));
    assert_eq!(label(labels::AWS_INSTANCE_CPU), Some("2"));
    assert_eq!(label(labels::AWS_CAPACITY_RESERVATION_ID), None);
    assert_eq!(label(labels::AWS_PLACEMENT_GROUP_ID), None);
    assert!(label(labels::AWS_ZONE_ID).is_some_and(|id| id.starts_with("usw2-az")), "{:?}", machine.labels);
    assert_eq!(machine.image_id.as_deref(), Some("ami-x8664standard"));
    assert!(machine.provider_id.starts_with(&format!("aws:///{}/i-", label(ZONE).unwrap())));
    assert!(machine.capacity["cpu"] > machine.allocatable["cpu"]);
    assert!(!machine.is_terminating);
    let annotations: Vec<&str> = machine.annotations.keys().map(String::as_str).collect();
    let expected = [
        labels::AWS_ANNOTATION_NODE_CLASS_HASH,
        labels::AWS_ANNOTATION_NODE_CLASS_HASH_VERSION,
        labels::AWS_ANNOTATION_INSTANCE_PROFILE_NAME,
    ];
    assert_eq!(annotations, expected);
    assert_eq!(machine.annotations[labels::AWS_ANNOTATION_INSTANCE_PROFILE_NAME], "cluster_profile");
}

#[tokio::test(start_paused = true)]
async fn fleet_overrides() {
    type Case = (&'static str, Vec<(&'static str, Vec<&'static str>)>, Vec<&'static str>);
    let cases: Vec<Case> = vec![
        (
            "one type in all its zones",
            vec![(TYPE, vec!["m5.large"])],
            vec!["m5.large a", "m5.large b", "m5.large c", "m5.large d"],
        ),
        ("one zone", vec![(TYPE, vec!["m5.large"]), (ZONE, vec!["us-west-2b"])], vec!["m5.large b"]),
        (
            "two types in one zone",
            vec![(TYPE, vec!["m5.large", "c5.large"]), (ZONE, vec!["us-west-2a"])],
            vec!["c5.large a", "m5.large a"],
        ),
        (
            "no metal unless it is named",
            vec![(TYPE, vec!["m5.metal", "m5.large"]), (ZONE, vec!["us-west-2a"])],
            vec!["m5.large a"],
        ),
        (
            "metal that is named",
            vec![(TYPE, vec!["m5.metal"]), (ZONE, vec!["us-west-2a"])],
            vec!["m5.metal a"],
        ),
        (
            "by architecture",
            vec![(labels::ARCH, vec!["arm64"]), (ZONE, vec!["us-west-2a"])],
            vec!["m6g.large a"],
        ),
        (
            "by family and size",
            vec![(labels::AWS_INSTANCE_FAMILY, vec!["t3"]), (ZONE, vec!["us-west-2a"])],
            vec!["t3.large a", "t3.medium a"],
        ),
        (
            "by zone id",
            vec![(TYPE, vec!["m5.large"]), (labels::AWS_ZONE_ID, vec!["usw2-az1", "usw2-az2"])],
            vec!["m5.large a", "m5.large b"],
        ),
    ];
    let world = World::new().await;
    for (case, requirements, expected) in cases {
        let mut requirements: Vec<(&str, &[&str])> =
            requirements.iter().map(|(key, values)| (*key, values.as_slice())).collect();
        requirements.push((KIND, &["on-demand"]));
        world.launch(&requirements).await.unwrap();
        let zones_by_id = case == "by zone id";
        let offers = world.offers();
        if zones_by_id {
            assert_eq!(offers.len(), expected.len(), "{case}: {offers:?}");
        } else {
            assert_eq!(offers, expected, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn capacity_types_and_allocation_strategies() {
    let world = World::new().await;
    let type_of = [(TYPE, &["m5.large"][..])];
    let with = |kinds: &'static [&'static str]| [type_of[0], (KIND, kinds)];
    let spot = world.launch(&with(&["spot", "on-demand"])).await.unwrap();
    assert_eq!(spot.labels[KIND], "spot");
    let fleet = world.fleets().pop().unwrap();
    assert_eq!(fleet.target, TargetCapacityType::Spot);
    assert_eq!(fleet.spot_allocation_strategy, Some(SpotAllocationStrategy::PriceCapacityOptimized));
    world.launch(&with(&["on-demand"])).await.unwrap();
    let fleet = world.fleets().pop().unwrap();
    assert_eq!(fleet.target, TargetCapacityType::OnDemand);
    assert_eq!(fleet.on_demand_allocation_strategy, Some(OnDemandAllocationStrategy::LowestPrice));
    let any = world.launch(&type_of).await.unwrap();
    assert_eq!(any.labels[KIND], "spot", "a claim that does not care gets spot");
    for (kind, spot, on_demand) in [
        ("spot", Some(SpotAllocationStrategy::CapacityOptimizedPrioritized), None),
        ("on-demand", None, Some(OnDemandAllocationStrategy::Prioritized)),
    ] {
        let claim = world.claim_with(|claim| {
            claim["metadata"]["annotations"]["karpenter.sh/price-overlay-applied"] = json!("true");
            claim["spec"]["requirements"] = json!([{"key": KIND, "operator": "In", "values": [kind]}]);
        });
        world.provider.create(&claim).await.unwrap();
        let fleet = world.fleets().pop().unwrap();
        assert_eq!((fleet.spot_allocation_strategy, fleet.on_demand_allocation_strategy), (spot, on_demand));
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_context_is_sent_unless_min_values_were_relaxed() {
    let world = World::new().await;
    world.change_class(|class| class["spec"]["context"] = json!("ctx"));
    world.launch(&[]).await.unwrap();
    assert_eq!(world.fleets().pop().unwrap().context.as_deref(), Some("ctx"));
    let relaxed = world.claim_with(|claim| {
        claim["metadata"]["annotations"]["karpenter.sh/nodeclaim-min-values-relaxed"] = json!("true");
    });
    world.provider.create(&relaxed).await.unwrap();
    assert_eq!(world.fleets().pop().unwrap().context, None);
}

#[tokio::test(start_paused = true)]
async fn all_created_resources_are_tagged() {
    let world = World::new().await;
    world.change_class(|class| class["spec"]["tags"] = json!({"team": "a"}));
    world.launch(&[]).await.unwrap();
    let expected = [
        ("eks:eks-cluster-name", "cluster"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("karpenter.sh/nodepool", "general"),
        ("kubernetes.io/cluster/cluster", "owned"),
        ("team", "a"),
    ];
    let is_expected = |tags: &karpenter_aws::api::Tags| {
        let found: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
    };
    world.cloud.world(|cloud| {
        cloud.instances.values().for_each(|machine| is_expected(&machine.instance.tags));
        cloud.launch_templates.values().for_each(|stored| is_expected(&stored.template.tags));
        let interfaces = cloud.launch_templates.values().flat_map(|stored| &stored.data.tag_specifications);
        interfaces.for_each(|tags| is_expected(&tags.tags));
        cloud
            .fleets
            .iter()
            .flat_map(|fleet| &fleet.tag_specifications)
            .for_each(|tags| is_expected(&tags.tags));
    });
}

#[tokio::test(start_paused = true)]
async fn equal_claims_share_one_fleet() {
    let world = World::new().await;
    let launches = (0..20).map(|_| world.launch(&[(TYPE, &["m5.large"])]));
    let machines = futures::future::try_join_all(launches).await.unwrap();
    let ids: std::collections::BTreeSet<&str> =
        machines.iter().map(|machine| machine.provider_id.as_str()).collect();
    assert_eq!(ids.len(), 20, "one instance each");
    assert_eq!(world.cloud.count(Call::CreateFleet), 1);
    assert_eq!(world.fleets()[0].total_target_capacity, 20);
    let (one, two) =
        tokio::join!(world.launch(&[(TYPE, &["m5.large"])]), world.launch(&[(TYPE, &["c5.large"])]));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(world.cloud.count(Call::CreateFleet), 3, "different claims are different fleets");
}

#[tokio::test(start_paused = true)]
async fn repeated_create_launches_one_instance() {
    let world = World::new().await;
    let claim = world.claim(&[]);
    let (one, two) = tokio::join!(world.provider.create(&claim), world.provider.create(&claim));
    let three = world.provider.create(&claim).await.unwrap();
    assert_eq!(one.unwrap(), three);
    assert_eq!(two.unwrap(), three);
    assert_eq!(world.cloud.world(|cloud| cloud.instances.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn launch_fails_if_class_is_not_launchable() {
    let ready = |status: &str, observed: i64| {
        json!([{"type": "Ready", "status": status, "message": "why", "observedGeneration": observed,
            "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(&str, Change, &str)> = vec![
        (
            "not ready",
            Box::new(move |class| class["status"]["conditions"] = ready("False", 1)),
            "node class is not ready: why",
        ),
        (
            "not known",
            Box::new(move |class| class["status"]["conditions"] = ready("Unknown", 1)),
            "NodeClassReadinessUnknown",
        ),
        (
            "ready for an older spec",
            Box::new(move |class| class["metadata"]["generation"] = json!(2)),
            "node class is not ready: nodeclass status has not been reconciled against the latest spec",
        ),
        (
            "about to go",
            Box::new(|class| class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
            "insufficient capacity: resolving nodeclass, ec2nodeclasses.karpenter.k8s.aws \"default\" is terminating, \
             treating as not found",
        ),
        (
            "no security groups",
            Box::new(|class| class["status"]["securityGroups"] = json!([])),
            "LaunchFailed",
        ),
        ("no images", Box::new(|class| class["status"]["amis"] = json!([])), "LaunchFailed"),
        (
            "no subnets",
            Box::new(|class| class["status"]["subnets"] = json!([])),
            "InstanceTypeResolutionFailed",
        ),
        (
            "tags that are ours",
            Box::new(|class| class["spec"]["tags"] = json!({"karpenter.sh/nodepool": "x"})),
            "node class is not ready: tags failed validation requirements (tags=\"karpenter.sh/nodepool\")",
        ),
        (
            "user data that is no archive",
            Box::new(|class| {
                class["spec"]["userData"] = json!("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx")
            }),
            "LaunchFailed",
        ),
    ];
    for (case, change, expected) in cases {
        let world = World::new().await;
        world.change_class(change);
        let error = match world.launch(&[]).await.unwrap_err() {
            CloudError::CreateRefused { reason, .. } => reason,
            other => other.to_string(),
        };
        assert_eq!(error, expected, "{case}");
        assert_eq!(world.cloud.count(Call::CreateFleet), 0, "{case}: nothing is launched");
    }
    let world = World::new().await;
    world.objects.classes.lock().unwrap().clear();
    let error = world.launch(&[]).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity { .. }), "{error}");
    assert!(
        world.provider.instance_types(&world.pool()).await.unwrap().is_empty(),
        "no class, no types, no error"
    );
}

#[tokio::test(start_paused = true)]
async fn ami_depends_on_instance_type() {
    let cases = [
        ("m5.large", "ami-x8664standard"),
        ("m6g.large", "ami-arm64standard"),
        ("g4dn.xlarge", "ami-x8664nvidia"),
        ("inf2.xlarge", "ami-x8664neuron"),
    ];
    let world = World::new().await;
    for (name, image) in cases {
        let machine = world.launch(&[(TYPE, &[name]), (KIND, &["on-demand"])]).await.unwrap();
        assert_eq!(machine.image_id.as_deref(), Some(image), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn dedicated_tenancy() {
    let world = World::new().await;
    let machine = world.launch(&[(labels::AWS_INSTANCE_TENANCY, &["dedicated"])]).await.unwrap();
    assert_eq!(machine.labels[labels::AWS_INSTANCE_TENANCY], "dedicated");
    assert!(world.templates().iter().all(|data| data.placement.tenancy.as_deref() == Some("dedicated")));
}

#[tokio::test(start_paused = true)]
async fn efa_interfaces_only_if_requested() {
    let world = World::new().await;
    let type_of: &[(&str, &[&str])] = &[(TYPE, &["p4d.24xlarge"]), (KIND, &["on-demand"])];
    let plain = world.launch(type_of).await.unwrap();
    assert!(!plain.capacity.contains_key("vpc.amazonaws.com/efa"));
    assert_eq!(world.templates()[0].network_interfaces.len(), 1);
    let asking = world.claim_with(|claim| {
        claim["spec"]["requirements"] = json!([{"key": TYPE, "operator": "In", "values": ["p4d.24xlarge"]}]);
        claim["spec"]["resources"]["requests"]["vpc.amazonaws.com/efa"] = json!("1");
    });
    let machine = world.provider.create(&asking).await.unwrap();
    assert_eq!(machine.capacity["vpc.amazonaws.com/efa"].to_string(), "4");
    let interfaces = &world.templates()[1].network_interfaces;
    assert_eq!(interfaces.len(), 4);
    assert!(interfaces.iter().all(|interface| interface.interface_type.as_deref() == Some("efa")));
    let found = world.provider.get(&machine.provider_id).await.unwrap();
    assert_eq!(found.capacity["vpc.amazonaws.com/efa"].to_string(), "4", "EC2 reports the same later");
}

#[tokio::test(start_paused = true)]
async fn enclaves_only_if_requested() {
    let world = World::new().await;
    world.launch(&[]).await.unwrap();
    assert!(world.templates().iter().all(|data| !data.enclave_enabled));
}

#[tokio::test(start_paused = true)]
async fn reservations_are_preferred() {
    let world = reserving(vec![reservation("cr-1", "m5.large", "a", 2)]).await;
    let any: &[(&str, &[&str])] =
        &[(TYPE, &["m5.large", "c5.large"]), (KIND, &["reserved", "spot", "on-demand"])];
    let machine = world.launch(any).await.unwrap();
    assert_eq!(machine.labels[KIND], "reserved");
    assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_ID], "cr-1");
    assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_TYPE], "default");
    assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE], "false");
    assert_eq!(world.offers(), ["m5.large a"]);
    let spec = world.templates()[0].capacity_reservation.clone().unwrap();
    assert_eq!(spec.preference, "capacity-reservations-only");
    assert_eq!(spec.target_id.as_deref(), Some("cr-1"));
    let found = world.provider.get(&machine.provider_id).await.unwrap();
    assert_eq!(found.labels[KIND], "reserved");
    assert_eq!(found.labels[labels::AWS_CAPACITY_RESERVATION_ID], "cr-1");
    // EC2 reported two available instances; one of them was just launched.
    let left = || world.provider.types().reservations().counts().left("cr-1");
    assert_eq!(left(), 1);
    world.launch(any).await.unwrap();
    assert_eq!(left(), 0);
    let third = world.launch(any).await.unwrap();
    assert_eq!(third.labels[KIND], "spot", "when it is used up, the next kind");
}

/// EC2 returns a count while a launch is in progress, so the count may include the launched instance.
#[tokio::test(start_paused = true)]
async fn launch_in_reservation_counts_from_call_time() {
    let world = reserving(vec![reservation("cr-1", "m5.large", "a", 2)]).await;
    let counts = world.provider.types().reservations().counts().clone();
    world.cloud.set_latency(Duration::from_secs(10));
    let recount = async {
        while world.cloud.count(Call::CreateFleet) == 0 {
            world.clock.sleep(Duration::from_secs(1)).await;
        }
        world.clock.sleep(Duration::from_secs(5)).await;
        counts.sync([("cr-1".to_owned(), 1)], world.clock.now());
    };
    let (machine, ()) = futures::join!(world.launch(&[(KIND, &["reserved"])]), recount);
    assert_eq!(machine.unwrap().labels[KIND], "reserved");
    assert_eq!(counts.left("cr-1"), 1);
}

#[tokio::test(start_paused = true)]
async fn exhausted_reservation_falls_back() {
    let world = reserving(vec![reservation("cr-1", "m5.large", "a", 5)]).await;
    world.cloud.world(|cloud| cloud.reservations.get_mut("cr-1").unwrap().available_count = 0);
    let any: &[(&str, &[&str])] = &[(TYPE, &["m5.large"]), (KIND, &["reserved", "on-demand"])];
    let error = world.launch(any).await.unwrap_err();
    assert!(matches!(&error, CloudError::InsufficientCapacity { .. }), "{error}");
    assert_eq!(world.provider.types().reservations().counts().left("cr-1"), 0);
    assert_eq!(world.launch(any).await.unwrap().labels[KIND], "on-demand");
}

/// The plan gives each NodeClaim its own reservation, so concurrent launches use both.
#[tokio::test(start_paused = true)]
async fn claims_with_one_reservation_each_use_both_reservations() {
    let slots = vec![reservation("cr-1", "m5.large", "a", 1), reservation("cr-2", "m5.large", "a", 1)];
    let world = reserving(slots).await;
    let id = labels::AWS_CAPACITY_RESERVATION_ID;
    let first: &[(&str, &[&str])] = &[(KIND, &["reserved"]), (id, &["cr-1"])];
    let second: &[(&str, &[&str])] = &[(KIND, &["reserved"]), (id, &["cr-2"])];
    let (first, second) = futures::join!(world.launch(first), world.launch(second));
    assert_eq!(first.unwrap().labels[id], "cr-1");
    assert_eq!(second.unwrap().labels[id], "cr-2");
    let counts = world.provider.types().reservations().counts().clone();
    assert_eq!((counts.left("cr-1"), counts.left("cr-2")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn capacity_blocks_and_interruptible_reservations() {
    let mut block = reservation("cr-b", "p4d.24xlarge", "a", 1);
    block.reservation_type = "capacity-block".to_owned();
    let mut interruptible = reservation("cr-i", "m5.large", "a", 1);
    interruptible.is_interruptible = true;
    for (held, target, market) in [
        (block, TargetCapacityType::CapacityBlock, "capacity-block"),
        (interruptible, TargetCapacityType::ReservedCapacity, "interruptible-capacity-reservation"),
    ] {
        let (id, kind) = (held.id.clone(), held.reservation_type.clone());
        let is_interruptible = held.is_interruptible.to_string();
        let world = reserving(vec![held]).await;
        let machine = world.launch(&[(KIND, &["reserved"])]).await.unwrap();
        assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_ID], id);
        assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_TYPE], kind);
        assert_eq!(machine.labels[labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE], is_interruptible);
        let fleet = world.fleets().pop().unwrap();
        assert_eq!(fleet.target, target);
        assert_eq!((fleet.on_demand_allocation_strategy, fleet.spot_allocation_strategy), (None, None));
        assert_eq!(world.templates()[0].market_type.as_deref(), Some(market));
        let found = world.provider.get(&machine.provider_id).await.unwrap();
        assert_eq!(found.labels[labels::AWS_CAPACITY_RESERVATION_TYPE], kind, "EC2 reports the same later");
        assert_eq!(found.labels[labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE], is_interruptible);
    }
}

#[tokio::test(start_paused = true)]
async fn without_feature_gate_ec2_chooses_reservations() {
    let world = World::with(Setup { reserved_capacity: false, ..Setup::default() }).await;
    world.launch(&[(KIND, &["on-demand"])]).await.unwrap();
    assert!(world.templates().iter().all(|data| data.capacity_reservation.is_none()));
    world.cloud.world(|cloud| {
        let machine = cloud.instances.values_mut().next().unwrap();
        machine.instance.capacity_reservation_id = Some("cr-open".to_owned());
        machine.instance.capacity_reservation_preference = Some("open".to_owned());
    });
    assert_eq!(world.provider.list().await.unwrap()[0].labels[KIND], "on-demand");
}

fn group(strategy: &str, partition_count: i32) -> PlacementGroup {
    PlacementGroup {
        id: "pg-1".to_owned(),
        name: "group".to_owned(),
        strategy: strategy.to_owned(),
        partition_count,
        state: "available".to_owned(),
        ..PlacementGroup::default()
    }
}

async fn grouped(strategy: &str, partition_count: i32) -> World {
    let world = World::new().await;
    world
        .cloud
        .world(|cloud| cloud.placement_groups.insert("pg-1".to_owned(), group(strategy, partition_count)));
    world.change_class(|class| class["spec"]["placementGroupSelector"] = json!({"name": "group"}));
    world
}

#[tokio::test(start_paused = true)]
async fn placement_groups() {
    let world = grouped("cluster", 0).await;
    let machine = world.launch(&[(TYPE, &["c5.large"])]).await;
    // Only instance types that EC2 allows in a cluster placement group are offered.
    let machine = match machine {
        Ok(machine) => machine,
        Err(_) => world.launch(&[]).await.unwrap(),
    };
    assert_eq!(machine.labels[labels::AWS_PLACEMENT_GROUP_ID], "pg-1");
    assert!(!machine.labels.contains_key(labels::AWS_PLACEMENT_GROUP_PARTITION));
    assert!(world.templates().iter().all(|data| data.placement.group_id.as_deref() == Some("pg-1")));

    let world = grouped("partition", 3).await;
    let any = world.launch(&[(TYPE, &["m5.large"])]).await.unwrap();
    assert_eq!(
        any.labels[labels::AWS_PLACEMENT_GROUP_PARTITION],
        "",
        "EC2 chooses the partition; it is not known yet"
    );
    let found = world.provider.get(&any.provider_id).await.unwrap();
    assert_eq!(found.labels[labels::AWS_PLACEMENT_GROUP_PARTITION], "1");
    let third = world
        .launch(&[(TYPE, &["m5.large"]), (labels::AWS_PLACEMENT_GROUP_PARTITION, &["3", "2"])])
        .await
        .unwrap();
    assert_eq!(third.labels[labels::AWS_PLACEMENT_GROUP_PARTITION], "2", "the lowest that is asked for");
    let last = world.templates().pop().unwrap();
    assert_eq!(last.placement.partition_number, Some(2), "the partition of the launch");
}

#[tokio::test(start_paused = true)]
async fn min_values() {
    let counted = |world: &World, least: i64| {
        world.claim_with(|claim| {
            claim["spec"]["requirements"] = json!([
                {"key": TYPE, "operator": "In", "values": ["m5.large", "m5.xlarge", "m5.metal"], "minValues": least},
                {"key": KIND, "operator": "In", "values": ["on-demand"]},
                {"key": ZONE, "operator": "In", "values": [zone("a")]},
            ]);
        })
    };
    let world = World::new().await;
    world.provider.create(&counted(&world, 3)).await.unwrap();
    assert_eq!(world.offers(), ["m5.large a", "m5.metal a", "m5.xlarge a"], "metal counts here");
    world.cloud.world(|cloud| cloud.types.retain(|info| &*info.name != "m5.metal"));
    world.provider.types().discover().await.unwrap();
    let error = world.provider.create(&counted(&world, 3)).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::InsufficientCapacity { message } if message.contains("minValues")),
        "{error}"
    );
    let relaxed = World::with(Setup { min_values_are_strict: false, ..Setup::default() }).await;
    relaxed.cloud.world(|cloud| cloud.types.retain(|info| &*info.name != "m5.metal"));
    relaxed.provider.types().discover().await.unwrap();
    relaxed.provider.create(&counted(&relaxed, 3)).await.unwrap();
}
