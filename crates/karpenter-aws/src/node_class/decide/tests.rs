use super::*;
use crate::node_class::conditions::{
    AMIS_READY, CAPACITY_RESERVATIONS_READY, INSTANCE_PROFILE_READY, NewStatus, PLACEMENT_GROUP_READY,
    SECURITY_GROUPS_READY, SUBNETS_READY,
};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

fn class(spec: Value) -> EC2NodeClass {
    serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec})).expect("a class")
}

fn subnet(id: &str, free: i64) -> Subnet {
    Subnet { id: id.to_owned(), zone: "a".to_owned(), available_ip_count: free, ..Subnet::default() }
}

fn image(id: &str) -> AmiStatus {
    AmiStatus { id: id.to_owned(), ..AmiStatus::default() }
}

fn good<'a>(subnets: &'a [Subnet], groups: &'a [SecurityGroup]) -> Observed<'a> {
    Observed {
        images: Ok(vec![image("ami-1")]),
        reservations: Some(Ok(Vec::new())),
        placement_group: Ok(None),
        subnets: Ok(subnets),
        security_groups: Ok(groups),
        profile: Ok("profile".to_owned()),
    }
}

fn groups() -> Vec<SecurityGroup> {
    vec![SecurityGroup { id: "sg-1".to_owned(), name: "nodes".to_owned(), ..SecurityGroup::default() }]
}

fn denied() -> AwsError {
    AwsError::new("UnauthorizedOperation", "You are not authorized to perform this operation.")
}

fn throttled() -> AwsError {
    AwsError::new("RequestLimitExceeded", "Request limit exceeded.")
}

/// The result for one condition, as text: status, reason, message and next reconcile.
fn shown(results: &[ConditionResult], condition: &str) -> (String, String, Recheck) {
    let result = results.iter().find(|result| result.condition == condition).expect("a result");
    let (word, reason, message) = match &result.new_status {
        NewStatus::True => ("True", "", String::new()),
        NewStatus::False { reason, message } => ("False", *reason, message.clone()),
        NewStatus::Unknown { reason, message } => ("Unknown", *reason, message.clone()),
        NewStatus::NotChecked { reason, message } => ("NotChecked", *reason, message.clone()),
        NewStatus::Unchanged => ("Unchanged", "", String::new()),
    };
    (format!("{word} {reason}").trim_end().to_owned(), message, result.recheck)
}

#[test]
fn found_resources_are_listed_and_conditions_are_true() {
    let (subnets, groups) = ([subnet("s1", 1), subnet("s2", 9)], groups());
    let mut status = EC2NodeClassStatus::default();
    let results = decide(&class(json!({})), good(&subnets, &groups), &mut status, now());
    let order: Vec<&str> = results.iter().map(|result| result.condition).collect();
    let expected = [
        AMIS_READY,
        CAPACITY_RESERVATIONS_READY,
        PLACEMENT_GROUP_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
    ];
    assert_eq!(order, expected);
    assert!(results.iter().all(|result| result.new_status == NewStatus::True && result.failure.is_none()));
    assert_eq!(status.amis, [image("ami-1")]);
    let ids: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    assert_eq!(ids, ["s2", "s1"]);
    assert_eq!(status.security_groups[0].name.as_deref(), Some("nodes"));
    assert_eq!(status.instance_profile.as_deref(), Some("profile"));
    // AMIs and security groups are resolved again every 5 minutes, subnets and reservations every minute.
    assert_eq!(requeue_after(&results, 7), (Requeue::After(MINUTE), 0));
    assert_eq!(shown(&results, AMIS_READY).2, Recheck::After(5 * MINUTE));
    assert_eq!(shown(&results, SECURITY_GROUPS_READY).2, Recheck::After(5 * MINUTE));
    assert_eq!(shown(&results, INSTANCE_PROFILE_READY).2, Recheck::OnChange);
}

#[test]
fn without_feature_gate_reservations_are_ignored() {
    let (subnets, groups) = ([subnet("s1", 1)], groups());
    let mut status = EC2NodeClassStatus::default();
    let observed = Observed { reservations: None, ..good(&subnets, &groups) };
    let results = decide(&class(json!({})), observed, &mut status, now());
    assert!(results.iter().all(|result| result.condition != CAPACITY_RESERVATIONS_READY));
}

