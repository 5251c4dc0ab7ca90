//! Tests of the availability and prices of offerings, with reservations, placement groups, subnets and zonal shifts.

use karpenter_api::types::{
    CapacityReservationSelectorTerm, CapacityReservationStatus, PlacementGroupSelector,
};

use super::*;
use crate::api::ec2::{CapacityReservation, PlacementGroup};
use crate::api::zonal_shift::Shift;
use crate::pricing::PricingController;

pub(super) fn reservation(id: &str) -> CapacityReservationStatus {
    CapacityReservationStatus {
        id: id.to_owned(),
        instance_type: "m5.large".to_owned(),
        availability_zone: "us-east-1a".to_owned(),
        instance_match_criteria: "open".to_owned(),
        ..CapacityReservationStatus::default()
    }
}

fn held(id: &str, zone: &str, available_count: i64) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: zone.to_owned(),
        instance_match_criteria: "open".to_owned(),
        reservation_type: "default".to_owned(),
        state: "active".to_owned(),
        total_count: 10,
        available_count,
        ..CapacityReservation::default()
    }
}

fn selects(ids: &[&str]) -> Vec<CapacityReservationSelectorTerm> {
    let term =
        |id: &&str| CapacityReservationSelectorTerm { id: Some((*id).to_owned()), ..Default::default() };
    ids.iter().map(term).collect()
}

#[tokio::test(start_paused = true)]
async fn reservations_become_status_and_offerings() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| {
        for one in [held("cr-1", "us-east-1a", 1), held("cr-2", "us-east-1b", 0)] {
            world.reservations.insert(one.id.clone(), one);
        }
    });
    let mut class = class();
    let terms = selects(&["cr-1", "cr-2", "cr-gone"]);
    let reservations = scene.types.reservations();
    let shown = reservations.status(&terms).await.expect("an answer");
    assert_eq!(shown.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["cr-1", "cr-2"]);
    class.status.as_mut().expect("a status").capacity_reservations = shown;

    let with = |reserved: &[&'static str]| [&ALL[..], reserved].concat();
    assert_eq!(available(&scene.one(&class, "m5.large").await), with(&["a reserved cr-1"]));
    reservations.counts().launched("cr-1", scene.clock.now());
    assert_eq!(available(&scene.one(&class, "m5.large").await), with(&[]));
    reservations.counts().terminated("cr-2");
    assert_eq!(available(&scene.one(&class, "m5.large").await), with(&["b reserved cr-2"]));

    // Without the feature gate, there are neither reserved offerings nor reservation labels.
    let without = Scene::with(|options| options.uses_reservations = false);
    without.types.discover().await.expect("an answer");
    let m5 = without.one(&class, "m5.large").await;
    assert!(m5.offerings.iter().all(|offering| !offering.is_reserved()));
    assert!(!m5.requirements.get(core::CAPACITY_TYPE).expect("stated").has("reserved"));
}

#[tokio::test(start_paused = true)]
async fn reservations_are_cached_for_a_minute() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| world.reservations.insert("cr-1".to_owned(), held("cr-1", "us-east-1a", 1)));
    let reservations = scene.types.reservations();
    let terms = selects(&["cr-1", "cr-gone"]);
    let asked = || scene.cloud.count(Call::DescribeCapacityReservations);
    let (one, other) = futures::join!(reservations.list(&terms), reservations.list(&terms));
    assert_eq!(one.expect("an answer"), other.expect("an answer"));
    assert_eq!(asked(), 2, "one call per id for any number of callers");
    tokio::time::advance(Duration::from_secs(59)).await;
    reservations.list(&terms).await.expect("an answer");
    assert_eq!(asked(), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    scene.cloud.world(|world| world.reservations.get_mut("cr-1").expect("there").available_count = 7);
    reservations.list(&terms).await.expect("an answer");
    assert_eq!(asked(), 4);
    assert_eq!(reservations.counts().left("cr-1"), 7);

    tokio::time::advance(Duration::from_secs(60)).await;
    scene.cloud.fail_next(Call::DescribeCapacityReservations, [AwsError::new("InternalError", "later")]);
    assert!(reservations.list(&terms).await.is_err(), "a failure is not an empty result");
    assert_eq!(reservations.counts().left("cr-1"), 7);
    assert!(reservations.list(&[]).await.expect("nothing to ask").is_empty());
}

