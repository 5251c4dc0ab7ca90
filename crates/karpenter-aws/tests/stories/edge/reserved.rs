use std::sync::PoisonError;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_aws::api::ec2::CapacityReservation;
use karpenter_aws::reserved_claims::{CapacityTypeController, ReservationExpiration};
use karpenter_cloud::Instance;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::json;

use super::world::{World, ZONE};

fn reserved(id: &str) -> serde_json::Value {
    json!({
        labels::CAPACITY_TYPE: "reserved", labels::AWS_CAPACITY_RESERVATION_ID: id,
        labels::AWS_CAPACITY_RESERVATION_TYPE: "default",
        labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE: "false",
    })
}

#[tokio::test(start_paused = true)]
async fn instances_with_ended_reservation_become_on_demand() {
    let world = World::start().await;
    world.claim("fell-back", "i-1", reserved("cr-1")).await;
    world.claim("still", "i-2", reserved("cr-2")).await;
    let listed = |id: &str, capacity_type: &str| Instance {
        provider_id: format!("aws:///{ZONE}/{id}"),
        labels: [(labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned())].into(),
        ..Instance::default()
    };
    *world.cloud.0.lock().unwrap_or_else(PoisonError::into_inner) =
        vec![listed("i-1", "on-demand"), listed("i-2", "reserved")];
    let controller = CapacityTypeController::new(world.context.clone());
    world.spawn(controller, CapacityTypeController::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    for (name, capacity_type, reservations) in [("fell-back", "on-demand", 0), ("still", "reserved", 3)] {
        let of_claim = world.get_claim(name).await.expect("there").labels().clone();
        let of_node = nodes.get(name).await.expect("there").labels().clone();
        for found in [of_claim, of_node] {
            assert_eq!(found[labels::CAPACITY_TYPE], capacity_type, "{name}");
            let left = found.keys().filter(|key| key.contains("capacity-reservation-")).count();
            assert_eq!(left, reservations, "{name}: {found:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims_of_capacity_block_are_deleted_forty_minutes_before_end() {
    let world = World::start().await;
    let reservation = |id: &str, kind: &str| CapacityReservation {
        id: id.to_owned(),
        reservation_type: kind.to_owned(),
        state: "active".to_owned(),
        ends_at: "2026-01-01T14:00:00Z".parse().ok(),
        ..CapacityReservation::default()
    };
    world.aws.world(|world| {
        for (id, kind) in [("cr-block", "capacity-block"), ("cr-plain", "default")] {
            world.reservations.insert(id.to_owned(), reservation(id, kind));
        }
    });
    for (name, id, reservation) in
        [("block", "i-1", "cr-block"), ("plain", "i-2", "cr-plain"), ("lost", "i-3", "cr-404")]
    {
        world.claim(name, id, reserved(reservation)).await;
    }
    let controller = ReservationExpiration::new(world.context.clone(), world.aws.apis().ec2);
    world.spawn(controller, ReservationExpiration::watch, 1);
    world.pass(Duration::from_secs(79 * 60)).await;
    assert!(!world.is_terminating("block").await);
    world.pass(Duration::from_secs(2 * 60)).await;
    assert!(world.is_terminating("block").await);
    assert!(!world.is_terminating("plain").await && !world.is_terminating("lost").await);
}

#[tokio::test(start_paused = true)]
async fn failed_patch_does_not_block_other_claims() {
    let world = World::start().await;
    let block = CapacityReservation {
        id: "cr-1".to_owned(),
        reservation_type: "capacity-block".to_owned(),
        state: "active".to_owned(),
        ends_at: "2026-01-01T12:30:00Z".parse().ok(),
        ..CapacityReservation::default()
    };
    world.aws.world(|world| world.reservations.insert("cr-1".to_owned(), block));
    let listed = |id: &str| Instance {
        provider_id: format!("aws:///{ZONE}/{id}"),
        labels: [(labels::CAPACITY_TYPE.to_owned(), "on-demand".to_owned())].into(),
        ..Instance::default()
    };
    let claims = [("first", "i-1", "cr-1"), ("second", "i-2", "cr-2"), ("third", "i-3", "cr-1")];
    for (name, id, reservation) in claims {
        world.claim(name, id, reserved(reservation)).await;
    }
    // Two instances became on-demand, and two are in a capacity block that ends soon. Of each pair, writes to the first
    // NodeClaim fail.
    let on_demand = vec![listed("i-1"), listed("i-2")];
    *world.cloud.0.lock().unwrap_or_else(PoisonError::into_inner) = on_demand;
    world.refuse_writes_of("first");
    let controller = CapacityTypeController::new(world.context.clone());
    world.spawn(controller, CapacityTypeController::watch, 1);
    let controller = ReservationExpiration::new(world.context.clone(), world.aws.apis().ec2);
    world.spawn(controller, ReservationExpiration::watch, 1);
    world.pass(Duration::from_secs(1)).await;
    let second = world.get_claim("second").await.expect("there").labels().clone();
    assert_eq!(second[labels::CAPACITY_TYPE], "on-demand");
    assert!(world.is_terminating("third").await);
    assert!(!world.is_terminating("first").await);
}
