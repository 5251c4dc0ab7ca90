//! The condition `ValidationSucceeded`: everything about a class that can be checked before a machine is needed.
//!
//! First what the class says, then what it depends on, then a launch that is only tried out. The order is upstream's,
//! because the first failure is the one that is told; checks of disks are ours, because the API server admits disks
//! that cannot exist. What a try-out showed is remembered for as long as nothing about the class changes. The calls
//! are made by the controller; here is what they ask for and what their answers mean.

pub mod block_devices;
pub mod dry_run;
pub mod instance_type;
pub(crate) mod remembered;
#[cfg(test)]
mod tests;

use std::time::Duration;

use karpenter_api::conditions::ConditionSet;
use karpenter_api::types::{ConditionStatus, EC2NodeClass};

use super::conditions::{
    AMIS_READY, Finding, INSTANCE_PROFILE_READY, Next, SECURITY_GROUPS_READY, SUBNETS_READY, Trouble,
    VALIDATION_SUCCEEDED, Verdict,
};
use super::remedy::trouble;
use super::sources::{KubeletProblem, NotYet};
use super::tags::RestrictedTags;
use crate::api::AwsError;

pub const CLUSTER_CIDR_RESOLUTION_FAILED: &str = "ClusterCIDRResolutionFailed";
pub const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";
pub const TAG_VALIDATION_FAILED: &str = "TagValidationFailed";
pub const INVALID_BLOCK_DEVICE_MAPPINGS: &str = "InvalidBlockDeviceMappings";
pub const INVALID_SPECIFICATION: &str = "InvalidSpecification";

/// What was checked is checked again after this long, changed or not.
pub(crate) const PERIOD: Duration = Duration::from_secs(10 * 60);
const DEPENDENCIES: [&str; 4] = [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY];
const AWAITING: &str = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";

fn wrong(reason: &'static str, message: impl Into<String>, remedy: &str) -> Finding {
    Finding::bad(VALIDATION_SUCCEEDED, reason, message, remedy, Next::OnChange)
}

/// The API server admitted what cannot be read.
pub(crate) fn unreadable(problem: &str) -> Finding {
    let message = format!("spec cannot be read: {problem}");
    wrong(INVALID_SPECIFICATION, message, "correct the field in the class's spec")
}

/// Whether nodes of the class have to know the range of service addresses.
pub(crate) fn needs_cluster_cidr(class: &EC2NodeClass) -> bool {
    class.spec.resolved_ami_family() == "AL2023"
}

pub(crate) fn of_cluster_cidr(error: &AwsError) -> Finding {
    if error.is_transient() || error.is_throttled() {
        return Finding::not_yet(VALIDATION_SUCCEEDED);
    }
    let message = "Failed to detect the cluster CIDR".to_owned();
    let verdict = Verdict::False { reason: CLUSTER_CIDR_RESOLUTION_FAILED, message };
    let trouble = Some(trouble("eks:DescribeCluster", error));
    Finding { condition: VALIDATION_SUCCEEDED, verdict, next: Next::BackOff, trouble }
}

pub(crate) fn of_kubelet(problem: KubeletProblem) -> Finding {
    wrong(problem.reason, problem.message, "correct spec.kubelet of the class")
}

pub(crate) fn of_block_devices(class: &EC2NodeClass) -> Option<Finding> {
    let problems = block_devices::problems(class.spec.block_device_mappings.as_deref().unwrap_or_default());
    let remedy =
        "give every entry of spec.blockDeviceMappings a deviceName and an ebs with a size or a snapshot";
    (!problems.is_empty()).then(|| wrong(INVALID_BLOCK_DEVICE_MAPPINGS, problems.join("; "), remedy))
}

/// What has to be known before a launch can be tried out. `None` if all of it is.
pub(crate) fn of_dependencies(set: &ConditionSet<'_>) -> Option<Finding> {
    let has = |status| {
        DEPENDENCIES.iter().any(|condition| {
            set.get(condition).map_or(ConditionStatus::Unknown, |condition| condition.status) == status
        })
    };
    let (reason, message) = (DEPENDENCIES_NOT_READY, AWAITING.to_owned());
    let verdict = if has(ConditionStatus::False) {
        Verdict::False { reason, message }
    } else if has(ConditionStatus::Unknown) {
        Verdict::Unknown { reason, message }
    } else {
        return None;
    };
    // The conditions it waits for say what is wrong and what to do.
    let next = Next::After(PERIOD);
    Some(Finding { condition: VALIDATION_SUCCEEDED, verdict, next, trouble: None })
}

/// `None` if expressions are fine with every type there is.
pub(crate) fn of_expressions(answer: Result<Option<KubeletProblem>, NotYet>) -> Option<Finding> {
    match answer {
        Ok(problem) => problem.map(of_kubelet),
        Err(NotYet) => Some(Finding::not_yet(VALIDATION_SUCCEEDED)),
    }
}

pub(crate) fn of_tags(error: &RestrictedTags) -> Finding {
    let remedy = "take the tags out of spec.tags: Karpenter sets them itself";
    wrong(TAG_VALIDATION_FAILED, error.to_string(), remedy)
}

/// What trying out a launch showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// It would be refused, for a reason that holds until somebody changes something.
    Refused {
        reason: &'static str,
        message: String,
    },
}

impl Outcome {
    pub(crate) fn finding(&self, trouble: Option<Trouble>) -> Finding {
        let verdict = match self {
            Self::Passed => Verdict::True,
            Self::Refused { reason, message } => Verdict::False { reason, message: message.clone() },
        };
        Finding { condition: VALIDATION_SUCCEEDED, verdict, next: Next::After(PERIOD), trouble }
    }
}
