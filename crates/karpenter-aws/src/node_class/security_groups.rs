//! The condition `SecurityGroupsReady`.

use std::time::Duration;

use karpenter_api::types::SecurityGroupStatus;

use super::conditions::{ConditionResult, Recheck, SECURITY_GROUPS_READY};
use super::remedy::failure;
use crate::api::AwsError;
use crate::api::ec2::SecurityGroup;
use crate::security_groups::status;

const NOT_FOUND: &str = "SecurityGroupsNotFound";
const RESOLUTION_FAILED: &str = "SecurityGroupsResolutionFailed";

/// How often the security groups of a node class are resolved again.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// How often security groups are resolved again while no group matches.
const PERIOD_WITHOUT: Duration = Duration::from_secs(60);

/// The result for the condition, and the new list of security groups for the status; if `None`, the status keeps its
/// list.
pub(crate) fn evaluate(
    answer: Result<&[SecurityGroup], AwsError>,
) -> (ConditionResult, Option<Vec<SecurityGroupStatus>>) {
    match answer {
        Ok([]) => {
            let result = ConditionResult::not_ready(
                SECURITY_GROUPS_READY,
                NOT_FOUND,
                "SecurityGroupSelector did not match any SecurityGroups",
                "correct spec.securityGroupSelectorTerms, or tag groups of this account and region so that they match",
                Recheck::After(PERIOD_WITHOUT),
            );
            (result, Some(Vec::new()))
        }
        Ok(groups) => {
            (ConditionResult::ready(SECURITY_GROUPS_READY, Recheck::After(PERIOD)), Some(status(groups)))
        }
        Err(error) => {
            let failure = failure("ec2:DescribeSecurityGroups", &error);
            (ConditionResult::not_checked(SECURITY_GROUPS_READY, RESOLUTION_FAILED, failure), None)
        }
    }
}
