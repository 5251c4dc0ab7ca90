//! The condition `CapacityReservationsReady`. It is true if EC2 responded, even if no reservation matches.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::CapacityReservationStatus;
use karpenter_runtime::clock::until;

use super::conditions::{CAPACITY_RESERVATIONS_READY, ConditionResult, Recheck};
use super::remedy::failure;
use crate::api::AwsError;

const RESOLUTION_FAILED: &str = "CapacityReservationsResolutionFailed";

/// How often the reservations of a node class are resolved again.
const PERIOD: Duration = Duration::from_secs(60);
/// The minimum delay, used after a reservation has just ended; it avoids a busy loop.
const PERIOD_MIN: Duration = Duration::from_secs(1);

pub(crate) fn evaluate(
    answer: Result<Vec<CapacityReservationStatus>, AwsError>,
    now: Timestamp,
) -> (ConditionResult, Option<Vec<CapacityReservationStatus>>) {
    match answer {
        Ok(reservations) => {
            let recheck = Recheck::After(period(&reservations, now));
            (ConditionResult::ready(CAPACITY_RESERVATIONS_READY, recheck), Some(reservations))
        }
        Err(error) => {
            let failure = failure("ec2:DescribeCapacityReservations", &error);
            (ConditionResult::not_checked(CAPACITY_RESERVATIONS_READY, RESOLUTION_FAILED, failure), None)
        }
    }
}

/// The delay before reservations are resolved again: one minute, or less if a reservation ends sooner.
fn period(reservations: &[CapacityReservationStatus], now: Timestamp) -> Duration {
    let ends = reservations.iter().filter_map(|reservation| reservation.end_time.as_ref());
    let first = ends.map(|end| until(now, end.0)).min();
    first.unwrap_or(PERIOD).clamp(PERIOD_MIN, PERIOD)
}
