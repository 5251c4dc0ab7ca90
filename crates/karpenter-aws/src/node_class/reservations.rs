//! The condition `CapacityReservationsReady`: true whenever the question was answered, because to have none is fine.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::CapacityReservationStatus;
use karpenter_cluster::clock::until;

use super::conditions::{CAPACITY_RESERVATIONS_READY, Finding, Next};
use super::remedy::trouble;
use crate::api::AwsError;

const RESOLUTION_FAILED: &str = "CapacityReservationsResolutionFailed";

const PERIOD: Duration = Duration::from_secs(60);
/// A reservation whose end has just passed is looked at soon, not in a circle.
const PERIOD_MIN: Duration = Duration::from_secs(1);

pub(crate) fn judge(
    answer: Result<Vec<CapacityReservationStatus>, AwsError>,
    now: Timestamp,
) -> (Finding, Option<Vec<CapacityReservationStatus>>) {
    match answer {
        Ok(reservations) => {
            let next = Next::After(period(&reservations, now));
            (Finding::good(CAPACITY_RESERVATIONS_READY, next), Some(reservations))
        }
        Err(error) => {
            let trouble = trouble("ec2:DescribeCapacityReservations", &error);
            (Finding::unseen(CAPACITY_RESERVATIONS_READY, RESOLUTION_FAILED, trouble), None)
        }
    }
}

/// A minute, or until the first reservation ends if that is sooner.
fn period(reservations: &[CapacityReservationStatus], now: Timestamp) -> Duration {
    let ends = reservations.iter().filter_map(|reservation| reservation.end_time.as_ref());
    let first = ends.map(|end| until(now, end.0)).min();
    first.unwrap_or(PERIOD).clamp(PERIOD_MIN, PERIOD)
}