#[test]
fn each_failure_has_condition_reason_and_message() {
    type Change = fn(&mut Observed<'_>);
    // Columns: case, fault, condition type, its status and reason, its message, when it is checked again.
    let table: [(&str, Change, &str, &str, &str, Recheck); 15] = [
        (
            "no images",
            |seen| seen.images = Ok(Vec::new()),
            AMIS_READY,
            "False AMINotFound",
            "AMISelector did not match any AMIs",
            Recheck::After(MINUTE),
        ),
        (
            "an alias that does not exist",
            |seen| seen.images = Err(ImagesError::UnsupportedAlias("AL2 is over".to_owned())),
            AMIS_READY,
            "False UnsupportedAlias",
            "AL2 is over",
            Recheck::OnChange,
        ),
        (
            "images cannot be read, permission missing",
            |seen| seen.images = Err(ImagesError::Aws { action: "ec2:DescribeImages", error: denied() }),
            AMIS_READY,
            "NotChecked AMIsResolutionFailed",
            "ec2:DescribeImages: UnauthorizedOperation: You are not authorized to perform this operation.",
            Recheck::BackOff,
        ),
        (
            "parameters are throttled",
            |seen| seen.images = Err(ImagesError::Aws { action: "ssm:GetParameter", error: throttled() }),
            AMIS_READY,
            "NotChecked AMIsResolutionFailed",
            "ssm:GetParameter: RequestLimitExceeded: Request limit exceeded.",
            Recheck::BackOff,
        ),
        (
            "no subnets",
            |seen| seen.subnets = Ok(&[]),
            SUBNETS_READY,
            "False SubnetsNotFound",
            "SubnetSelector did not match any Subnets",
            Recheck::After(MINUTE),
        ),
        (
            "subnets cannot be read, permission missing",
            |seen| seen.subnets = Err(denied()),
            SUBNETS_READY,
            "NotChecked SubnetsResolutionFailed",
            "ec2:DescribeSubnets: UnauthorizedOperation: You are not authorized to perform this operation.",
            Recheck::BackOff,
        ),
        (
            "a region that does not answer",
            |seen| seen.subnets = Err(AwsError::unreachable("no route to host")),
            SUBNETS_READY,
            "NotChecked SubnetsResolutionFailed",
            "ec2:DescribeSubnets: no route to host",
            Recheck::BackOff,
        ),
        (
            "no groups",
            |seen| seen.security_groups = Ok(&[]),
            SECURITY_GROUPS_READY,
            "False SecurityGroupsNotFound",
            "SecurityGroupSelector did not match any SecurityGroups",
            Recheck::After(MINUTE),
        ),
        (
            "credentials are too old",
            |seen| seen.security_groups = Err(AwsError::new("ExpiredToken", "The token expired.")),
            SECURITY_GROUPS_READY,
            "NotChecked SecurityGroupsResolutionFailed",
            "ec2:DescribeSecurityGroups: ExpiredToken: The token expired.",
            Recheck::BackOff,
        ),
        (
            "reservations cannot be read, permission missing",
            |seen| seen.reservations = Some(Err(denied())),
            CAPACITY_RESERVATIONS_READY,
            "NotChecked CapacityReservationsResolutionFailed",
            "ec2:DescribeCapacityReservations: UnauthorizedOperation: You are not authorized to perform this operation.",
            Recheck::BackOff,
        ),
        (
            "placement groups cannot be read, permission missing",
            |seen| seen.placement_group = Err(denied()),
            PLACEMENT_GROUP_READY,
            "False PlacementGroupResolutionFailed",
            "Failed to resolve placement group",
            Recheck::BackOff,
        ),
        (
            "placement groups are throttled",
            |seen| seen.placement_group = Err(throttled()),
            PLACEMENT_GROUP_READY,
            "NotChecked PlacementGroupResolutionFailed",
            "ec2:DescribePlacementGroups: RequestLimitExceeded: Request limit exceeded.",
            Recheck::BackOff,
        ),
        (
            "no placement group",
            |seen| seen.placement_group = Ok(None),
            PLACEMENT_GROUP_READY,
            "False PlacementGroupNotFound",
            "Placement group \"my-group\" not found",
            Recheck::OnChange,
        ),
        (
            "no role",
            |seen| {
                let error = AwsError::new("NoSuchEntity", "The role with name r cannot be found.");
                seen.profile = Err(ProfileError::RoleNotFound { role: "/a/r".to_owned(), error });
            },
            INSTANCE_PROFILE_READY,
            "False RoleNotFound",
            "Role \"/a/r\" not found",
            Recheck::BackOff,
        ),
        (
            "profiles may not be made",
            |seen| {
                let error = AwsError::new("AccessDenied", "no");
                seen.profile = Err(ProfileError::Aws { call: "iam:CreateInstanceProfile", error });
            },
            INSTANCE_PROFILE_READY,
            "NotChecked InstanceProfileResolutionFailed",
            "iam:CreateInstanceProfile: AccessDenied: no",
            Recheck::BackOff,
        ),
    ];
    let class = class(json!({"placementGroupSelector": {"name": "my-group"}}));
    for (case, change, condition, word, message, next) in table {
        let (subnets, groups) = ([subnet("s1", 1)], groups());
        let group = PlacementGroup { id: "pg-1".to_owned(), ..PlacementGroup::default() };
        let mut observed = Observed { placement_group: Ok(Some(group)), ..good(&subnets, &groups) };
        change(&mut observed);
        let mut status = EC2NodeClassStatus::default();
        let results = decide(&class, observed, &mut status, now());
        let found = shown(&results, condition);
        assert_eq!((found.0.as_str(), found.1.as_str(), found.2), (word, message, next), "{case}");
        let troubled: Vec<&str> =
            results.iter().filter(|one| one.failure.is_some()).map(|one| one.condition).collect();
        assert_eq!(troubled, [condition], "{case}: one line in the log, and the others are not concerned");
        assert!(results.iter().filter_map(|one| one.failure.as_ref()).all(|one| !one.remedy.is_empty()));
    }
}

#[test]
fn lists_are_kept_on_failure_and_cleared_if_nothing_matches() {
    let listed = || EC2NodeClassStatus {
        amis: vec![image("ami-before")],
        subnets: vec![Default::default()],
        security_groups: vec![Default::default()],
        capacity_reservations: vec![Default::default()],
        instance_profile: Some("before".to_owned()),
        ..EC2NodeClassStatus::default()
    };
    let mut status = listed();
    let failing = Observed {
        images: Err(ImagesError::Aws { action: "ec2:DescribeImages", error: throttled() }),
        reservations: Some(Err(throttled())),
        placement_group: Err(throttled()),
        subnets: Err(throttled()),
        security_groups: Err(throttled()),
        profile: Err(ProfileError::Aws { call: "iam:GetInstanceProfile", error: throttled() }),
    };
    let results = decide(&class(json!({})), failing, &mut status, now());
    assert_eq!(status, listed());
    assert_eq!(requeue_after(&results, 0).0, Requeue::After(Duration::from_secs(1)));
    let empty = Observed {
        images: Ok(Vec::new()),
        reservations: Some(Ok(Vec::new())),
        placement_group: Ok(None),
        subnets: Ok(&[]),
        security_groups: Ok(&[]),
        profile: Ok("after".to_owned()),
    };
    decide(&class(json!({})), empty, &mut status, now());
    let expected =
        EC2NodeClassStatus { instance_profile: Some("after".to_owned()), ..EC2NodeClassStatus::default() };
    assert_eq!(status, expected);
}

#[test]
fn recheck_when_first_reservation_ends() {
    // Columns: seconds until the reservations end, seconds until the next reconcile.
    let table: [(&[i64], u64); 6] =
        [(&[], 60), (&[3600], 60), (&[20, 3600], 20), (&[61], 60), (&[0], 1), (&[-5, 30], 1)];
    for (ends, expected) in table {
        let end = |seconds: &i64| (now() + jiff::SignedDuration::from_secs(*seconds)).to_string();
        let list: Vec<Value> =
            ends.iter().map(|seconds| json!({"id": "cr", "endTime": end(seconds)})).collect();
        let reservations = serde_json::from_value(json!(list)).expect("reservations");
        let (result, _) = reservations::evaluate(Ok(reservations), now());
        assert_eq!(result.recheck, Recheck::After(Duration::from_secs(expected)), "{ends:?}");
    }
}

#[test]
fn retries_back_off() {
    let hurried = [
        ConditionResult::pending(AMIS_READY),
        ConditionResult::ready(SUBNETS_READY, Recheck::After(5 * MINUTE)),
    ];
    let seconds = |after| match after {
        Requeue::After(wait) => Duration::as_secs(&wait),
        Requeue::No => 0,
    };
    let mut times = 0;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let (after, next) = requeue_after(&hurried, times);
        times = next;
        waits.push(seconds(after));
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(requeue_after(&hurried, u32::MAX).0, Requeue::After(MINUTE));
    assert_eq!(requeue_after(&hurried[1..], times), (Requeue::After(5 * MINUTE), 0));
    assert_eq!(requeue_after(&[ConditionResult::ready(AMIS_READY, Recheck::OnChange)], 3), (Requeue::No, 0));
}
