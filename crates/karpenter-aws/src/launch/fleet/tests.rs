use std::sync::Arc;

use karpenter_api::types::SubnetStatus;
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::requirements::Requirement;
use karpenter_model::resources::ResourceList;
use karpenter_runtime::clock::Clock;

use super::*;
use crate::fake::FakeAws;
use crate::subnets::Subnets;

fn offering(zone: &str, price: f64, partition: Option<&str>) -> Offering {
    let mut requirements = vec![
        Requirement::in_values(labels::ZONE, [zone]),
        Requirement::in_values(labels::CAPACITY_TYPE, ["on-demand"]),
    ];
    requirements.extend(
        partition.map(|number| Requirement::in_values(labels::AWS_PLACEMENT_GROUP_PARTITION, [number])),
    );
    Offering {
        requirements: requirements.into_iter().collect(),
        price_per_hour: price,
        available: true,
        ..Offering::default()
    }
}

fn instance_type(name: &str, offerings: Vec<Offering>) -> InstanceType {
    InstanceType {
        name: name.into(),
        requirements: Default::default(),
        offerings,
        capacity: ResourceList::new(),
        overhead: ResourceList::new(),
        volume_attachment_limits: Default::default(),
    }
}

fn template<'a>(name: &str, types: &'a [InstanceType]) -> ReadyTemplate<'a> {
    let candidates = types.iter().map(|instance_type| Candidate {
        instance_type,
        offerings: instance_type.offerings.iter().collect(),
    });
    ReadyTemplate { name: name.to_owned(), image_id: "ami-1".to_owned(), candidates: candidates.collect() }
}

/// One subnet in zone a and one in zone b.
fn subnets() -> BTreeMap<String, LaunchSubnet> {
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let subnet =
        |zone: &str| SubnetStatus { id: format!("subnet-{zone}"), zone: zone.to_owned(), zone_id: None };
    let cloud = FakeAws::new(clock, "us-west-2");
    Subnets::new(Arc::clone(&cloud) as _, clock, std::time::Duration::from_secs(60))
        .choose(&[subnet("a"), subnet("b")], |_| 0)
}

fn terms<'a>(capacity_type: &'a str, tags: &'a Tags) -> FleetTerms<'a> {
    FleetTerms { capacity_type, reservation: None, has_price_overlay: false, context: None, tags }
}

#[tokio::test]
async fn overrides_are_instance_types_times_zones_with_subnet() {
    let types = [
        instance_type(
            "m5.large",
            vec![offering("a", 0.1, None), offering("b", 0.1, None), offering("c", 0.1, None)],
        ),
        instance_type("m5.xlarge", vec![offering("b", 0.2, None)]),
    ];
    let tags = Tags::from([("team".to_owned(), "a".to_owned())]);
    let request = fleet(&[template("lt", &types)], &subnets(), &terms("on-demand", &tags)).expect("offers");
    let config = &request.launch_template_configs[0];
    assert_eq!(config.launch_template_name, "lt");
    let shown: Vec<String> = config
        .overrides
        .iter()
        .map(|offer| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (subnet, zone, image) = (text(&offer.subnet_id), text(&offer.zone), text(&offer.image_id));
            format!("{} {subnet} {zone} {image} {}", offer.instance_type, offer.priority.unwrap_or_default())
        })
        .collect();
    let expected =
        ["m5.large subnet-a a ami-1 0.1", "m5.large subnet-b b ami-1 0.1", "m5.xlarge subnet-b b ami-1 0.2"];
    assert_eq!(shown, expected);
    let tagged: Vec<&str> =
        request.tag_specifications.iter().map(|tags| tags.resource_type.as_str()).collect();
    assert_eq!(tagged, ["instance", "volume", "fleet"]);
    assert_eq!(request.total_target_capacity, 1);
}

#[tokio::test]
async fn partitions_share_one_override() {
    let offerings =
        vec![offering("a", 0.1, Some("1")), offering("a", 0.1, Some("2")), offering("b", 0.1, Some("1"))];
    let types = [instance_type("m5.large", offerings)];
    let request =
        fleet(&[template("lt", &types)], &subnets(), &terms("on-demand", &Tags::new())).expect("offers");
    assert_eq!(request.launch_template_configs[0].overrides.len(), 2);
}

#[tokio::test]
async fn templates_without_override_are_omitted() {
    let (with, without) = (
        [instance_type("m5.large", vec![offering("a", 0.1, None)])],
        [instance_type("m5.xlarge", vec![offering("z", 0.1, None)])],
    );
    let templates = [template("without", &without), template("with", &with)];
    let request = fleet(&templates, &subnets(), &terms("on-demand", &Tags::new())).expect("offers");
    assert_eq!(request.launch_template_configs.len(), 1);
    assert_eq!(fleet(&templates[..1], &subnets(), &terms("on-demand", &Tags::new())), None);
}

