//! Measures how long resolving instance types takes, for all types in six zones with three capacity types.
//!
//! `cargo run --release -p karpenter-aws --features fake --example type_resolution`

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use karpenter_api::types::{CapacityReservationStatus, EC2NodeClass, EC2NodeClassStatus, SubnetStatus};
use karpenter_aws::fake::FakeAws;
use karpenter_aws::placement_groups::PlacementGroups;
use karpenter_aws::pricing::PriceBook;
use karpenter_aws::reservations::Reservations;
use karpenter_aws::types::{InstanceTypes, TypeOptions, TypeSources};
use karpenter_aws::unavailable::{Scope, Unavailable, UnavailableOffering};
use karpenter_aws::zonal_shift::ZonalShifts;
use karpenter_catalog::aws::catalog;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;

const REGION: &str = "us-east-1";
const ROUNDS: u32 = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let cloud = FakeAws::new(clock, REGION);
    let ec2 = cloud.apis().ec2;
    let sources = TypeSources {
        ec2: Arc::clone(&ec2),
        clock,
        prices: PriceBook::new(REGION),
        unavailable: Unavailable::new(clock),
        reservations: Reservations::new(Arc::clone(&ec2), clock),
        placement_groups: PlacementGroups::new(ec2, clock),
        shifts: ZonalShifts::default(),
    };
    let options = TypeOptions {
        region: REGION.to_owned(),
        vm_memory_overhead_percent: 0.075,
        reserved_enis: 0,
        uses_reservations: true,
    };
    let types = InstanceTypes::new(options, sources);
    let start = Instant::now();
    if let Err(error) = types.discover().await {
        eprintln!("{error}");
        return;
    }
    println!("storing the discovery      {:>9.3} ms", millis(start.elapsed()));

    let class = class();
    let first = timed("cold", &types, &class, || types.forget("bench")).await;
    let offering_count: usize = first.iter().map(|one| one.offerings.len()).sum();
    timed("warm", &types, &class, || {}).await;
    let mut number = 0;
    timed("one offering unavailable", &types, &class, || {
        number += 1;
        let pool = UnavailableOffering {
            instance_type: first[number % first.len()].name.to_string(),
            zone: "us-east-1a".to_owned(),
            capacity_type: "spot".to_owned(),
            scope: Scope::AnyLaunch,
        };
        types.unavailable().mark_pool(pool, "InsufficientInstanceCapacity");
    })
    .await;
    let mut price = 1.0;
    timed("a price changed", &types, &class, || {
        price += 1.0;
        let prices = [("m5.large".to_owned(), price)].into();
        types.prices().update(|known| known.with_on_demand(&prices));
    })
    .await;
    println!("{} types, {offering_count} offerings", first.len());
}

/// The median and maximum duration of several runs; the inputs are changed before each run.
async fn timed(
    what: &str,
    types: &InstanceTypes,
    class: &EC2NodeClass,
    mut change: impl FnMut(),
) -> Arc<Vec<InstanceType>> {
    let mut times = Vec::new();
    let mut last = Arc::default();
    for _ in 0..ROUNDS {
        // The previous result is dropped before the measurement starts.
        drop(std::mem::take(&mut last));
        change();
        let start = Instant::now();
        last = types.list(class).await.unwrap_or_default();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what:<26} {:>9.3} ms median, {:.3} ms worst", millis(median), millis(worst));
    last
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A node class in all zones, with a reservation of every instance type in every zone; no real node class has as many.
fn class() -> EC2NodeClass {
    let zones = catalog().zones(REGION);
    let mut class = EC2NodeClass::default();
    class.metadata.name = Some("bench".to_owned());
    class.metadata.uid = Some("1".to_owned());
    class.metadata.resource_version = Some("1".to_owned());
    class.spec.ami_family = Some("AL2023".to_owned());
    let subnets = zones.iter().map(|zone| SubnetStatus {
        id: format!("subnet-{}", zone.name),
        zone: zone.name.clone(),
        zone_id: zone.id.clone(),
    });
    let reservations = catalog().types().iter().flat_map(|info| {
        zones.iter().map(|zone| CapacityReservationStatus {
            id: format!("cr-{}-{}", info.name, zone.name),
            instance_type: info.name.to_string(),
            availability_zone: zone.name.clone(),
            instance_match_criteria: "open".to_owned(),
            ..CapacityReservationStatus::default()
        })
    });
    let reservations = reservations.collect();
    let subnets = subnets.collect();
    class.status =
        Some(EC2NodeClassStatus { subnets, capacity_reservations: reservations, ..Default::default() });
    class
}
