//! Turns the AWS responses of one reconcile into the lists and conditions of the status, and computes the delay before
//! the next reconcile.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass, EC2NodeClassStatus};
use karpenter_runtime::worker::Requeue;

use super::conditions::{ConditionResult, Recheck};
use super::sources::ImagesError;
use super::{images, instance_profile, placement_group, reservations, security_groups, subnets};
use crate::api::AwsError;
use crate::api::ec2::{PlacementGroup, SecurityGroup, Subnet};
use crate::profiles::ProfileError;

/// The first delay of the back-off; each retry doubles the delay.
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// The AWS responses for a node class.
pub(crate) struct Observed<'a> {
    pub(crate) images: Result<Vec<AmiStatus>, ImagesError>,
    /// The capacity reservations that the node class selects; `None` if the feature gate ReservedCapacity is off.
    pub(crate) reservations: Option<Result<Vec<CapacityReservationStatus>, AwsError>>,
    pub(crate) placement_group: Result<Option<PlacementGroup>, AwsError>,
    pub(crate) subnets: Result<&'a [Subnet], AwsError>,
    pub(crate) security_groups: Result<&'a [SecurityGroup], AwsError>,
    pub(crate) profile: Result<String, ProfileError>,
}

/// Updates the lists in the status, and returns the results for the conditions in upstream's order.
pub(crate) fn decide(
    class: &EC2NodeClass,
    observed: Observed<'_>,
    status: &mut EC2NodeClassStatus,
    now: Timestamp,
) -> Vec<ConditionResult> {
    let mut results = Vec::new();
    let (result, listed) = images::evaluate(observed.images);
    results.push(result);
    replace(&mut status.amis, listed);
    if let Some(answer) = observed.reservations {
        let (result, listed) = reservations::evaluate(answer, now);
        results.push(result);
        replace(&mut status.capacity_reservations, listed);
    }
    let selector = class.spec.placement_group_selector.as_ref();
    results.push(placement_group::evaluate(observed.placement_group, selector));
    let (result, listed) = subnets::evaluate(observed.subnets);
    results.push(result);
    replace(&mut status.subnets, listed);
    let (result, listed) = security_groups::evaluate(observed.security_groups);
    results.push(result);
    replace(&mut status.security_groups, listed);
    let (result, named) = instance_profile::evaluate(observed.profile);
    results.push(result);
    if named.is_some() {
        status.instance_profile = named;
    }
    results
}

fn replace<T>(list: &mut T, by: Option<T>) {
    if let Some(new) = by {
        *list = new;
    }
}

/// The delay before the next reconcile, and the new number of consecutive retries, given the number before.
pub(crate) fn requeue_after(results: &[ConditionResult], retries: u32) -> (Requeue, u32) {
    let needs_back_off = results.iter().any(|result| result.recheck == Recheck::BackOff);
    let retries = if needs_back_off { retries.saturating_add(1) } else { 0 };
    let after = results.iter().fold(Requeue::No, |after, result| match result.recheck {
        Recheck::OnChange => after,
        Recheck::After(period) => after.earlier(Requeue::After(period)),
        Recheck::BackOff => after.earlier(Requeue::After(back_off(retries))),
    });
    (after, retries)
}

pub(crate) fn back_off(times: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1 << times.saturating_sub(1).min(16)).min(BACK_OFF_MAX)
}

#[cfg(test)]
mod tests;