#[tokio::test(start_paused = true)]
async fn ended_reservation_is_dropped_from_cached_response() {
    let scene = Scene::discovered().await;
    let ends_at = scene.clock.now().checked_add(Duration::from_secs(30)).expect("a time");
    scene.cloud.world(|world| {
        let ending = CapacityReservation { ends_at: Some(ends_at), ..held("cr-1", "us-east-1a", 1) };
        world.reservations.insert("cr-1".to_owned(), ending);
    });
    let terms = selects(&["cr-1"]);
    assert_eq!(scene.types.reservations().list(&terms).await.expect("an answer").len(), 1);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(scene.types.reservations().list(&terms).await.expect("an answer").is_empty());
    assert_eq!(scene.cloud.count(Call::DescribeCapacityReservations), 1);
}

fn group(strategy: &str, partition_count: i32) -> PlacementGroup {
    PlacementGroup {
        id: "pg-1".to_owned(),
        name: "near".to_owned(),
        strategy: strategy.to_owned(),
        partition_count,
        state: "available".to_owned(),
        ..PlacementGroup::default()
    }
}

fn grouped_class() -> EC2NodeClass {
    let mut class = class();
    class.spec.placement_group_selector =
        Some(PlacementGroupSelector { name: Some("near".to_owned()), id: None });
    class
}

#[tokio::test(start_paused = true)]
async fn partition_group_multiplies_offerings_and_scopes_unavailability() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| world.placement_groups.insert("pg-1".to_owned(), group("partition", 2)));
    let (grouped, free) = (grouped_class(), {
        let mut free = class();
        free.metadata.name = Some("free".to_owned());
        free
    });
    let m5 = scene.one(&grouped, "m5.large").await;
    assert_eq!(m5.offerings.len(), 8);
    let spot = |scene: InstanceType| -> Vec<String> {
        available(&scene).into_iter().filter(|line| line.starts_with("a spot")).collect()
    };
    assert_eq!(spot(m5), ["a spot 1", "a spot 2"]);

    let unavailable = scene.types.unavailable();
    unavailable.mark_pool(short("m5.large", "us-east-1a", "spot", Scope::of(Some("pg-1"), Some(1))), "x");
    assert_eq!(spot(scene.one(&grouped, "m5.large").await), ["a spot 2"]);
    assert_eq!(spot(scene.one(&free, "m5.large").await), ["a spot"]);
    unavailable.mark_pool(short("m5.large", "us-east-1a", "spot", Scope::of(Some("pg-1"), None)), "x");
    assert!(spot(scene.one(&grouped, "m5.large").await).is_empty());
    assert_eq!(spot(scene.one(&free, "m5.large").await), ["a spot"]);
}

