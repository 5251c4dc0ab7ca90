use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::requirements::Requirement;
use karpenter_model::resources::ResourceList;

use super::*;
use crate::api::ec2::FleetOverride;

#[test]
fn reasons_and_messages_equal_upstream() {
    let table = [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted: x", "SpotSLRCreationFailed"),
        ("UnauthorizedOperation: x", "Unauthorized"),
        ("AccessDenied: x", "Unauthorized"),
        ("AuthFailure: Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        (
            "InvalidParameter: Security group sg-1 and subnet subnet-1 belong to different networks.",
            "SecurityGroupSubnetVPCMismatch",
        ),
        (
            "InvalidParameterValue: Value (x) for parameter iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
        ),
        ("InvalidLaunchTemplateId.NotFound: x", "LaunchTemplateNotFound"),
        ("InvalidUserData.Malformed: User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
        ("InvalidAMIID.Malformed: x", "InvalidAMIID"),
        ("InvalidAMIID.NotFound: x", "AMINotFound"),
        ("RequestLimitExceeded: x", "RequestLimitExceeded"),
        ("InternalError: x", "InternalError"),
        ("InvalidParameterCombination: The type is not eligible for Free Tier", "FreeTierIneligible"),
        ("MaxFleetCountExceeded: x", "FleetQuotaExceeded"),
        ("PendingVerification: x", "AccountPendingVerification"),
        ("MaxSpotInstanceCountExceeded: x", "SpotQuotaExceeded"),
        ("VcpuLimitExceeded: x", "VCPULimitExceeded"),
        ("InsufficientFreeAddressesInSubnet: x", "InsufficientFreeAddressesInSubnet"),
        ("InvalidLaunchTemplateName.NotFoundException: x", "LaunchFailed"),
        ("ExpiredToken: x", "Unauthorized"),
        ("something else", "LaunchFailed"),
        // If several rows match an error, the first one applies: permission before capacity, and quota before
        // addresses.
        ("VcpuLimitExceeded: x; UnauthorizedOperation: y", "Unauthorized"),
        ("InsufficientFreeAddressesInSubnet: x; MaxFleetCountExceeded: y", "FleetQuotaExceeded"),
    ];
    for (error, reason) in table {
        assert_eq!(reason_and_message(error).0, reason, "{error}");
    }
    let messages = [
        (
            "UnauthorizedOperation: with an explicit deny in a permissions boundary",
            "User is not authorized to perform this operation due to a permission boundary",
        ),
        (
            "UnauthorizedOperation: with an explicit deny in a service control policy",
            "User is not authorized to perform this operation due to a service control policy",
        ),
        (
            "UnauthorizedOperation: because no identity-based policy allows the ec2:CreateFleet action",
            "User is not authorized to perform this operation because no identity-based policy allows it",
        ),
    ];
    for (error, message) in messages {
        assert_eq!(reason_and_message(error), ("Unauthorized", message));
    }
}

fn failed(code: &str, instance_type: &str, zone: &str) -> FleetError {
    let tried = FleetOverride {
        instance_type: instance_type.to_owned(),
        zone: Some(zone.to_owned()),
        subnet_id: Some(format!("subnet-{zone}")),
        ..FleetOverride::default()
    };
    FleetError { error: AwsError::new(code, "x"), launch_template_name: None, tried, lifecycle: None }
}

#[test]
fn error_of_fleet_without_instance() {
    let ice = "InsufficientInstanceCapacity";
    let table: [(&[&str], &str); 6] = [
        (&[ice], "insufficient capacity: with fleet error(s), InsufficientInstanceCapacity: x"),
        (&[ice, ice], "insufficient capacity: with fleet error(s), InsufficientInstanceCapacity: x"),
        (
            &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
            "insufficient capacity: with fleet error(s), AuthFailure.ServiceLinkedRoleCreationNotPermitted: x",
        ),
        (&["MaxFleetCountExceeded"], "insufficient capacity: with fleet error(s), MaxFleetCountExceeded: x"),
        (&[ice, "InvalidAMIID.NotFound"], "AMINotFound"),
        (&["too few instances returned"], "LaunchFailed"),
    ];
    for (codes, expected) in table {
        let errors: Vec<FleetError> = codes.iter().map(|code| failed(code, "m5.large", "a")).collect();
        let found = match no_instance_error(&errors) {
            CloudError::CreateRefused { reason, .. } => reason,
            other => other.to_string(),
        };
        assert_eq!(found, expected, "{codes:?}");
    }
}

fn instance_type(name: &str, reservation: Option<&str>) -> InstanceType {
    let mut labels_of = vec![
        Requirement::in_values(labels::ZONE, ["a"]),
        Requirement::in_values(
            labels::CAPACITY_TYPE,
            [if reservation.is_some() { "reserved" } else { "on-demand" }],
        ),
    ];
    labels_of.extend(reservation.map(|id| Requirement::in_values(labels::AWS_CAPACITY_RESERVATION_ID, [id])));
    let offering = Offering {
        requirements: labels_of.into_iter().collect(),
        price_per_hour: 1.0,
        available: true,
        reservation_capacity: reservation.map(|_| 1),
        ..Offering::default()
    };
    InstanceType {
        name: name.into(),
        requirements: Default::default(),
        offerings: vec![offering],
        capacity: ResourceList::new(),
        overhead: ResourceList::new(),
        volume_attachment_limits: Default::default(),
    }
}

#[test]
fn fleet_errors_mark_capacity_unavailable() {
    let types = [instance_type("m5.large", None), instance_type("m5.xlarge", None)];
    let plain: Vec<Candidate<'_>> = candidates(&types);
    let reserved_types = [instance_type("m5.large", Some("cr-1"))];
    let reserved: Vec<Candidate<'_>> = candidates(&reserved_types);
    let none = Placement::default();
    let group = |partition| Placement { group_id: Some("pg-1".to_owned()), partition };
    let pool = |name: &str, scope: Scope, code: &str| {
        let (instance_type, zone, capacity_type) = (name.to_owned(), "a".to_owned(), "on-demand".to_owned());
        Unavailability::Offering(
            UnavailableOffering { instance_type, zone, capacity_type, scope },
            code.to_owned(),
        )
    };
    let ice = "InsufficientInstanceCapacity";
    let record_unavailable =
        |errors: &[FleetError], kind: &str, candidates: &[Candidate<'_>], placement: &Placement| {
            unavailabilities(errors, kind, candidates, placement)
        };
    let one = |code: &str| vec![failed(code, "m5.large", "a")];

    assert_eq!(record_unavailable(&[], "on-demand", &plain, &none), []);
    for code in ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "Unsupported", "MaxFleetCountExceeded"]
    {
        let expected = [pool("m5.large", Scope::AnyLaunch, code)];
        assert_eq!(record_unavailable(&one(code), "on-demand", &plain, &none), expected, "{code}");
    }
    for code in ["UnauthorizedOperation", "InvalidAMIID.NotFound", "InternalError"] {
        assert_eq!(
            record_unavailable(&one(code), "on-demand", &plain, &none),
            [],
            "{code} says nothing about capacity"
        );
    }
    let twice = [one(ice), one(ice)].concat();
    assert_eq!(record_unavailable(&twice, "on-demand", &plain, &none).len(), 1, "each thing once");
    let role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    assert_eq!(record_unavailable(&one(role), "spot", &plain, &none), [Unavailability::SpotRoleMissing]);
    let addresses = "InsufficientFreeAddressesInSubnet";
    assert_eq!(
        record_unavailable(&one(addresses), "on-demand", &plain, &none),
        [Unavailability::Subnet("subnet-a".to_owned()), pool("m5.large", Scope::AnyLaunch, addresses)]
    );
    assert_eq!(
        record_unavailable(&one(ice), "on-demand", &plain, &group(None)),
        [pool("m5.large", Scope::Group("pg-1".to_owned()), ice)]
    );
    assert_eq!(
        record_unavailable(&one(ice), "on-demand", &plain, &group(Some(2))),
        [pool("m5.large", Scope::Partition("pg-1".to_owned(), 2), ice)]
    );
    let mut full = one(ice);
    full[0].error.message =
        "You've reached the limit of instances in this spread placement group.".to_owned();
    assert_eq!(
        record_unavailable(&full, "on-demand", &plain, &group(None)),
        ["m5.large", "m5.xlarge"].map(|name| pool(name, Scope::Group("pg-1".to_owned()), ice)),
        "a full group is full for every type"
    );
    for code in ["ReservationCapacityExceeded", "InsufficientInstanceCapacity"] {
        let expected = [Unavailability::Reservation("cr-1".to_owned())];
        assert_eq!(record_unavailable(&one(code), "reserved", &reserved, &none), expected, "{code}");
    }
    assert_eq!(
        record_unavailable(&full, "reserved", &reserved, &group(None)),
        [],
        "a full group says nothing about a reservation"
    );
    let elsewhere = vec![failed("ReservationCapacityExceeded", "m5.large", "b")];
    assert_eq!(
        record_unavailable(&elsewhere, "reserved", &reserved, &none),
        [],
        "there is no reservation in that zone"
    );
}

fn candidates(types: &[InstanceType]) -> Vec<Candidate<'_>> {
    let all = types
        .iter()
        .map(|of_type| Candidate { instance_type: of_type, offerings: of_type.offerings.iter().collect() });
    all.collect()
}
