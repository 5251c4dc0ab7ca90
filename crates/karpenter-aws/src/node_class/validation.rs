//! The condition `ValidationSucceeded`, which covers everything about a node class that can be checked before an
//! instance is launched.
//!
//! Only the first failure is reported, so checks run in upstream's order: the spec, then the other conditions, then a
//! dry run of a launch. Upstream does not check block devices. They are checked here, because the API server accepts
//! some that EC2 rejects. The outcome of a dry run is cached until the node class changes. The controller makes the
//! calls; this module builds the requests and interprets the responses.

pub mod block_devices;
pub(crate) mod cache;
pub mod dry_run;
pub mod instance_type;
#[cfg(test)]
mod tests;

use std::time::Duration;

use karpenter_api::conditions::ConditionSet;
use karpenter_api::types::{ConditionStatus, EC2NodeClass};

use super::conditions::{
    AMIS_READY, ConditionResult, Failure, INSTANCE_PROFILE_READY, NewStatus, Recheck, SECURITY_GROUPS_READY,
    SUBNETS_READY, VALIDATION_SUCCEEDED,
};
use super::remedy::failure;
use super::sources::{KubeletProblem, TypesNotDiscovered};
use super::tags::RestrictedTags;
use crate::api::AwsError;

pub const CLUSTER_CIDR_RESOLUTION_FAILED: &str = "ClusterCIDRResolutionFailed";
pub const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";
pub const TAG_VALIDATION_FAILED: &str = "TagValidationFailed";
pub const INVALID_BLOCK_DEVICE_MAPPINGS: &str = "InvalidBlockDeviceMappings";
pub const INVALID_SPECIFICATION: &str = "InvalidSpecification";

/// How often a node class is validated again.
pub(crate) const PERIOD: Duration = Duration::from_secs(10 * 60);
const DEPENDENCIES: [&str; 4] = [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY];
const AWAITING: &str = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";

fn invalid(reason: &'static str, message: impl Into<String>, remedy: &str) -> ConditionResult {
    ConditionResult::not_ready(VALIDATION_SUCCEEDED, reason, message, remedy, Recheck::OnChange)
}

/// The result for a node class that the API server accepted, but whose spec cannot be parsed.
pub(crate) fn unreadable(problem: &str) -> ConditionResult {
    let message = format!("spec cannot be parsed: {problem}");
    invalid(INVALID_SPECIFICATION, message, "correct the field in the spec of the nodeclass")
}

/// Whether the user data of the node class's nodes contains the service CIDR.
pub(crate) fn needs_cluster_cidr(class: &EC2NodeClass) -> bool {
    class.spec.resolved_ami_family() == "AL2023"
}

pub(crate) fn of_cluster_cidr(error: &AwsError) -> ConditionResult {
    if error.is_transient() || error.is_throttled() {
        return ConditionResult::pending(VALIDATION_SUCCEEDED);
    }
    let message = "Failed to detect the cluster CIDR".to_owned();
    let new_status = NewStatus::False { reason: CLUSTER_CIDR_RESOLUTION_FAILED, message };
    let failure = Some(failure("eks:DescribeCluster", error));
    ConditionResult { condition: VALIDATION_SUCCEEDED, new_status, recheck: Recheck::BackOff, failure }
}

pub(crate) fn of_kubelet(problem: KubeletProblem) -> ConditionResult {
    invalid(problem.reason, problem.message, "correct spec.kubelet of the nodeclass")
}

pub(crate) fn of_block_devices(class: &EC2NodeClass) -> Option<ConditionResult> {
    let problems = block_devices::problems(class.spec.block_device_mappings.as_deref().unwrap_or_default());
    let remedy =
        "give every entry of spec.blockDeviceMappings a deviceName and an ebs with a size or a snapshot";
    (!problems.is_empty()).then(|| invalid(INVALID_BLOCK_DEVICE_MAPPINGS, problems.join("; "), remedy))
}

/// The result if some condition that the dry run depends on is not true; `None` if all of them are true.
pub(crate) fn of_dependencies(set: &ConditionSet<'_>) -> Option<ConditionResult> {
    let has = |status| {
        DEPENDENCIES.iter().any(|condition| {
            set.get(condition).map_or(ConditionStatus::Unknown, |condition| condition.status) == status
        })
    };
    let (reason, message) = (DEPENDENCIES_NOT_READY, AWAITING.to_owned());
    let new_status = if has(ConditionStatus::False) {
        NewStatus::False { reason, message }
    } else if has(ConditionStatus::Unknown) {
        NewStatus::Unknown { reason, message }
    } else {
        return None;
    };
    // No failure is logged here, because it is logged for the other condition.
    let recheck = Recheck::After(PERIOD);
    Some(ConditionResult { condition: VALIDATION_SUCCEEDED, new_status, recheck, failure: None })
}

/// The result for invalid expressions; `None` if they have values for all discovered instance types.
pub(crate) fn of_expressions(
    answer: Result<Option<KubeletProblem>, TypesNotDiscovered>,
) -> Option<ConditionResult> {
    match answer {
        Ok(problem) => problem.map(of_kubelet),
        Err(TypesNotDiscovered) => Some(ConditionResult::pending(VALIDATION_SUCCEEDED)),
    }
}

pub(crate) fn of_tags(error: &RestrictedTags) -> ConditionResult {
    let remedy = "remove the tags from spec.tags; Karpenter sets them";
    invalid(TAG_VALIDATION_FAILED, error.to_string(), remedy)
}

/// The outcome of the dry run of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// EC2 rejects the launch, until the node class or the permissions change.
    Refused {
        reason: &'static str,
        message: String,
    },
}

impl Outcome {
    pub(crate) fn result(&self, failure: Option<Failure>) -> ConditionResult {
        let new_status = match self {
            Self::Passed => NewStatus::True,
            Self::Refused { reason, message } => NewStatus::False { reason, message: message.clone() },
        };
        ConditionResult {
            condition: VALIDATION_SUCCEEDED,
            new_status,
            recheck: Recheck::After(PERIOD),
            failure,
        }
    }
}