#[tokio::test(start_paused = true)]
async fn missing_or_deleted_placement_group_prevents_launches() {
    let scene = Scene::discovered().await;
    let class = grouped_class();
    assert!(available(&scene.one(&class, "m5.large").await).is_empty(), "never outside of the group");
    tokio::time::advance(Duration::from_secs(60)).await;
    scene.cloud.world(|world| world.placement_groups.insert("pg-1".to_owned(), group("cluster", 0)));
    let m5 = scene.one(&class, "m5.large").await;
    assert_eq!(available(&m5), ALL);
    let id = m5.requirements.get(labels::PLACEMENT_GROUP_ID).and_then(|one| one.single_value());
    assert_eq!(id.map(|id| &**id), Some("pg-1"));
    // EC2 does not allow burstable types in a cluster placement group.
    assert!(available(&scene.one(&class, "t3.large").await).is_empty());

    // While EC2 does not respond, the last known placement group is used.
    tokio::time::advance(Duration::from_secs(60)).await;
    scene.cloud.fail_always(Call::DescribePlacementGroups, Some(AwsError::new("InternalError", "later")));
    assert_eq!(available(&scene.one(&class, "m5.large").await), ALL);
    let selector = class.spec.placement_group_selector.clone().expect("selected");
    assert!(scene.types.placement_groups().find(&selector).await.is_err(), "the class reports the failure");
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    assert!(available(&scene.one(&class, "m5.large").await).is_empty(), "but not for ever");

    // If a placement group is deleted, the provider knows it within a minute.
    scene.cloud.fail_always(Call::DescribePlacementGroups, None);
    assert_eq!(available(&scene.one(&class, "m5.large").await), ALL);
    scene
        .cloud
        .world(|world| world.placement_groups.get_mut("pg-1").expect("there").state = "deleted".to_owned());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(available(&scene.one(&class, "m5.large").await).is_empty());
    scene.cloud.fail_next(Call::DescribePlacementGroups, [AwsError::new("InternalError", "later")]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(available(&scene.one(&class, "m5.large").await).is_empty(), "what is gone is not remembered");
}

#[tokio::test(start_paused = true)]
async fn placement_group_with_unknown_strategy_prevents_launches() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| world.placement_groups.insert("pg-1".to_owned(), group("huddle", 0)));
    assert!(available(&scene.one(&grouped_class(), "m5.large").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn zone_is_unavailable_only_if_all_subnets_lack_addresses() {
    let scene = Scene::discovered().await;
    let mut class = class();
    let status = class.status.as_mut().expect("a status");
    status.subnets.push(SubnetStatus { id: "subnet-a2".to_owned(), ..status.subnets[0].clone() });
    scene.types.unavailable().mark_subnet("subnet-a");
    assert_eq!(available(&scene.one(&class, "m5.large").await), ALL);
    scene.types.unavailable().mark_subnet("subnet-a2");
    assert_eq!(available(&scene.one(&class, "m5.large").await), ["b on-demand", "b spot"]);
}

#[tokio::test(start_paused = true)]
async fn zonal_shift_expires() {
    let scene = Scene::discovered().await;
    scene.shifts.replace(&[Shift {
        away_from_zone_id: "use1-az1".to_owned(),
        is_applied: true,
        started_at: None,
        expires_at: scene.clock.now().checked_add(Duration::from_secs(600)).ok(),
    }]);
    assert_eq!(available(&scene.one(&class(), "m5.large").await), ["a on-demand", "a spot"]);
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(available(&scene.one(&class(), "m5.large").await), ALL);
}

#[tokio::test(start_paused = true)]
async fn prices_come_from_price_list_and_spot_history() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| {
        world.on_demand_prices.insert("m5.large".to_owned(), 0.2);
        world.on_demand_prices.insert("m5.metal".to_owned(), 9.0);
        world.spot_prices.remove(&("m5.large".to_owned(), "us-east-1b".to_owned()));
        world.spot_prices.insert(("m5.large".to_owned(), "us-east-1a".to_owned()), 0.05);
    });
    let apis = scene.cloud.apis();
    let controller = |region: &str, is_isolated: bool| {
        let book = scene.types.prices().clone();
        PricingController::new(apis.ec2.clone(), apis.pricing.clone(), scene.clock, region, is_isolated, book)
    };
    let price = |instance_type: InstanceType, capacity_type: &'static str, zone: &'static str| {
        let is_meant = |offering: &&karpenter_model::instance_type::Offering| {
            offering.zone().is_some_and(|one| &**one == zone)
                && offering.capacity_type().is_some_and(|one| &**one == capacity_type)
        };
        instance_type
            .offerings
            .iter()
            .find(is_meant)
            .map(|offering| (offering.instance_price(), offering.available))
    };
    let m5 = || async { scene.one(&class(), "m5.large").await };
    assert_eq!(price(m5().await, "spot", "us-east-1b"), Some((0.096, true)), "until something is known");

    let controller_here = controller("us-east-1", false);
    assert!(controller_here.update_spot().await && controller_here.update_on_demand().await);
    assert_eq!(price(m5().await, "on-demand", "us-east-1a"), Some((0.2, true)));
    assert_eq!(price(m5().await, "spot", "us-east-1a"), Some((0.05, true)));
    assert_eq!(price(m5().await, "spot", "us-east-1b"), Some((0.0, false)));
    assert_eq!(price(scene.one(&class(), "m5.metal").await, "on-demand", "us-east-1a"), Some((9.0, true)));

    // After a failed update the known prices are used, and the update is retried soon.
    scene.cloud.fail_always(Call::GetProducts, Some(AwsError::new("InternalError", "later")));
    scene.cloud.fail_always(Call::DescribeSpotPriceHistory, Some(AwsError::new("InternalError", "later")));
    assert!(!controller_here.update_spot().await && !controller_here.update_on_demand().await);
    assert_eq!(price(m5().await, "spot", "us-east-1a"), Some((0.05, true)));

    // If the Price List does not have the region, no call is made.
    scene.cloud.forget_calls();
    assert!(controller("us-gov-west-1", false).update_on_demand().await);
    assert!(controller("us-east-1", true).update_on_demand().await);
    assert_eq!(scene.cloud.count(Call::GetProducts), 0);
}

