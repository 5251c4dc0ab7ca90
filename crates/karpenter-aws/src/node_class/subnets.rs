//! The condition `SubnetsReady`.

use std::time::Duration;

use karpenter_api::types::SubnetStatus;

use super::conditions::{Finding, Next, SUBNETS_READY};
use super::remedy::trouble;
use crate::api::AwsError;
use crate::api::ec2::Subnet;
use crate::subnets::status;

const NOT_FOUND: &str = "SubnetsNotFound";
const RESOLUTION_FAILED: &str = "SubnetsResolutionFailed";

const PERIOD: Duration = Duration::from_secs(60);

/// What an answer means, and what the status lists then; `None` leaves the list as it is.
pub(crate) fn judge(answer: Result<&[Subnet], AwsError>) -> (Finding, Option<Vec<SubnetStatus>>) {
    match answer {
        Ok([]) => {
            let finding = Finding::bad(
                SUBNETS_READY,
                NOT_FOUND,
                "SubnetSelector did not match any Subnets",
                "correct spec.subnetSelectorTerms, or tag subnets of this account and region so that they match",
                Next::After(PERIOD),
            );
            (finding, Some(Vec::new()))
        }
        Ok(subnets) => (Finding::good(SUBNETS_READY, Next::After(PERIOD)), Some(status(subnets))),
        Err(error) => {
            let trouble = trouble("ec2:DescribeSubnets", &error);
            (Finding::unseen(SUBNETS_READY, RESOLUTION_FAILED, trouble), None)
        }
    }
}
