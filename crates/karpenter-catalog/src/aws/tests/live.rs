//! Tests of the catalog functions with live data, as the AWS provider has it: prices, insufficient capacity,
//! reservations, placement groups and memory.

use std::collections::BTreeSet;

use karpenter_model::instance_type::Offering;

use super::*;

/// A [`Market`] whose data is in plain maps.
#[derive(Default, Clone)]
struct LiveMarket {
    offered: BTreeSet<(String, String)>,
    on_demand: BTreeMap<String, f64>,
    spot: BTreeMap<(String, String), f64>,
    configured: BTreeMap<String, f64>,
    /// Pools with insufficient capacity: type, zone, capacity type and partition; `None` stands for all partitions.
    short: Vec<(&'static str, &'static str, &'static str, Option<u32>)>,
    shifted: BTreeSet<&'static str>,
    left: BTreeMap<&'static str, u32>,
    memory: BTreeMap<String, i64>,
}

impl Market for LiveMarket {
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool {
        self.offered.contains(&(instance_type.to_owned(), zone.to_owned()))
    }
    fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        self.on_demand.get(instance_type).copied()
    }
    fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.spot.get(&(instance_type.to_owned(), zone.to_owned())).copied()
    }
    fn configured_price(&self, instance_type: &str) -> Option<f64> {
        self.configured.get(instance_type).copied()
    }
    fn has_insufficient_capacity(&self, pool: CapacityPool<'_>) -> bool {
        self.short.iter().any(|(instance_type, zone, capacity_type, partition)| {
            (*instance_type, *zone, *capacity_type) == (pool.instance_type, pool.zone, pool.capacity_type)
                && partition.is_none_or(|number| Some(number) == pool.partition)
        })
    }
    fn is_shifted(&self, zone: &AwsZone) -> bool {
        zone.id.as_deref().is_some_and(|id| self.shifted.contains(id))
    }
    fn reservation_left(&self, reservation_id: &str) -> u32 {
        self.left.get(reservation_id).copied().unwrap_or(0)
    }
    fn discovered_memory_bytes(&self, instance_type: &str) -> Option<i64> {
        self.memory.get(instance_type).copied()
    }
}

fn zones() -> Vec<AwsZone> {
    [("us-east-1a", "use1-az6"), ("us-east-1b", "use1-az1")]
        .map(|(name, id)| AwsZone { name: name.to_owned(), id: Some(id.to_owned()) })
        .into()
}

/// A market with m5.large in two zones: 0.1 an hour on-demand, and 0.03 and 0.04 as spot.
fn live_market() -> LiveMarket {
    let pair = |name: &str, zone: &str| (name.to_owned(), zone.to_owned());
    let mut live_market = LiveMarket::default();
    live_market.on_demand.insert("m5.large".to_owned(), 0.1);
    for (zone, price) in [("us-east-1a", 0.03), ("us-east-1b", 0.04)] {
        live_market.offered.insert(pair("m5.large", zone));
        live_market.spot.insert(pair("m5.large", zone), price);
    }
    live_market
}

fn class() -> AwsNodeClass {
    AwsNodeClass { zones: zones(), ..AwsNodeClass::default() }
}

fn m5() -> &'static TypeInfo {
    catalog().find("m5.large").expect("known")
}

/// One line per offering: zone letter, capacity type, partition, reservation, price and availability.
fn formatted(offerings: &[Offering]) -> Vec<String> {
    let single = |offering: &Offering, key: &str| -> String {
        let requirement = offering.requirements.get(key);
        requirement.and_then(|one| one.single_value()).map_or(String::new(), |value| format!(" {value}"))
    };
    let line = |offering: &Offering| {
        let zone = offering.zone().map_or("?", |zone| zone.trim_start_matches("us-east-1"));
        let left = offering.reservation_capacity.map_or(String::new(), |left| format!(" left {left}"));
        format!(
            "{zone}{}{}{} {}{left}{}",
            single(offering, core::CAPACITY_TYPE),
            single(offering, labels::PLACEMENT_GROUP_PARTITION),
            single(offering, labels::CAPACITY_RESERVATION_ID),
            offering.price_per_hour,
            if offering.available { "" } else { " no" },
        )
    };
    offerings.iter().map(line).collect()
}

