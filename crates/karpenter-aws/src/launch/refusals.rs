//! What EC2's refusals mean: the word and sentence a claim's condition shows, whether it was a matter of capacity, and
//! what should not be tried again for a while.
//!
//! Words and sentences are upstream's, because people and dashboards know them.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_cloud::CloudError;

use super::filters::{Candidate, reservation};
use crate::api::AwsError;
use crate::api::ec2::FleetError;
use crate::unavailable::{Scope, ShortPool};

/// Texts in an error that decide its reason, in order; the first row all of whose texts occur wins.
const REASONS: [(&[&str], &str, &str); 18] = [
    (
        &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
        "SpotSLRCreationFailed",
        "User does not have sufficient permission to create the Spot ServiceLinkedRole to launch spot instances",
    ),
    (
        &["InvalidParameter", "belong to different networks"],
        "SecurityGroupSubnetVPCMismatch",
        "Security groups and subnets must be in the same VPC.",
    ),
    (
        &["iamInstanceProfile.name is invalid"],
        "InstanceProfileNameInvalid",
        "Instance profile name used from EC2NodeClass status does not exist",
    ),
    (
        &["InvalidLaunchTemplateId.NotFound"],
        "LaunchTemplateNotFound",
        "Launch template used for instance launch wasn't found",
    ),
    (
        &["User data is limited to"],
        "UserDataSizeLimitExceeded",
        "Rendered user data exceeds the EC2 user data size limit",
    ),
    (&["InvalidAMIID.Malformed"], "InvalidAMIID", "AMI used for instance launch is invalid"),
    (
        &["InvalidAMIID.NotFound"],
        "AMINotFound",
        "AMI used for instance launch either does not exist or you don't have permissions to use it",
    ),
    (&["RequestLimitExceeded"], "RequestLimitExceeded", "Request limit exceeded"),
    (&["InternalError"], "InternalError", "An internal error has occurred"),
    (
        &["not eligible for Free Tier"],
        "FreeTierIneligible",
        "The specified instance type is not eligible for Free Tier",
    ),
    (
        &["MaxFleetCountExceeded"],
        "FleetQuotaExceeded",
        "A fleet launch was requested but this would exceed your fleet request quota",
    ),
    (
        &["PendingVerification"],
        "AccountPendingVerification",
        "An instance launch was requested but the request for launching resources in this region is still being verified",
    ),
    (
        &["MaxSpotInstanceCountExceeded"],
        "SpotQuotaExceeded",
        "A spot instance launch was requested but this would exceed your spot instance quota",
    ),
    (
        &["VcpuLimitExceeded"],
        "VCPULimitExceeded",
        "An instance was requested that would exceed your VCPU quota",
    ),
    (
        &["InsufficientFreeAddressesInSubnet"],
        "InsufficientFreeAddressesInSubnet",
        "There are not enough free IP addresses to launch an instance in this subnet",
    ),
    // Credentials that are no good are not upstream's; without a row here they would read as a failure of EC2.
    (&["ExpiredToken"], "Unauthorized", "The credentials that Karpenter uses have expired"),
    (&["RequestExpired"], "Unauthorized", "The credentials that Karpenter uses have expired"),
    (&["InvalidClientTokenId"], "Unauthorized", "AWS does not know the credentials that Karpenter uses"),
];

const NOT_ALLOWED: [&str; 3] = ["UnauthorizedOperation", "AccessDenied", "AuthFailure"];

/// Why permission is missing, by a text of the error.
const PERMISSIONS: [(&str, &str, &str); 3] = [
    (
        "with an explicit deny in a permissions boundary",
        "Unauthorized",
        "User is not authorized to perform this operation due to a permission boundary",
    ),
    (
        "with an explicit deny in a service control policy",
        "Unauthorized",
        "User is not authorized to perform this operation due to a service control policy",
    ),
    (
        "Not authorized for images",
        "AMIAuthorizationFailure",
        "User is not authorized for AMI used in instance launch",
    ),
];

