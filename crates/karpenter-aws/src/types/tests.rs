//! Tests of the instance types of node classes, with the AWS fake: which calls are made, which changes affect the
//! result, and which do not.

mod classes;
mod offerings;

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{EC2NodeClassStatus, SubnetStatus};
use karpenter_catalog::aws::labels;
use karpenter_model::labels as core;

use super::resolved::Work;
use super::*;
use crate::fake::{Call, FakeAws};

/// A region with discovered instance types, and a node class with a subnet in each of its first two zones.
struct Scene {
    cloud: Arc<FakeAws>,
    types: InstanceTypes,
    shifts: ZonalShifts,
    clock: Clock,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut TypeOptions)) -> Self {
        Self::with_expressions(change, None)
    }

    fn with_expressions(
        change: impl FnOnce(&mut TypeOptions),
        expressions: Option<Arc<dyn KubeletExpressions>>,
    ) -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let cloud = FakeAws::new(clock, "us-east-1");
        // The region has only a few instance types, which keeps the tables short.
        cloud.world(|world| {
            world.types.retain(|info| {
                [
                    "a1.large",
                    "c5n.18xlarge",
                    "c8i.large",
                    "g5.xlarge",
                    "m5.large",
                    "m5.metal",
                    "m5d.large",
                    "m7g.large",
                    "t3.large",
                ]
                .contains(&&*info.name)
            })
        });
        let mut options = TypeOptions {
            region: "us-east-1".to_owned(),
            vm_memory_overhead_percent: 0.075,
            reserved_enis: 0,
            uses_reservations: true,
        };
        change(&mut options);
        let shifts = ZonalShifts::default();
        let ec2 = cloud.apis().ec2;
        let sources = TypeSources {
            ec2: Arc::clone(&ec2),
            clock,
            prices: PriceBook::new("us-east-1"),
            unavailable: Unavailable::new(clock),
            reservations: Reservations::new(Arc::clone(&ec2), clock),
            placement_groups: PlacementGroups::new(ec2, clock),
            shifts: shifts.clone(),
        };
        let types = InstanceTypes::with_expressions(options, sources, expressions);
        Self { cloud, types, shifts, clock }
    }

    async fn discovered() -> Self {
        let scene = Self::new();
        scene.types.discover().await.expect("an answer");
        scene
    }

    async fn list(&self, class: &EC2NodeClass) -> Arc<Vec<InstanceType>> {
        self.types.list(class).await.expect("types")
    }

    async fn one(&self, class: &EC2NodeClass, name: &str) -> InstanceType {
        let types = self.list(class).await;
        types.iter().find(|one| &*one.name == name).expect("listed").clone()
    }
}

fn class() -> EC2NodeClass {
    let mut class = EC2NodeClass::default();
    class.metadata.name = Some("default".to_owned());
    class.spec.ami_family = Some("AL2023".to_owned());
    let subnet = |id: &str, zone: &str, zone_id: &str| SubnetStatus {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: Some(zone_id.to_owned()),
    };
    class.status = Some(EC2NodeClassStatus {
        subnets: vec![
            subnet("subnet-a", "us-east-1a", "use1-az6"),
            subnet("subnet-b", "us-east-1b", "use1-az1"),
        ],
        ..EC2NodeClassStatus::default()
    });
    class
}

fn short(instance_type: &str, zone: &str, capacity_type: &str, scope: Scope) -> UnavailableOffering {
    UnavailableOffering {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        capacity_type: capacity_type.to_owned(),
        scope,
    }
}

/// The available offerings, each as zone letter and capacity type, with partition and reservation if it has them.
fn available(instance_type: &InstanceType) -> Vec<String> {
    let offerings = instance_type.offerings.iter().filter(|offering| offering.available);
    offerings
        .map(|offering| {
            let part = |key: &str| {
                let value = offering.requirements.get(key).and_then(|one| one.single_value());
                value.map_or(String::new(), |value| format!(" {value}"))
            };
            let zone = offering.zone().map_or("?", |zone| zone.trim_start_matches("us-east-1"));
            format!(
                "{zone}{}{}{}",
                part(core::CAPACITY_TYPE),
                part(labels::PLACEMENT_GROUP_PARTITION),
                part(labels::CAPACITY_RESERVATION_ID)
            )
        })
        .collect()
}

const ALL: [&str; 4] = ["a on-demand", "a spot", "b on-demand", "b spot"];