#[track_caller]
fn check(class: &AwsNodeClass, market: &LiveMarket, expected: &[&str]) {
    let resolved = resolve(m5(), class, market);
    assert_eq!(formatted(&resolved.offerings), expected);
    assert_eq!(Resolver::new(class).offerings(m5(), market), resolved.offerings);
}

#[test]
fn live_data_gives_the_result_of_the_embedded_catalog() {
    let catalog = catalog();
    let classes: [fn(&mut AwsNodeClass); 6] = [
        |_| {},
        |class| class.ami_family = AmiFamily::Bottlerocket,
        |class| class.ami_family = AmiFamily::Windows2022,
        |class| {
            class.instance_store_raid0 = true;
            class.max_pods = Some(60);
            class.reserved_enis = 1;
        },
        |class| {
            class.region = "eu-west-1".to_owned();
            class.zones = super::catalog().zones("eu-west-1").to_vec();
        },
        |class| {
            class.network_interfaces =
                Some(vec![NetworkInterface { network_card_index: 0, device_index: 1, efa_only: true }]);
        },
    ];
    for change in classes {
        let mut class = AwsNodeClass::default();
        change(&mut class);
        let mut market = LiveMarket::default();
        for info in catalog.types() {
            let name = info.name.to_string();
            for zone in &class.zones {
                if catalog.is_offered(&class.region, &zone.name, &name) {
                    market.offered.insert((name.clone(), zone.name.clone()));
                }
                if let Some(price) = catalog.on_demand_price(&class.region, &name) {
                    let key = (name.clone(), zone.name.clone());
                    market.spot.insert(key, price * class.spot_price_factor);
                    market.on_demand.insert(name.clone(), price);
                }
            }
        }
        // Clears the properties that EC2's API does not return; `complete` must set them from the embedded tables.
        let live = catalog.types().iter().map(|info| {
            let mut live = TypeInfo { vpc_limits: None, network_bandwidth_mbps: None, ..info.clone() };
            catalog.complete(&mut live);
            live
        });
        let mut builder = TypeLabelBuilder::default();
        let mut resolver = Resolver::new(&class);
        let live: Vec<InstanceType> = live
            .map(|info| {
                let labels = builder.make(&info);
                resolver.resolve_labelled(&info, &labels, &market)
            })
            .collect();
        let embedded = catalog.resolve(&class);
        assert_eq!(live.len(), embedded.len());
        for (live, embedded) in live.iter().zip(&embedded) {
            assert_eq!(live, embedded);
        }
    }
}

#[test]
fn spot_prices_are_zonal() {
    let all = ["a on-demand 0.1", "a spot 0.03", "b on-demand 0.1", "b spot 0.04"];
    check(&class(), &live_market(), &all);
}

#[test]
fn offering_without_price_is_unavailable() {
    let mut market = live_market();
    market.spot.remove(&("m5.large".to_owned(), "us-east-1b".to_owned()));
    check(&class(), &market, &["a on-demand 0.1", "a spot 0.03", "b on-demand 0.1", "b spot 0 no"]);
    market.on_demand.clear();
    check(&class(), &market, &["a on-demand 0 no", "a spot 0.03", "b on-demand 0 no", "b spot 0 no"]);
    market.configured.insert("m5.large".to_owned(), 0.07);
    check(&class(), &market, &["a on-demand 0.07", "a spot 0.03", "b on-demand 0.07", "b spot 0.07"]);
}

#[test]
fn configured_price_does_not_replace_a_known_price() {
    let mut market = live_market();
    market.configured.insert("m5.large".to_owned(), 0.07);
    check(&class(), &market, &["a on-demand 0.1", "a spot 0.03", "b on-demand 0.1", "b spot 0.04"]);
}

#[test]
fn insufficient_capacity_affects_one_pool() {
    let mut market = live_market();
    market.short = vec![("m5.large", "us-east-1a", "spot", None), ("m5.xlarge", "us-east-1b", "spot", None)];
    check(&class(), &market, &["a on-demand 0.1", "a spot 0.03 no", "b on-demand 0.1", "b spot 0.04"]);
}

