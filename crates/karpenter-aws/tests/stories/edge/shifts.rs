use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodePool;
use karpenter_aws::api::AwsError;
use karpenter_aws::api::zonal_shift::Shift;
use karpenter_aws::fake::Call;
use karpenter_aws::zonal_shift::{ShiftSource, ZonalShiftController, ZonalShifts};
use serde_json::{Value, json};

use super::world::World;

fn shift(zone_id: &str, until: &str) -> Shift {
    Shift {
        away_from_zone_id: zone_id.to_owned(),
        is_applied: true,
        started_at: None,
        expires_at: format!("2026-01-01T{until}:00Z").parse().ok(),
    }
}

async fn pool(world: &World, name: &str, requirements: Value) {
    world
        .create::<NodePool>(json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements,
            }}},
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn nodepools_get_events_when_a_zone_is_shifted_and_restored() {
    let world = World::start().await;
    let subnets = json!([
        {"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az1"},
        {"id": "subnet-2", "zone": "us-west-2b", "zoneID": "usw2-az2"},
    ]);
    world.class("default", json!({ "subnets": subnets })).await;
    let only_a = json!([{"key": labels::AWS_ZONE_ID, "operator": "NotIn", "values": ["usw2-az2"]}]);
    pool(&world, "only-a", only_a).await;
    let elsewhere = json!([{"key": labels::ZONE, "operator": "In", "values": ["us-west-2c"]}]);
    pool(&world, "elsewhere", elsewhere).await;
    let only_b = json!([{"key": labels::ZONE, "operator": "In", "values": ["us-west-2b"]}]);
    pool(&world, "only-b", only_b).await;
    let shifts = ZonalShifts::default();
    let source = ShiftSource::new(world.aws.apis().eks, world.aws.apis().zonal_shift, "cluster");
    let controller = ZonalShiftController::new(world.context.clone(), source, shifts.clone());
    world.spawn(controller, ZonalShiftController::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    assert!(world.events().await.is_empty());

    world.aws.world(|world| world.shifts = vec![shift("usw2-az1", "18:00"), shift("usw2-az2", "12:05")]);
    world.pass(Duration::from_secs(31)).await;
    assert!(shifts.is_shifted("usw2-az1", world.clock.now()));
    let active = ["NodePool only-a ZonalShiftActive", "NodePool only-b ZonalShiftActive"];
    assert_eq!(world.events().await, active);

    // One shift expires while ARC does not respond; the other is cancelled long before its end.
    world.aws.fail_always(Call::GetManagedResource, Some(AwsError::unreachable("down")));
    world.pass(Duration::from_secs(400)).await;
    assert!(shifts.is_shifted("usw2-az1", world.clock.now()));
    assert!(!shifts.is_shifted("usw2-az2", world.clock.now()));
    world.aws.fail_always(Call::GetManagedResource, None);
    world.aws.world(|world| world.shifts.clear());
    world.pass(Duration::from_secs(31)).await;
    assert!(!shifts.is_shifted("usw2-az1", world.clock.now()));
    let all = [
        "NodePool only-a ZonalShiftActive",
        "NodePool only-a ZonalShiftCleared",
        "NodePool only-b ZonalShiftActive",
        "NodePool only-b ZonalShiftCleared",
    ];
    assert_eq!(world.events().await, all);
}
