//! The condition `SubnetsReady`.

use std::time::Duration;

use karpenter_api::types::SubnetStatus;

use super::conditions::{ConditionResult, Recheck, SUBNETS_READY};
use super::remedy::failure;
use crate::api::AwsError;
use crate::api::ec2::Subnet;
use crate::subnets::status;

const NOT_FOUND: &str = "SubnetsNotFound";
const RESOLUTION_FAILED: &str = "SubnetsResolutionFailed";

/// How often the subnets of a node class are resolved again.
const PERIOD: Duration = Duration::from_secs(60);

/// The result for the condition, and the new list of subnets for the status; if `None`, the status keeps its list.
pub(crate) fn evaluate(answer: Result<&[Subnet], AwsError>) -> (ConditionResult, Option<Vec<SubnetStatus>>) {
    match answer {
        Ok([]) => {
            let result = ConditionResult::not_ready(
                SUBNETS_READY,
                NOT_FOUND,
                "SubnetSelector did not match any Subnets",
                "correct spec.subnetSelectorTerms, or tag subnets of this account and region so that they match",
                Recheck::After(PERIOD),
            );
            (result, Some(Vec::new()))
        }
        Ok(subnets) => (ConditionResult::ready(SUBNETS_READY, Recheck::After(PERIOD)), Some(status(subnets))),
        Err(error) => {
            let failure = failure("ec2:DescribeSubnets", &error);
            (ConditionResult::not_checked(SUBNETS_READY, RESOLUTION_FAILED, failure), None)
        }
    }
}
