//! The condition `SecurityGroupsReady`.

use std::time::Duration;

use karpenter_api::types::SecurityGroupStatus;

use super::conditions::{Finding, Next, SECURITY_GROUPS_READY};
use super::remedy::trouble;
use crate::api::AwsError;
use crate::api::ec2::SecurityGroup;
use crate::security_groups::status;

const NOT_FOUND: &str = "SecurityGroupsNotFound";
const RESOLUTION_FAILED: &str = "SecurityGroupsResolutionFailed";

const PERIOD: Duration = Duration::from_secs(5 * 60);
const PERIOD_WITHOUT: Duration = Duration::from_secs(60);

/// What an answer means, and what the status lists then; `None` leaves the list as it is.
pub(crate) fn judge(
    answer: Result<&[SecurityGroup], AwsError>,
) -> (Finding, Option<Vec<SecurityGroupStatus>>) {
    match answer {
        Ok([]) => {
            let finding = Finding::bad(
                SECURITY_GROUPS_READY,
                NOT_FOUND,
                "SecurityGroupSelector did not match any SecurityGroups",
                "correct spec.securityGroupSelectorTerms, or tag groups of this account and region so that they match",
                Next::After(PERIOD_WITHOUT),
            );
            (finding, Some(Vec::new()))
        }
        Ok(groups) => (Finding::good(SECURITY_GROUPS_READY, Next::After(PERIOD)), Some(status(groups))),
        Err(error) => {
            let trouble = trouble("ec2:DescribeSecurityGroups", &error);
            (Finding::unseen(SECURITY_GROUPS_READY, RESOLUTION_FAILED, trouble), None)
        }
    }
}