#[test]
fn zone_with_zonal_shift_is_unavailable() {
    let mut market = live_market();
    market.shifted.insert("use1-az1");
    check(&class(), &market, &["a on-demand 0.1", "a spot 0.03", "b on-demand 0.1 no", "b spot 0.04 no"]);
}

#[test]
fn only_listed_usage_classes_are_offered() {
    let mut info = m5().clone();
    info.usage_classes = vec!["spot".into(), "capacity-block".into()];
    let resolved = resolve(&info, &class(), &live_market());
    assert_eq!(formatted(&resolved.offerings), ["a spot 0.03", "b spot 0.04"]);
    assert_eq!(label(&resolved, core::CAPACITY_TYPE).as_deref(), Some("spot"));
}

fn reservation(id: &str, zone: &str) -> CapacityReservation {
    CapacityReservation {
        id: id.into(),
        instance_type: "m5.large".into(),
        zone: zone.into(),
        kind: ReservationKind::Default,
        interruptible: false,
        expiring: false,
    }
}

const BASE: [&str; 4] = ["a on-demand 0.1", "a spot 0.03", "b on-demand 0.1", "b spot 0.04"];

#[test]
fn reserved_offerings_have_a_price_near_zero() {
    let mut class = class();
    class.capacity_reservations = vec![
        reservation("cr-full", "us-east-1a"),
        reservation("cr-open", "us-east-1b"),
        CapacityReservation { expiring: true, ..reservation("cr-ends", "us-east-1a") },
        reservation("cr-elsewhere", "us-east-1c"),
        CapacityReservation { instance_type: "m5.xlarge".into(), ..reservation("cr-other", "us-east-1a") },
    ];
    let mut market = live_market();
    market.left = BTreeMap::from([("cr-open", 3), ("cr-ends", 5), ("cr-elsewhere", 2), ("cr-other", 9)]);
    let reserved = [
        "a reserved cr-full 0.00000001 left 0 no",
        "b reserved cr-open 0.00000001 left 3",
        "a reserved cr-ends 0.00000001 left 5 no",
        "c reserved cr-elsewhere 0.00000001 left 2 no",
    ];
    let with = |reserved: &[&'static str]| [&BASE[..], reserved].concat();
    check(&class, &market, &with(&reserved));

    market.shifted.insert("use1-az1");
    let shifted = resolve(m5(), &class, &market);
    assert!(shifted.offerings.iter().filter(|one| one.is_reserved()).all(|one| !one.available));

    // Reserved capacity is already paid for, so its offering is available even without a price.
    market = LiveMarket { left: market.left, offered: live_market().offered, ..LiveMarket::default() };
    let unpriced = resolve(m5(), &class, &market);
    let formatted = formatted(&unpriced.offerings);
    assert!(formatted.contains(&"b reserved cr-open 0 left 3".to_owned()), "{formatted:?}");
}

#[test]
fn reservations_affect_labels_of_their_type_only() {
    let mut class = class();
    class.capacity_reservations = vec![
        reservation("cr-2", "us-east-1a"),
        CapacityReservation {
            kind: ReservationKind::CapacityBlock,
            interruptible: true,
            ..reservation("cr-1", "us-east-1b")
        },
    ];
    let values = |resolved: &InstanceType, key: &str| -> Vec<String> {
        resolved.requirements.get(key).expect(key).values.iter().map(|value| value.to_string()).collect()
    };
    let m5 = resolve(m5(), &class, &live_market());
    assert_eq!(values(&m5, labels::CAPACITY_RESERVATION_ID), ["cr-1", "cr-2"]);
    assert_eq!(values(&m5, labels::CAPACITY_RESERVATION_TYPE), ["capacity-block", "default"]);
    assert_eq!(values(&m5, labels::CAPACITY_RESERVATION_INTERRUPTIBLE), ["false", "true"]);
    assert_eq!(values(&m5, core::CAPACITY_TYPE), ["on-demand", "reserved", "spot"]);
    let m6 = resolve(catalog().find("m6i.large").expect("known"), &class, &live_market());
    for key in labels::RESERVATION {
        assert!(values(&m6, key).is_empty(), "{key}");
    }
    assert_eq!(values(&m6, core::CAPACITY_TYPE), ["on-demand", "spot"]);
}

#[test]
fn reserved_offerings_have_all_reservation_labels() {
    let mut class = class();
    class.capacity_reservations =
        vec![CapacityReservation { interruptible: true, ..reservation("cr-1", "us-east-1b") }];
    let resolved = resolve(m5(), &class, &live_market());
    let reserved = resolved.offerings.iter().find(|one| one.is_reserved()).expect("listed");
    let expected = [
        (labels::CAPACITY_RESERVATION_ID, "cr-1"),
        (labels::CAPACITY_RESERVATION_TYPE, "default"),
        (labels::CAPACITY_RESERVATION_INTERRUPTIBLE, "true"),
        (labels::ZONE_ID, "use1-az1"),
        (core::ZONE, "us-east-1b"),
    ];
    for (key, value) in expected {
        let configured = reserved.requirements.get(key).and_then(|one| one.single_value());
        assert_eq!(configured.map(|configured| &**configured), Some(value), "{key}");
    }
}

fn group(strategy: PlacementStrategy, partition_count: u32) -> PlacementGroup {
    PlacementGroup { id: "pg-1".into(), name: "near".into(), strategy, partition_count }
}

#[test]
fn partitions_multiply_offerings() {
    let mut class = class();
    class.zones.truncate(1);
    class.placement_group = Some(group(PlacementStrategy::Partition, 2));
    class.capacity_reservations = vec![reservation("cr-1", "us-east-1a")];
    let mut market = live_market();
    market.left.insert("cr-1", 1);
    market.short = vec![("m5.large", "us-east-1a", "on-demand", Some(2))];
    let expected = [
        "a on-demand 1 0.1",
        "a on-demand 2 0.1 no",
        "a spot 1 0.03",
        "a spot 2 0.03",
        "a reserved 1 cr-1 0.00000001 left 1",
        "a reserved 2 cr-1 0.00000001 left 1",
    ];
    check(&class, &market, &expected);
    let resolved = resolve(m5(), &class, &market);
    assert_eq!(label(&resolved, labels::PLACEMENT_GROUP_ID).as_deref(), Some("pg-1"));
    let partitions =
        &resolved.requirements.get(labels::PLACEMENT_GROUP_PARTITION).expect("configured").values;
    assert_eq!(partitions.iter().map(|number| &**number).collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn group_without_partitions_adds_its_id_only() {
    for (strategy, count) in
        [(PlacementStrategy::Cluster, 7), (PlacementStrategy::Spread, 0), (PlacementStrategy::Partition, 0)]
    {
        let class = AwsNodeClass { placement_group: Some(group(strategy, count)), ..class() };
        check(&class, &live_market(), &BASE);
        let resolved = resolve(m5(), &class, &live_market());
        assert_eq!(label(&resolved, labels::PLACEMENT_GROUP_ID).as_deref(), Some("pg-1"));
        assert!(!resolved.requirements.has_key(labels::PLACEMENT_GROUP_PARTITION));
    }
    assert!(!resolve(m5(), &class(), &live_market()).requirements.has_key(labels::PLACEMENT_GROUP_ID));
}

#[test]
fn placement_strategy_excludes_types() {
    // Cluster placement groups do not support burstable types.
    let t3 = catalog().find("t3.large").expect("known");
    let with = |strategy| AwsNodeClass { placement_group: Some(group(strategy, 2)), ..class() };
    assert_eq!(
        incompatibility(t3, &with(PlacementStrategy::Cluster)),
        Some(Incompatibility::PlacementStrategy)
    );
    assert_eq!(incompatibility(t3, &with(PlacementStrategy::Spread)), None);
    assert_eq!(incompatibility(m5(), &with(PlacementStrategy::Cluster)), None);
}

#[test]
fn discovered_memory_replaces_computed_memory() {
    let mut market = live_market();
    market.memory.insert("m5.large".to_owned(), 7_900_000_000);
    let mut class = class();
    class.eviction_hard = BTreeMap::from([("memory.available".to_owned(), EvictionThreshold::Percent(10.0))]);
    let (seen, computed) = (resolve(m5(), &class, &market), resolve(m5(), &class, &live_market()));
    assert_eq!(seen.capacity.get(MEMORY), 7_900_000_000);
    assert_eq!(computed.capacity.get(MEMORY), 7577 * MIB);
    // In both cases, the eviction threshold is a share of the computed memory, not of the discovered memory.
    assert_eq!(seen.overhead, computed.overhead);
}

#[test]
fn kubelet_settings_may_differ_per_type() {
    let class = class();
    let own = AwsNodeClass {
        max_pods: Some(17),
        kube_reserved: BTreeMap::from([("cpu".to_owned(), quantity("500m"))]),
        ..class.clone()
    };
    let labels = TypeLabelBuilder::default().make(m5());
    let mut resolver = Resolver::new(&class);
    let resolved = resolver.resolve_as(&own, m5(), &labels, &live_market());
    assert_eq!(resolved, resolve(m5(), &own, &live_market()));
    assert_eq!((resolved.capacity.get(PODS), resolved.overhead.get(CPU)), (17, 500));
    assert_eq!(resolver.resolve_labelled(m5(), &labels, &live_market()).capacity.get(PODS), 29);
    assert_eq!((family_max_pods(m5(), &own), pods(m5(), &own)), (29, 17));
}

#[test]
fn tables_complete_what_ec2_does_not_return() {
    let complete = |name: &str| {
        let card = NetworkCard { interfaces_max: 4, baseline_mbps: 1500, peak_mbps: 9000, efa: false };
        let mut info = TypeInfo { name: name.into(), network_cards: vec![card, card], ..TypeInfo::default() };
        catalog().complete(&mut info);
        (info.network_bandwidth_mbps, info.vpc_limits.map(|limits| limits.branch_interfaces))
    };
    // The types are, in this order: in the listing; in the supplements; newer than both; in the listing, with a
    // bandwidth that is documented only as a word.
    assert_eq!(complete("m5.large"), (Some(750), Some(9)));
    assert_eq!(complete("g4ad.xlarge"), (Some(2000), Some(12)));
    assert_eq!(complete("m99.large"), (Some(3000), None));
    // The first type is newer than the VPC limits in the provider's last release; the second is newer than the
    // bandwidths there as well.
    assert_eq!(complete("c9g.large"), (Some(1000), Some(9)));
    assert_eq!(complete("r9gd.large"), (None, Some(9)));
    assert!(catalog().knows("m5.large") && catalog().knows("g4ad.xlarge") && catalog().knows("r9gd.large"));
    assert!(!catalog().knows("m99.large"));
    assert_eq!(complete("m4.large").0, None);
}

#[test]
fn price_table_includes_types_outside_the_listing() {
    assert_eq!(catalog().on_demand_price("us-east-1", "g4ad.xlarge"), Some(0.37853));
    assert_eq!(catalog().on_demand_price("us-gov-west-1", "p3.2xlarge"), Some(3.672));
    assert_eq!(catalog().on_demand_price("us-gov-west-1", "g4ad.xlarge"), None);
    let all = catalog().on_demand_prices("eu-west-1");
    assert!(all.is_sorted_by(|earlier, later| earlier.0 < later.0));
    assert_eq!(all.len(), 1361, "the number of prices in the source");
    assert_eq!(
        catalog().on_demand_prices("us-gov-east-1").len() + catalog().on_demand_prices("us-gov-west-1").len(),
        1227
    );
    assert_eq!(catalog().on_demand_prices("cn-north-1").len(), 316);
}

#[test]
fn default_type_info_is_empty() {
    let info = TypeInfo { name: "odd".into(), ..TypeInfo::default() };
    let resolved = resolve(&info, &class(), &live_market());
    assert!(resolved.offerings.is_empty());
    assert_eq!((resolved.capacity.get(PODS), resolved.capacity.get(CPU)), (0, 0));
    assert_eq!(label(&resolved, labels::INSTANCE_FAMILY), None);
    assert_eq!(label(&resolved, labels::INSTANCE_SIZE), None);
}
