//! Interprets the errors of EC2 launches: reason and message for the NodeClaim's condition, whether capacity was
//! insufficient, and which offerings, subnets and reservations are not used for a while.
//!
//! Reasons and messages are upstream's, because users and dashboards look for them.
//!
//! Upstream: `pkg/errors`, `pkg/providers/instance`

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_cloud::CloudError;

use super::filters::{Candidate, reservation};
use crate::api::AwsError;
use crate::api::ec2::FleetError;
use crate::unavailable::{Scope, UnavailableOffering};

/// Each row: texts, all of which must occur in the error; reason; message. The first row that matches an error applies.
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
    // Upstream lacks these rows. Without them, invalid credentials would be reported as a failed launch.
    (&["ExpiredToken"], "Unauthorized", "The credentials that Karpenter uses have expired"),
    (&["RequestExpired"], "Unauthorized", "The credentials that Karpenter uses have expired"),
    (&["InvalidClientTokenId"], "Unauthorized", "AWS does not know the credentials that Karpenter uses"),
];

const NOT_ALLOWED: [&str; 3] = ["UnauthorizedOperation", "AccessDenied", "AuthFailure"];

/// Each row: a text in an authorization error; reason; message.
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

/// The reason and message of the condition for the text of an error.
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

/// The error of a launch that failed before `CreateFleet`, or for which the whole `CreateFleet` call failed.
pub fn create_error(doing: &str, error: &str) -> CloudError {
    let (reason, message) = reason_and_message(error);
    CloudError::CreateRefused { reason: reason.to_owned(), message: format!("{doing}: {message}") }
}

/// The error of a `CreateFleet` call that launched no instance. It is an insufficient capacity error if all errors in
/// the response are about capacity.
pub fn no_instance_error(errors: &[FleetError]) -> CloudError {
    let texts: BTreeSet<String> = errors.iter().map(|error| text(&error.error)).collect();
    let joined = texts.into_iter().collect::<Vec<_>>().join("; ");
    let is_capacity =
        |error: &FleetError| error.error.is_unfulfillable() || error.error.is_spot_role_missing();
    if errors.iter().all(is_capacity) {
        return CloudError::InsufficientCapacity { message: format!("with fleet error(s), {joined}") };
    }
    let (reason, message) = reason_and_message(&joined);
    CloudError::CreateRefused { reason: reason.to_owned(), message: message.to_owned() }
}

fn text(error: &AwsError) -> String {
    format!("{}: {}", error.code, error.message)
}

/// Something that later launches must not use for a while, because EC2 reported an error for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailability {
    /// The offering has no capacity; the string is the error code that EC2 returned.
    Offering(UnavailableOffering, String),
    /// The subnet has no free IP addresses.
    Subnet(String),
    /// Spot instances need a service-linked role, which does not exist and which the controller may not create.
    SpotRoleMissing,
    /// The reservation has no capacity left, until EC2 reports that it has some.
    Reservation(String),
}

/// The placement group and partition of a launch. Offerings become unavailable only for launches into the same ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    pub group_id: Option<String>,
    pub partition: Option<u32>,
}

/// What is unavailable because of the errors of a fleet, without duplicates.
pub fn unavailabilities(
    errors: &[FleetError],
    capacity_type: &str,
    candidates: &[Candidate<'_>],
    placement: &Placement,
) -> Vec<Unavailability> {
    let mut unavailabilities = Vec::new();
    for failed in errors {
        let error = &failed.error;
        if error.is_insufficient_free_addresses()
            && let Some(subnet) = &failed.tried.subnet_id
        {
            push(&mut unavailabilities, Unavailability::Subnet(subnet.clone()));
        }
        let zone = failed.tried.zone.clone().unwrap_or_default();
        if capacity_type == labels::CAPACITY_TYPE_RESERVED {
            // A full placement group does not mean that the reservation has no capacity.
            if error.is_unfulfillable() && !error.is_spread_placement_group_full() {
                let held = reservation(candidates, &failed.tried.instance_type, &zone);
                if let Some(held) = held {
                    push(&mut unavailabilities, Unavailability::Reservation(held.id));
                }
            }
            continue;
        }
        if error.is_spot_role_missing() {
            push(&mut unavailabilities, Unavailability::SpotRoleMissing);
        }
        if !error.is_unfulfillable() {
            continue;
        }
        let pool = |instance_type: &str, scope: Scope| {
            let pool = UnavailableOffering {
                instance_type: instance_type.to_owned(),
                zone: zone.clone(),
                capacity_type: capacity_type.to_owned(),
                scope,
            };
            Unavailability::Offering(pool, error.code.clone())
        };
        let group = placement.group_id.as_deref();
        if error.is_spread_placement_group_full() && group.is_some() {
            // The limit of a spread placement group applies to a zone, whatever the instance type.
            for candidate in candidates {
                push(&mut unavailabilities, pool(&candidate.instance_type.name, Scope::of(group, None)));
            }
        } else {
            push(
                &mut unavailabilities,
                pool(&failed.tried.instance_type, Scope::of(group, placement.partition)),
            );
        }
    }
    unavailabilities
}

fn push(unavailabilities: &mut Vec<Unavailability>, unavailability: Unavailability) {
    if !unavailabilities.contains(&unavailability) {
        unavailabilities.push(unavailability);
    }
}