/// The reason and the message of a condition for the text of an error.
pub fn reason_and_message(error: &str) -> (&'static str, &'static str) {
    let (spot_role, others) = REASONS.split_first().unwrap_or((&REASONS[0], &[]));
    let fits = |texts: &[&str]| texts.iter().all(|text| error.contains(text));
    if fits(spot_role.0) {
        return (spot_role.1, spot_role.2);
    }
    if NOT_ALLOWED.iter().any(|text| error.contains(text)) {
        let cause = PERMISSIONS.iter().find(|(text, ..)| error.contains(text));
        return cause.map_or(
            (
                "Unauthorized",
                "User is not authorized to perform this operation because no identity-based policy allows it",
            ),
            |(_, reason, message)| (reason, message),
        );
    }
    let row = others.iter().find(|(texts, ..)| fits(texts));
    row.map_or(("LaunchFailed", "Instance launch failed"), |(_, reason, message)| (reason, message))
}

/// A launch that failed before EC2 was asked for a machine, or whose request was refused as a whole.
pub fn refused(doing: &str, error: &str) -> CloudError {
    let (reason, message) = reason_and_message(error);
    CloudError::CreateRefused { reason: reason.to_owned(), message: format!("{doing}: {message}") }
}

/// A fleet without a machine: insufficient capacity if that is all that was wrong.
pub fn without_machine(errors: &[FleetError]) -> CloudError {
    let texts: BTreeSet<String> = errors.iter().map(|error| text(&error.error)).collect();
    let told = texts.into_iter().collect::<Vec<_>>().join("; ");
    let is_capacity =
        |error: &FleetError| error.error.is_unfulfillable() || error.error.is_spot_role_missing();
    if errors.iter().all(is_capacity) {
        return CloudError::InsufficientCapacity { message: format!("with fleet error(s), {told}") };
    }
    let (reason, message) = reason_and_message(&told);
    CloudError::CreateRefused { reason: reason.to_owned(), message: message.to_owned() }
}

fn text(error: &AwsError) -> String {
    format!("{}: {}", error.code, error.message)
}

/// What a fleet's errors say about the next launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lesson {
    /// Nothing there for a while; the word is EC2's.
    Pool(ShortPool, String),
    /// No addresses left.
    Subnet(String),
    /// Spot machines need a role that nobody may create.
    SpotRoleMissing,
    /// Nothing left of it until EC2 says otherwise.
    Reservation(String),
}

/// Where a launch went, as shortages are scoped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    pub group_id: Option<String>,
    pub partition: Option<u32>,
}

/// Everything to be learned from a fleet's errors, each thing once.
pub fn lessons(
    errors: &[FleetError],
    capacity_type: &str,
    candidates: &[Candidate<'_>],
    placement: &Placement,
) -> Vec<Lesson> {
    let mut lessons = Vec::new();
    for failed in errors {
        let error = &failed.error;
        if error.is_insufficient_free_addresses()
            && let Some(subnet) = &failed.tried.subnet_id
        {
            push(&mut lessons, Lesson::Subnet(subnet.clone()));
        }
        let zone = failed.tried.zone.clone().unwrap_or_default();
        if capacity_type == labels::CAPACITY_TYPE_RESERVED {
            // A full group says nothing about the reservation.
            if error.is_unfulfillable() && !error.is_spread_placement_group_full() {
                let held = reservation(candidates, &failed.tried.instance_type, &zone);
                if let Some(held) = held {
                    push(&mut lessons, Lesson::Reservation(held.id));
                }
            }
            continue;
        }
        if error.is_spot_role_missing() {
            push(&mut lessons, Lesson::SpotRoleMissing);
        }
        if !error.is_unfulfillable() {
            continue;
        }
        let pool = |instance_type: &str, scope: Scope| {
            let pool = ShortPool {
                instance_type: instance_type.to_owned(),
                zone: zone.clone(),
                capacity_type: capacity_type.to_owned(),
                scope,
            };
            Lesson::Pool(pool, error.code.clone())
        };
        let group = placement.group_id.as_deref();
        if error.is_spread_placement_group_full() && group.is_some() {
            // The limit is the group's in that zone, whatever the type.
            for candidate in candidates {
                push(&mut lessons, pool(&candidate.instance_type.name, Scope::of(group, None)));
            }
        } else {
            push(&mut lessons, pool(&failed.tried.instance_type, Scope::of(group, placement.partition)));
        }
    }
    lessons
}

fn push(lessons: &mut Vec<Lesson>, lesson: Lesson) {
    if !lessons.contains(&lesson) {
        lessons.push(lesson);
    }
}
