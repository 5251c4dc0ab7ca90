//! NodeClaims in capacity reservations: corrects the labels of instances that became on-demand, and selects instances
//! of capacity blocks that end soon.
//!
//! Upstream: `pkg/controllers/capacityreservation`

mod controllers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_runtime::clock::until;
use serde_json::{Value, json};

use crate::api::ec2::CapacityReservation;

pub use controllers::{CapacityTypeController, ReservationExpiration};

/// How long before the end of a capacity block its nodes are drained. EC2 terminates the instances 30 minutes before
/// the end, so the drain has ten minutes.
const EXPIRING_BEFORE_END: Duration = Duration::from_secs(40 * 60);
const CAPACITY_BLOCK: &str = "capacity-block";
/// The labels that only reserved instances have.
const RESERVATION_LABELS: [&str; 3] = [
    labels::AWS_CAPACITY_RESERVATION_ID,
    labels::AWS_CAPACITY_RESERVATION_TYPE,
    labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE,
];

/// The patch of labels that changes an object from reserved to on-demand; `None` if it need not change. EC2 never
/// changes an instance from on-demand to reserved.
pub fn demotion(is_on_demand: bool, of_object: &BTreeMap<String, String>) -> Option<Value> {
    let says = of_object.get(labels::CAPACITY_TYPE).map(String::as_str);
    if !is_on_demand || says != Some(labels::CAPACITY_TYPE_RESERVED) {
        return None;
    }
    let mut change = json!({ labels::CAPACITY_TYPE: labels::CAPACITY_TYPE_ON_DEMAND });
    for key in RESERVATION_LABELS.into_iter().filter(|key| of_object.contains_key(*key)) {
        change[key] = Value::Null;
    }
    Some(json!({ "metadata": { "labels": change } }))
}

/// The ids of capacity blocks whose instances must be drained at this time.
pub fn expiring(reservations: &[CapacityReservation], now: Timestamp) -> BTreeSet<&str> {
    let is_expiring = |reservation: &&CapacityReservation| {
        let end = reservation.ends_at;
        reservation.reservation_type == CAPACITY_BLOCK
            && end.is_some_and(|end| until(now, end) <= EXPIRING_BEFORE_END)
    };
    reservations.iter().filter(is_expiring).map(|reservation| reservation.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn instance_that_became_on_demand_loses_reservation_labels() {
        let reserved = object(&[
            (labels::CAPACITY_TYPE, "reserved"),
            (labels::AWS_CAPACITY_RESERVATION_ID, "cr-1"),
            (labels::AWS_CAPACITY_RESERVATION_TYPE, "default"),
            (labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE, "false"),
            ("other", "x"),
        ]);
        let expected = json!({"metadata": {"labels": {
            labels::CAPACITY_TYPE: "on-demand",
            labels::AWS_CAPACITY_RESERVATION_ID: null,
            labels::AWS_CAPACITY_RESERVATION_TYPE: null,
            labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE: null,
        }}});
        assert_eq!(demotion(true, &reserved), Some(expected));
        assert_eq!(demotion(false, &reserved), None);
        assert_eq!(demotion(true, &object(&[(labels::CAPACITY_TYPE, "spot")])), None);
        assert_eq!(demotion(true, &object(&[(labels::CAPACITY_TYPE, "on-demand")])), None);
        assert_eq!(demotion(true, &object(&[])), None);
        let bare = object(&[(labels::CAPACITY_TYPE, "reserved")]);
        let expected = json!({"metadata": {"labels": {labels::CAPACITY_TYPE: "on-demand"}}});
        assert_eq!(demotion(true, &bare), Some(expected));
    }

    #[test]
    fn capacity_block_is_drained_forty_minutes_before_end() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
        let table = [
            ("capacity-block", Some("12:40:00"), true),
            ("capacity-block", Some("12:40:01"), false),
            ("capacity-block", Some("11:00:00"), true),
            ("capacity-block", None, false),
            ("default", Some("12:10:00"), false),
        ];
        for (kind, end, expected) in table {
            let reservation = CapacityReservation {
                id: "cr-1".to_owned(),
                reservation_type: kind.to_owned(),
                ends_at: end.map(|end| format!("2026-01-01T{end}Z").parse().expect("a time")),
                ..CapacityReservation::default()
            };
            assert_eq!(expiring(&[reservation], now).contains("cr-1"), expected, "{kind} {end:?}");
        }
    }
}
