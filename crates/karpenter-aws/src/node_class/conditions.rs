//! The conditions of a class, and what becomes of one when something was found out.
//!
//! Types, reasons and messages that upstream has are upstream's. Beyond them there are reasons for what upstream only
//! logs. What was true for this version of the class stays true while it cannot be looked at: a call that fails for a
//! minute closes no class that can still be launched with, but the condition's message says so.

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

/// In the order in which upstream looks at them, the root last.
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

/// What becomes of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    True,
    False {
        reason: &'static str,
        message: String,
    },
    Unknown {
        reason: &'static str,
        message: String,
    },
    /// It could not be looked at: true stays true, with this message; anything else becomes unknown.
    Unseen {
        reason: &'static str,
        message: String,
    },
    Unchanged,
}

/// When the class is looked at again for this condition's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Only when the class changes.
    OnChange,
    After(Duration),
    /// Soon, and later each time in a row.
    BackOff,
}

/// What somebody who reads logs should know: what happened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub error: String,
    pub remedy: String,
}

/// What was found out about one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub condition: &'static str,
    pub verdict: Verdict,
    pub next: Next,
    pub trouble: Option<Trouble>,
}

impl Finding {
    /// All is well.
    pub(crate) fn good(condition: &'static str, next: Next) -> Self {
        Self { condition, verdict: Verdict::True, next, trouble: None }
    }

    /// Wrong for good: nothing but a change of the world helps.
    pub(crate) fn bad(
        condition: &'static str,
        reason: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
        next: Next,
    ) -> Self {
        let message = message.into();
        let trouble = Trouble { error: message.clone(), remedy: remedy.into() };
        Self { condition, verdict: Verdict::False { reason, message }, next, trouble: Some(trouble) }
    }

    /// It could not be looked at.
    pub(crate) fn unseen(condition: &'static str, reason: &'static str, trouble: Trouble) -> Self {
        let message = trouble.error.clone();
        Self {
            condition,
            verdict: Verdict::Unseen { reason, message },
            next: Next::BackOff,
            trouble: Some(trouble),
        }
    }

    /// Nothing can be said yet, and it is nobody's fault.
    pub(crate) fn not_yet(condition: &'static str) -> Self {
        Self { condition, verdict: Verdict::Unchanged, next: Next::BackOff, trouble: None }
    }
}

/// Writes down what was found.
pub fn record(set: &mut ConditionSet<'_>, finding: &Finding) {
    let condition = finding.condition;
    match &finding.verdict {
        Verdict::True => set.set_true(condition),
        Verdict::False { reason, message } => set.set_false(condition, reason, message),
        Verdict::Unknown { reason, message } => set.set_unknown_with_reason(condition, reason, message),
        Verdict::Unseen { message, .. } if set.is_true(condition) => {
            set.set_true_with_reason(condition, condition, message)
        }
        Verdict::Unseen { reason, message } => set.set_unknown_with_reason(condition, reason, message),
        Verdict::Unchanged => false,
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
    fn what_cannot_be_looked_at_stays_as_it_was() {
        let unseen = || Verdict::Unseen { reason: "Failed", message: "no answer".to_owned() };
        let bad = Verdict::False { reason: "NotFound", message: "none".to_owned() };
        // what was known, for which generation, what was found, what is known then
        let table = [
            (None, 2, unseen(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::True), 2, unseen(), ("True", "SubnetsReady", "no answer")),
            (Some(ConditionStatus::True), 1, unseen(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::False), 2, unseen(), ("Unknown", "Failed", "no answer")),
            (Some(ConditionStatus::True), 2, bad.clone(), ("False", "NotFound", "none")),
            (Some(ConditionStatus::False), 2, Verdict::True, ("True", "SubnetsReady", "")),
            (Some(ConditionStatus::False), 2, Verdict::Unchanged, ("False", "Before", "before")),
        ];
        for (known, generation, verdict, expected) in table {
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
            let case = format!("{known:?} {generation} {verdict:?}");
            let types = ec2_node_class_conditions(true);
            let mut set = ConditionSet::open(types, &metadata, &mut conditions, Timestamp::UNIX_EPOCH);
            let finding = Finding { condition: SUBNETS_READY, verdict, next: Next::OnChange, trouble: None };
            record(&mut set, &finding);
            let found = set.get(SUBNETS_READY).expect("a condition");
            assert_eq!(
                (found.status.as_str(), found.reason.as_str(), found.message.as_str()),
                expected,
                "{case}"
            );
        }
    }
}