#[tokio::test(start_paused = true)]
async fn node_price_follows_volume_prices_and_public_subnets() {
    let scene = Scene::discovered().await;
    let attached = |instance_type: InstanceType| -> BTreeMap<String, f64> {
        let offerings = instance_type.offerings.iter();
        offerings
            .filter_map(|one| {
                Some((one.zone()?.to_string(), (one.attached_price() * 730.0 * 1e6).round() / 1e6))
            })
            .collect()
    };
    let m5 = || async { attached(scene.one(&class(), "m5.large").await) };
    let expected =
        |a: f64, b: f64| BTreeMap::from([("us-east-1a".to_owned(), a), ("us-east-1b".to_owned(), b)]);
    assert_eq!(m5().await, expected(1.6, 1.6), "20 GiB of gp3 at the embedded price");

    scene.cloud.world(|world| world.volume_prices.insert("EBS:VolumeUsage.gp3".to_owned(), 0.1));
    let apis = scene.cloud.apis();
    let book = scene.types.prices().clone();
    let controller =
        PricingController::new(apis.ec2.clone(), apis.pricing, scene.clock, "us-east-1", false, book);
    assert!(controller.update_volumes().await);
    assert_eq!(m5().await, expected(2.0, 2.0));

    scene.cloud.fail_always(Call::GetProducts, Some(AwsError::new("InternalError", "later")));
    assert!(!controller.update_volumes().await);
    assert_eq!(m5().await, expected(2.0, 2.0), "failures keep the known prices");

    // In one zone, the subnets give instances public addresses.
    scene.cloud.world(|world| {
        world.subnets.get_mut("subnet-b").expect("known").maps_public_ip_on_launch = true;
    });
    let subnets = crate::subnets::Subnets::new(apis.ec2, scene.clock, std::time::Duration::from_secs(60))
        .recording(scene.types.public_subnets().clone());
    let mut selecting = class();
    selecting.spec.subnet_selector_terms = ["subnet-a", "subnet-b"]
        .map(|id| karpenter_api::types::SubnetSelectorTerm { id: Some(id.to_owned()), ..Default::default() })
        .into();
    assert_eq!(subnets.list(&selecting).await.expect("subnets").len(), 2);
    assert_eq!(m5().await, expected(2.0, 2.0 + 0.005 * 730.0));

    // If the node class states whether nodes get a public address, this overrides the setting of the subnets.
    let mut private = class();
    private.spec.associate_public_ip_address = Some(false);
    assert_eq!(attached(scene.one(&private, "m5.large").await), expected(2.0, 2.0));
    let mut public = class();
    public.spec.associate_public_ip_address = Some(true);
    assert_eq!(attached(scene.one(&public, "m5.large").await), expected(5.65, 5.65));

    // The zone has a second subnet that gives no public addresses, and a launch may use either.
    let mut mixed = class();
    let listed = &mut mixed.status.as_mut().expect("a status").subnets;
    listed.push(SubnetStatus { id: "subnet-b2".to_owned(), ..listed[1].clone() });
    assert_eq!(attached(scene.one(&mixed, "m5.large").await), expected(2.0, 2.0));
}

#[tokio::test(start_paused = true)]
async fn empty_spot_history_is_a_failure() {
    let scene = Scene::discovered().await;
    scene.cloud.world(|world| world.spot_prices.clear());
    let apis = scene.cloud.apis();
    let book = scene.types.prices().clone();
    let controller = PricingController::new(apis.ec2, apis.pricing, scene.clock, "us-east-1", false, book);
    assert!(!controller.update_spot().await);
    assert_eq!(available(&scene.one(&class(), "m5.large").await), ALL);
}

#[tokio::test(start_paused = true)]
async fn overlay_price_makes_type_without_price_available() {
    let scene = Scene::new();
    scene.cloud.world(|world| {
        let mut info = world.types[0].clone();
        info.name = "x99.large".into();
        info.usage_classes = vec!["on-demand".into()];
        world.types.push(info);
        let zone = "us-east-1a".to_owned();
        world.offerings.push(crate::api::ec2::TypeOffering { instance_type: "x99.large".to_owned(), zone });
    });
    scene.types.discover().await.expect("an answer");
    let mut class = class();
    class.spec.ami_family = Some("AL2".to_owned());
    assert!(available(&scene.one(&class, "x99.large").await).is_empty());
    scene.types.set_stated_prices(BTreeMap::from([("x99.large".to_owned(), 0.7)]));
    assert_eq!(available(&scene.one(&class, "x99.large").await), ["a on-demand"]);
}

#[tokio::test(start_paused = true)]
async fn order_of_subnets_changes_nothing() {
    let scene = Scene::discovered().await;
    let mut class = class();
    let subnets = &mut class.status.as_mut().expect("a status").subnets;
    subnets.push(SubnetStatus { id: "subnet-a2".to_owned(), ..subnets[0].clone() });
    let first = scene.list(&class).await;
    // The status sorts subnets by free addresses, so their order may change with every launch.
    class.status.as_mut().expect("a status").subnets.reverse();
    assert!(Arc::ptr_eq(&first, &scene.list(&class).await));
}