#[tokio::test]
async fn capacity_type_determines_allocation_strategy() {
    use OnDemandAllocationStrategy::{LowestPrice, Prioritized};
    use SpotAllocationStrategy::{CapacityOptimizedPrioritized, PriceCapacityOptimized};
    let types = [instance_type("m5.large", vec![offering("a", 0.1, None)])];
    let held = |kind: &str, is_interruptible| Reservation {
        id: "cr-1".to_owned(),
        reservation_type: kind.to_owned(),
        is_interruptible,
    };
    let (ordinary, block, interruptible) =
        (held("default", false), held("capacity-block", false), held("default", true));
    let table = [
        ("on-demand", None, false, TargetCapacityType::OnDemand, None, Some(LowestPrice), 0),
        ("on-demand", None, true, TargetCapacityType::OnDemand, None, Some(Prioritized), 0),
        ("spot", None, false, TargetCapacityType::Spot, Some(PriceCapacityOptimized), None, 0),
        ("spot", None, true, TargetCapacityType::Spot, Some(CapacityOptimizedPrioritized), None, 0),
        ("reserved", Some(&ordinary), false, TargetCapacityType::OnDemand, None, Some(LowestPrice), 0),
        ("reserved", Some(&block), false, TargetCapacityType::CapacityBlock, None, None, 0),
        ("reserved", Some(&interruptible), false, TargetCapacityType::ReservedCapacity, None, None, 1),
    ];
    let tags = Tags::new();
    for (capacity_type, reservation, has_price_overlay, target, spot, on_demand, reservation_types) in table {
        let case = format!("{capacity_type} {reservation:?} {has_price_overlay}");
        let terms = FleetTerms {
            reservation,
            has_price_overlay,
            context: Some("ctx"),
            ..terms(capacity_type, &tags)
        };
        let request = fleet(&[template("lt", &types)], &subnets(), &terms).expect("offers");
        assert_eq!(request.target, target, "{case}");
        assert_eq!(request.spot_allocation_strategy, spot, "{case}");
        assert_eq!(request.on_demand_allocation_strategy, on_demand, "{case}");
        assert_eq!(request.reservation_types.len(), reservation_types, "{case}");
        assert_eq!(request.context.as_deref(), Some("ctx"));
    }
}

fn answer(machines: &[&[&str]], errors: &[&str]) -> FleetAnswer {
    let instances = machines.iter().map(|ids| FleetInstances {
        instance_ids: ids.iter().map(ToString::to_string).collect(),
        ..FleetInstances::default()
    });
    let errors = errors.iter().map(|code| FleetError {
        error: AwsError::new(*code, ""),
        launch_template_name: None,
        tried: FleetOverride::default(),
        lifecycle: None,
    });
    FleetAnswer { fleet_id: "fleet-1".to_owned(), instances: instances.collect(), errors: errors.collect() }
}

#[test]
fn each_caller_gets_one_instance_or_the_errors() {
    let table: [(&str, FleetAnswer, usize, &[&str], &str); 6] = [
        ("one each", answer(&[&["1", "2"], &["3"]], &[]), 3, &["1", "2", "3"], ""),
        (
            "too few",
            answer(&[&["1"]], &["InsufficientInstanceCapacity"]),
            3,
            &["1", "", ""],
            "InsufficientInstanceCapacity",
        ),
        (
            "none",
            answer(&[], &["InsufficientInstanceCapacity"]),
            2,
            &["", ""],
            "InsufficientInstanceCapacity",
        ),
        ("too few and no word", answer(&[&["1"]], &[]), 2, &["1", ""], "too few instances returned"),
        ("nothing at all", answer(&[], &[]), 1, &[""], "too few instances returned"),
        ("too many", answer(&[&["1", "2"]], &[]), 1, &["1"], ""),
    ];
    for (case, given, count, expected, error) in table {
        let shared = share(given, count);
        let ids: Vec<&str> = shared
            .iter()
            .map(|answer| answer.instances.first().map_or("", |machine| machine.instance_ids[0].as_str()))
            .collect();
        assert_eq!(ids, expected, "{case}");
        for answer in &shared {
            let code = answer.errors.first().map_or("", |failed| failed.error.code.as_str());
            assert_eq!(code, error, "{case}: each caller gets all errors");
        }
    }
}
