//! What the answers of one look at the world mean for a class, and when to look again.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass, EC2NodeClassStatus};
use karpenter_cluster::harness::After;

use super::conditions::{Finding, Next};
use super::sources::ImagesError;
use super::{images, instance_profile, placement_group, reservations, security_groups, subnets};
use crate::api::AwsError;
use crate::api::ec2::{PlacementGroup, SecurityGroup, Subnet};
use crate::profiles::ProfileError;

const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// Everything that was asked for a class.
pub(crate) struct Observed<'a> {
    pub(crate) images: Result<Vec<AmiStatus>, ImagesError>,
    /// `None` where nobody asked, because the feature is off.
    pub(crate) reservations: Option<Result<Vec<CapacityReservationStatus>, AwsError>>,
    pub(crate) placement_group: Result<Option<PlacementGroup>, AwsError>,
    pub(crate) subnets: Result<&'a [Subnet], AwsError>,
    pub(crate) security_groups: Result<&'a [SecurityGroup], AwsError>,
    pub(crate) profile: Result<String, ProfileError>,
}

/// Brings the lists of the status up to date; what was found, in upstream's order.
pub(crate) fn decide(
    class: &EC2NodeClass,
    observed: Observed<'_>,
    status: &mut EC2NodeClassStatus,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (finding, listed) = images::judge(observed.images);
    findings.push(finding);
    replace(&mut status.amis, listed);
    if let Some(answer) = observed.reservations {
        let (finding, listed) = reservations::judge(answer, now);
        findings.push(finding);
        replace(&mut status.capacity_reservations, listed);
    }
    let selector = class.spec.placement_group_selector.as_ref();
    findings.push(placement_group::judge(observed.placement_group, selector));
    let (finding, listed) = subnets::judge(observed.subnets);
    findings.push(finding);
    replace(&mut status.subnets, listed);
    let (finding, listed) = security_groups::judge(observed.security_groups);
    findings.push(finding);
    replace(&mut status.security_groups, listed);
    let (finding, named) = instance_profile::judge(observed.profile);
    findings.push(finding);
    if named.is_some() {
        status.instance_profile = named;
    }
    findings
}

fn replace<T>(list: &mut T, by: Option<T>) {
    if let Some(new) = by {
        *list = new;
    }
}

/// When to look again, given how many looks in a row were followed by a hurried one; that number afterwards.
pub(crate) fn next_look(findings: &[Finding], hurried_in_a_row: u32) -> (After, u32) {
    let is_hurried = findings.iter().any(|finding| finding.next == Next::BackOff);
    let hurried_in_a_row = if is_hurried { hurried_in_a_row.saturating_add(1) } else { 0 };
    let after = findings.iter().fold(After::Done, |after, finding| match finding.next {
        Next::OnChange => after,
        Next::After(period) => after.earlier(After::Again(period)),
        Next::BackOff => after.earlier(After::Again(back_off(hurried_in_a_row))),
    });
    (after, hurried_in_a_row)
}

pub(crate) fn back_off(times: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1 << times.saturating_sub(1).min(16)).min(BACK_OFF_MAX)
}

#[cfg(test)]
mod tests;
