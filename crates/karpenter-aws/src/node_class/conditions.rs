//! The status conditions of an EC2NodeClass, and how the result of a check changes its condition.
//!
//! Types, reasons and messages are upstream's; for failures that upstream only logs, there are further reasons. If a
//! condition is true for the current generation and cannot be checked, it stays true with the error as its message, so
//! that a call that fails for a minute does not block launches.

use std::time::Duration;

use karpenter_api::conditions::ConditionSet;

pub const AMIS_READY: &str = "AMIsReady";
pub const SUBNETS_READY: &str = "SubnetsReady";
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
pub const READY: &str = "Ready";

/// All condition types in upstream's order; the root condition comes last.
pub(crate) const ALL: [&str; 8] = [
    AMIS_READY,
    CAPACITY_RESERVATIONS_READY,
    PLACEMENT_GROUP_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
    VALIDATION_SUCCEEDED,
    READY,
];

/// The status that a check gives a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewStatus {
    True,
    False {
        reason: &'static str,
        message: String,
    },
    Unknown {
        reason: &'static str,
        message: String,
    },
    /// The check failed. A condition that is true stays true with this message; any other becomes unknown.
    NotChecked {
        reason: &'static str,
        message: String,
    },
    Unchanged,
}

/// When the node class is reconciled again because of this condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recheck {
    /// Only after the node class changed.
    OnChange,
    After(Duration),
    /// After a delay that grows exponentially.
    BackOff,
}

/// An error and its fix, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub error: String,
    pub remedy: String,
}

/// The result of checking one condition of a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionResult {
    pub condition: &'static str,
    pub new_status: NewStatus,
    pub recheck: Recheck,
    pub failure: Option<Failure>,
}

impl ConditionResult {
    pub(crate) fn ready(condition: &'static str, recheck: Recheck) -> Self {
        Self { condition, new_status: NewStatus::True, recheck, failure: None }
    }

    /// The condition is false, and stays false until the node class or its AWS resources change.
    pub(crate) fn not_ready(
        condition: &'static str,
        reason: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
        recheck: Recheck,
    ) -> Self {
        let message = message.into();
        let failure = Failure { error: message.clone(), remedy: remedy.into() };
        Self { condition, new_status: NewStatus::False { reason, message }, recheck, failure: Some(failure) }
    }

    /// The condition could not be checked, because of a failure.
    pub(crate) fn not_checked(condition: &'static str, reason: &'static str, failure: Failure) -> Self {
        let message = failure.error.clone();
        Self {
            condition,
            new_status: NewStatus::NotChecked { reason, message },
            recheck: Recheck::BackOff,
            failure: Some(failure),
        }
    }

    /// The condition cannot be checked yet, because inputs of the check are not known yet. No failure is logged.
    pub(crate) fn pending(condition: &'static str) -> Self {
        Self { condition, new_status: NewStatus::Unchanged, recheck: Recheck::BackOff, failure: None }
    }
}

/// Changes the conditions according to the result of a check.
pub fn record(set: &mut ConditionSet<'_>, result: &ConditionResult) {
    let condition = result.condition;
    match &result.new_status {
        NewStatus::True => set.set_true(condition),
        NewStatus::False { reason, message } => set.set_false(condition, reason, message),
        NewStatus::Unknown { reason, message } => set.set_unknown_with_reason(condition, reason, message),
        NewStatus::NotChecked { message, .. } if set.is_true(condition) => {
            set.set_true_with_reason(condition, condition, message)
        }
        NewStatus::NotChecked { reason, message } => set.set_unknown_with_reason(condition, reason, message),
        NewStatus::Unchanged => false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use karpenter_api::conditions::ec2_node_class_conditions;
    use karpenter_api::types::{Condition, ConditionStatus};
    use kube::api::ObjectMeta;

    #[test]
    fn true_condition_of_same_generation_stays_true_when_check_fails() {
        let not_checked = || NewStatus::NotChecked { reason: "Failed", message: "no answer".to_owned() };
        let bad = NewStatus::False { reason: "NotFound", message: "none".to_owned() };
        // Columns: status before the check, the generation it was observed for, result of the check, expected
        // condition.
        let table = [
            (None, 2, not_checked(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::True), 2, not_checked(), ("True", "SubnetsReady", "no answer")),
            (Some(ConditionStatus::True), 1, not_checked(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::False), 2, not_checked(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::True), 2, bad.clone(), ("False", "NotFound", "none")),
            (Some(ConditionStatus::False), 2, NewStatus::True, ("True", "SubnetsReady", "")),
            (Some(ConditionStatus::False), 2, NewStatus::Unchanged, ("False", "Before", "before")),
        ];
        for (known, generation, new_status, expected) in table {
            let metadata = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
            let mut conditions: Vec<Condition> = known
                .map(|status| Condition {
                    type_: SUBNETS_READY.to_owned(),
                    status,
                    observed_generation: Some(generation),
                    reason: "Before".to_owned(),
                    message: "before".to_owned(),
                    ..Condition::default()
                })
                .into_iter()
                .collect();
            let case = format!("{known:?} {generation} {new_status:?}");
            let types = ec2_node_class_conditions(true);
            let mut set = ConditionSet::open(types, &metadata, &mut conditions, Timestamp::UNIX_EPOCH);
            let result = ConditionResult {
                condition: SUBNETS_READY,
                new_status,
                recheck: Recheck::OnChange,
                failure: None,
            };
            record(&mut set, &result);
            let found = set.get(SUBNETS_READY).expect("a condition");
            assert_eq!(
                (found.status.as_str(), found.reason.as_str(), found.message.as_str()),
                expected,
                "{case}"
            );
        }
    }
}