#[tokio::test(start_paused = true)]
async fn no_instance_types_before_discovery() {
    let scene = Scene::new();
    assert_eq!(scene.types.list(&class()).await, Err(TypesError::NoTypes));
    scene.types.discover().await.expect("an answer");
    let mut nowhere = class();
    nowhere.status = None;
    assert_eq!(scene.types.list(&nowhere).await, Err(TypesError::NoSubnets));
    assert_eq!(scene.list(&class()).await.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn failed_or_empty_discovery_keeps_known_types() {
    let scene = Scene::discovered().await;
    let before = scene.list(&class()).await;
    let throttled = || AwsError::new("RequestLimitExceeded", "slow down");
    for call in [Call::DescribeInstanceTypes, Call::DescribeInstanceTypeOfferings] {
        scene.cloud.fail_next(call, [throttled()]);
        let error = scene.types.discover().await.expect_err("refused");
        assert!(matches!(error, TypesError::Aws { .. }), "{error}");
        assert!(Arc::ptr_eq(&before, &scene.list(&class()).await));
    }
    scene.cloud.world(|world| world.offerings.clear());
    assert_eq!(scene.types.discover().await, Err(TypesError::NoOfferings));
    scene.cloud.world(|world| world.types.clear());
    assert_eq!(scene.types.discover().await, Err(TypesError::NoTypes));
    assert!(Arc::ptr_eq(&before, &scene.list(&class()).await));
}

#[tokio::test(start_paused = true)]
async fn version_grows_only_if_discovery_differs() {
    let scene = Scene::discovered().await;
    let before = scene.list(&class()).await;
    scene.cloud.world(|world| world.types.reverse());
    scene.types.discover().await.expect("an answer");
    assert!(Arc::ptr_eq(&before, &scene.list(&class()).await));

    scene.cloud.world(|world| {
        world
            .offerings
            .retain(|offering| offering.instance_type != "m5.large" || offering.zone != "us-east-1b")
    });
    scene.types.discover().await.expect("an answer");
    assert_eq!(available(&scene.one(&class(), "m5.large").await), ["a on-demand", "a spot"]);
    scene.cloud.world(|world| world.types.retain(|info| &*info.name != "t3.large"));
    scene.types.discover().await.expect("an answer");
    assert_eq!(scene.list(&class()).await.len(), 8);
    assert!(scene.types.discovered().find("t3.large").is_none());
    assert_eq!(scene.types.discovered().zones().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn discovered_types_are_completed_from_tables() {
    let scene = Scene::new();
    scene.cloud.world(|world| {
        let mut info = world.types.iter().find(|info| &*info.name == "g5.xlarge").expect("known").clone();
        info.name = "g4ad.xlarge".into();
        (info.vpc_limits, info.network_bandwidth_mbps) = (None, None);
        world.types.push(info);
        let zone = "us-east-1a".to_owned();
        world.offerings.push(crate::api::ec2::TypeOffering { instance_type: "g4ad.xlarge".to_owned(), zone });
    });
    scene.types.discover().await.expect("an answer");
    let g4ad = scene.one(&class(), "g4ad.xlarge").await;
    let bandwidth =
        g4ad.requirements.get(labels::INSTANCE_NETWORK_BANDWIDTH).and_then(|one| one.single_value());
    assert_eq!(bandwidth.map(|mbps| &**mbps), Some("2000"));
    assert_eq!(g4ad.capacity.get("vpc.amazonaws.com/pod-eni"), 12);
    assert_eq!(available(&g4ad), ["a on-demand", "a spot"]);
}

#[tokio::test(start_paused = true)]
async fn discovered_types_equal_built_in_catalog() {
    let scene = Scene::new();
    let facts = karpenter_catalog::aws::catalog();
    scene.cloud.world(|world| world.types = facts.types().to_vec());
    scene.types.discover().await.expect("an answer");
    let history =
        scene.cloud.apis().ec2.describe_spot_price_history(scene.clock.now()).await.expect("prices");
    scene.types.prices().update(|prices| prices.with_spot(&history));
    let view = scene.types.view(&class()).await;
    let embedded = facts.resolve(&AwsNodeClass { spot_price_factor: 0.4, ..view.facts.clone() });
    let live = scene.list(&class()).await;
    assert_eq!(live.len(), 1386);
    // The embedded catalog has spot prices for all zones, EC2 only for zones that offer the type.
    let comparable = |one: &InstanceType| {
        let mut one = one.clone();
        for offering in one.offerings.iter_mut().filter(|offering| !offering.available) {
            offering.set_price(0.0, 0.0);
        }
        one
    };
    for (live, embedded) in live.iter().zip(&embedded) {
        assert_eq!(comparable(live), comparable(embedded));
    }
}

#[tokio::test(start_paused = true)]
async fn resolved_types_are_cached_until_an_input_changes() {
    let scene = Scene::discovered().await;
    let class = class();
    let first = scene.list(&class).await;
    assert!(Arc::ptr_eq(&first, &scene.list(&class).await));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(Arc::ptr_eq(&first, &scene.list(&class).await), "age alone changes nothing");

    scene.types.set_stated_prices(BTreeMap::new());
    assert!(Arc::ptr_eq(&first, &scene.list(&class).await));
    scene.types.forget("default");
    let again = scene.list(&class).await;
    assert!(!Arc::ptr_eq(&first, &again));
    assert_eq!(first, again);
}

#[tokio::test(start_paused = true)]
async fn change_resolves_only_affected_types() {
    let scene = Scene::discovered().await;
    let mut class = class();
    class.status.as_mut().expect("a status").capacity_reservations = vec![offerings::reservation("cr-1")];
    let view = scene.types.view(&class).await;
    let inputs = || scene.types.inputs(scene.types.discovered());
    let of = |names: &[&str]| Work::OfferingsOf(names.iter().map(|name| (*name).to_owned()).collect());
    let check = |change: &dyn Fn(), expected: Work| {
        let known = Resolved::make(view.clone(), inputs(), None, None);
        change();
        assert_eq!(known.work(&view, &inputs()), expected);
        // Whatever is reused, the result must be the same as without reuse.
        let partly = Resolved::make(view.clone(), inputs(), Some(&known), None);
        assert_eq!(partly.types(), Resolved::make(view.clone(), inputs(), None, None).types());
        assert_eq!(partly.work(&view, &inputs()), Work::Nothing);
    };
    check(&|| {}, Work::Nothing);
    let unavailable = scene.types.unavailable();
    check(
        &|| unavailable.mark_pool(short("m5.large", "us-east-1a", "spot", Scope::AnyLaunch), "x"),
        of(&["m5.large"]),
    );
    check(
        &|| unavailable.mark_pool(short("m5.large", "us-east-1a", "spot", Scope::AnyLaunch), "x"),
        Work::Nothing,
    );
    check(
        &|| unavailable.mark_pool(short("none.such", "us-east-1a", "spot", Scope::AnyLaunch), "x"),
        of(&["none.such"]),
    );
    check(&|| unavailable.mark_subnet("subnet-a"), Work::AllOfferings);
    check(&|| unavailable.mark_capacity_type("spot"), Work::AllOfferings);
    let counts = scene.types.reservations().counts();
    let now = scene.clock.now();
    check(&|| counts.sync([("cr-1".to_owned(), 3)], now), of(&["m5.large"]));
    check(&|| counts.launched("cr-1", now), of(&["m5.large"]));
    check(&|| counts.sync([("cr-of-others".to_owned(), 3)], now), Work::Nothing);
    let price = BTreeMap::from([("m5.large".to_owned(), 7.0)]);
    let cheaper = || {
        scene.types.prices().update(|prices| prices.with_on_demand(&price));
    };
    check(&cheaper, Work::AllOfferings);
    check(&|| scene.types.set_stated_prices(price.clone()), Work::AllOfferings);
    let seen = || {
        scene.types.memory().record("m5.large", "", 7_000_000_000);
    };
    check(&seen, Work::Everything);
    let shift = crate::api::zonal_shift::Shift {
        away_from_zone_id: "use1-az6".to_owned(),
        is_applied: true,
        started_at: None,
        expires_at: None,
    };
    check(&|| scene.shifts.replace(std::slice::from_ref(&shift)), Work::AllOfferings);
}

#[tokio::test(start_paused = true)]
async fn new_version_of_class_is_parsed_again() {
    let scene = Scene::discovered().await;
    let (mut one, mut other) = (class(), class());
    let version = |class: &mut EC2NodeClass, uid: &str, version: &str| {
        class.metadata.uid = Some(uid.to_owned());
        class.metadata.resource_version = Some(version.to_owned());
    };
    version(&mut one, "u-1", "1");
    let first = scene.list(&one).await;
    assert!(Arc::ptr_eq(&scene.types.view(&one).await, &scene.types.view(&one).await));
    one.status.as_mut().expect("a status").subnets.pop();
    version(&mut one, "u-1", "2");
    assert_ne!(first, scene.list(&one).await);
    // The node class has the same name and resource version, but another uid.
    version(&mut other, "u-2", "2");
    assert_eq!(first, scene.list(&other).await);
}

#[tokio::test(start_paused = true)]
async fn classes_track_changes_independently() {
    let scene = Scene::discovered().await;
    let (one, mut other) = (class(), class());
    other.metadata.name = Some("other".to_owned());
    other.spec.ami_family = Some("Bottlerocket".to_owned());
    assert_eq!(available(&scene.one(&one, "m5.large").await), ALL);
    assert_eq!(available(&scene.one(&other, "m5.large").await), ALL);
    scene.types.unavailable().mark_pool(short("m5.large", "us-east-1a", "spot", Scope::AnyLaunch), "x");
    // Resolving one node class after the change must not hide the change from the next node class.
    let without = ["a on-demand", "b on-demand", "b spot"];
    assert_eq!(available(&scene.one(&one, "m5.large").await), without);
    assert_eq!(available(&scene.one(&other, "m5.large").await), without);
    tokio::time::advance(Duration::from_secs(180)).await;
    assert_eq!(available(&scene.one(&one, "m5.large").await), ALL);
    assert_eq!(available(&scene.one(&other, "m5.large").await), ALL);
}

#[tokio::test(start_paused = true)]
async fn interruptions_mark_offerings_and_reservations_unavailable() {
    let scene = Scene::discovered().await;
    let mut class = class();
    class.status.as_mut().expect("a status").capacity_reservations = vec![offerings::reservation("cr-1")];
    scene.types.reservations().counts().sync([("cr-1".to_owned(), 2)], scene.clock.now());
    let with_reserved = [&ALL[..], &["a reserved cr-1"]].concat();
    assert_eq!(available(&scene.one(&class, "m5.large").await), with_reserved);
    scene.types.mark_spot_unavailable("m5.large", "us-east-1a");
    scene.types.mark_reservation_exhausted("cr-1");
    let left = ["a on-demand", "b on-demand", "b spot"];
    assert_eq!(available(&scene.one(&class, "m5.large").await), left);
}

/// After any sequence of changes, resolving only parts must give the same result as resolving everything.
#[tokio::test(start_paused = true)]
async fn partial_resolution_equals_full_resolution() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| {
        let group = crate::api::ec2::PlacementGroup {
            id: "pg-1".to_owned(),
            name: "near".to_owned(),
            strategy: "partition".to_owned(),
            partition_count: 3,
            state: "available".to_owned(),
            ..Default::default()
        };
        world.placement_groups.insert(group.id.clone(), group);
    });
    let mut class = class();
    class.spec.placement_group_selector =
        Some(karpenter_api::types::PlacementGroupSelector { id: Some("pg-1".to_owned()), name: None });
    class.status.as_mut().expect("a status").capacity_reservations = vec![offerings::reservation("cr-1")];
    let names = ["m5.large", "m5.metal", "t3.large", "none.such"];
    // The sequence is pseudo-random with a fixed seed, so it is the same on every machine, and it is long enough to
    // contain most pairs of events.
    let mut state: u64 = 7;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..300 {
        let name = names[draw(4) as usize];
        let zone = ["us-east-1a", "us-east-1b"][draw(2) as usize];
        let partition = [None, Some(1), Some(3)][draw(3) as usize];
        let group = [None, Some("pg-1"), Some("pg-2")][draw(3) as usize];
        let types = &scene.types;
        let counts = types.reservations().counts();
        let now = scene.clock.now();
        match draw(9) {
            0..=2 => {
                types.unavailable().mark_pool(short(name, zone, "spot", Scope::of(group, partition)), "x")
            }
            3 => types.unavailable().mark_subnet(["subnet-a", "subnet-b"][draw(2) as usize]),
            4 => counts.sync([("cr-1".to_owned(), draw(3) as u32)], now),
            5 => counts.launched("cr-1", now),
            6 => {
                let price = BTreeMap::from([(name.to_owned(), 1.0 + draw(5) as f64)]);
                types.prices().update(|prices| prices.with_on_demand(&price));
            }
            7 => drop(types.memory().record(name, "", 8_000_000_000 - draw(1_000_000_000) as i64)),
            _ => tokio::time::advance(Duration::from_secs(draw(120))).await,
        }
        let listed = scene.list(&class).await;
        let view = types.view(&class).await;
        let from_nothing = Resolved::make(view, types.inputs(types.discovered()), None, None);
        assert_eq!(listed, from_nothing.types(), "step {step}");
    }
}
