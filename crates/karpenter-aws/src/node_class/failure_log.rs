//! Log lines and events about node classes. A line is logged when a condition starts to fail, when it fails with
//! another error, and when it recovers. An event is published when the status of a condition changes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use karpenter_api::types::{Condition, EC2NodeClass};
use karpenter_controllers::events::ObjectEvent;
use karpenter_runtime::object::{name_of, uid_of};

use super::conditions::{ALL, ConditionResult, Failure, NewStatus};

/// The key under which failures of cleanup are stored, in place of a condition type.
const CLEANUP: &str = "cleanup";

/// For each node class (by uid) and condition: the error that was last logged, so that it is not logged again.
#[derive(Default)]
pub(crate) struct FailureLog {
    failures: Mutex<BTreeMap<(String, &'static str), String>>,
}

/// Which line is logged for a result.
#[derive(Debug, PartialEq, Eq)]
enum LogAction {
    Failure,
    Recovery,
    Nothing,
}

impl FailureLog {
    pub(crate) fn log_result(&self, class: &EC2NodeClass, result: &ConditionResult) {
        let (nodeclass, condition) = (name_of(class), result.condition);
        match self.action_for(uid_of(class), result) {
            LogAction::Failure => {
                let Some(failure) = &result.failure else { return };
                let (error, advice) = (failure.error.as_str(), failure.remedy.as_str());
                tracing::error!(nodeclass, condition, error, advice, "{}", summary(&result.new_status));
            }
            LogAction::Recovery => tracing::info!(nodeclass, condition, "nodeclass condition recovered"),
            LogAction::Nothing => {}
        }
    }

    fn action_for(&self, uid: &str, result: &ConditionResult) -> LogAction {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (uid.to_owned(), result.condition);
        match (&result.failure, &result.new_status) {
            (Some(failure), _) => {
                let before = failures.insert(key, failure.error.clone());
                if before.as_ref() == Some(&failure.error) { LogAction::Nothing } else { LogAction::Failure }
            }
            (None, NewStatus::True) if failures.remove(&key).is_some() => LogAction::Recovery,
            (None, _) => LogAction::Nothing,
        }
    }

    /// Logs that AWS resources of a deleted node class could not be deleted.
    pub(crate) fn log_cleanup(&self, class: &EC2NodeClass, failure: &Failure) {
        let key = (uid_of(class).to_owned(), CLEANUP);
        let before = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.insert(key, failure.error.clone())
        };
        if before.as_ref() != Some(&failure.error) {
            let (error, advice) = (failure.error.as_str(), failure.remedy.as_str());
            let nodeclass = name_of(class);
            tracing::error!(nodeclass, error, advice, "failed to clean up deleted nodeclass");
        }
    }

    /// Forgets what was logged for a deleted node class.
    pub(crate) fn forget(&self, uid: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|(of, _), _| of != uid);
    }
}

fn summary(new_status: &NewStatus) -> &'static str {
    match new_status {
        NewStatus::NotChecked { .. } => "cannot check nodeclass",
        NewStatus::False { .. } | NewStatus::Unknown { .. } | NewStatus::True | NewStatus::Unchanged => {
            "nodeclass is not ready"
        }
    }
}

/// One event for each condition whose status differs.
pub(crate) fn condition_events(
    class: &EC2NodeClass,
    before: &[Condition],
    after: &[Condition],
) -> Vec<ObjectEvent> {
    let changed = after.iter().filter_map(|now| {
        let old = before.iter().find(|old| old.type_ == now.type_)?;
        if old.status == now.status {
            return None;
        }
        let reason = ALL.into_iter().find(|known| *known == now.type_)?;
        let mut message = format!(
            "Status condition transitioned, Type: {}, Status: {} -> {}, Reason: {}",
            now.type_,
            old.status.as_str(),
            now.status.as_str(),
            now.reason
        );
        if !now.message.is_empty() {
            message.push_str(", Message: ");
            message.push_str(&now.message);
        }
        Some(ObjectEvent::normal(class, reason, message.clone()).dedupe_by(message))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::conditions::{Recheck, SUBNETS_READY};
    use karpenter_api::types::ConditionStatus;

    fn result(error: Option<&str>, new_status: NewStatus) -> ConditionResult {
        let failure = error.map(|error| Failure { error: error.to_owned(), remedy: "fix".to_owned() });
        ConditionResult { condition: SUBNETS_READY, new_status, recheck: Recheck::OnChange, failure }
    }

    #[test]
    fn failure_is_logged_when_it_starts_changes_and_ends() {
        let failure_log = FailureLog::default();
        let not_checked = || NewStatus::NotChecked { reason: "Failed", message: String::new() };
        let steps = [
            ("ready", None, NewStatus::True, LogAction::Nothing),
            ("fails", Some("denied"), not_checked(), LogAction::Failure),
            ("same failure", Some("denied"), not_checked(), LogAction::Nothing),
            ("other failure", Some("throttled"), not_checked(), LogAction::Failure),
            ("unchanged", None, NewStatus::Unchanged, LogAction::Nothing),
            ("recovers", None, NewStatus::True, LogAction::Recovery),
            ("still ready", None, NewStatus::True, LogAction::Nothing),
            ("fails again", Some("throttled"), not_checked(), LogAction::Failure),
        ];
        for (case, error, new_status, expected) in steps {
            assert_eq!(failure_log.action_for("uid", &result(error, new_status)), expected, "{case}");
        }
        assert_eq!(
            failure_log.action_for("other", &result(Some("throttled"), not_checked())),
            LogAction::Failure,
            "another class"
        );
        failure_log.forget("uid");
        assert_eq!(
            failure_log.action_for("uid", &result(Some("throttled"), not_checked())),
            LogAction::Failure,
            "a forgotten class"
        );
        assert_eq!(
            failure_log.action_for("other", &result(Some("throttled"), not_checked())),
            LogAction::Nothing
        );
    }

    #[test]
    fn each_changed_condition_gets_an_event() {
        let condition = |kind: &str, status, message: &str| Condition {
            type_: kind.to_owned(),
            status,
            reason: "Because".to_owned(),
            message: message.to_owned(),
            ..Condition::default()
        };
        let before = [
            condition("Ready", ConditionStatus::Unknown, ""),
            condition("AMIsReady", ConditionStatus::True, ""),
            condition("SubnetsReady", ConditionStatus::Unknown, ""),
        ];
        let after = [
            condition("Ready", ConditionStatus::False, "SubnetsReady=False"),
            condition("AMIsReady", ConditionStatus::True, "other words"),
            condition("SubnetsReady", ConditionStatus::True, ""),
            condition("PlacementGroupReady", ConditionStatus::True, ""),
        ];
        let notices = condition_events(&EC2NodeClass::default(), &before, &after);
        let found: Vec<(&str, &str)> =
            notices.iter().map(|notice| (notice.reason.as_ref(), notice.message.as_str())).collect();
        let expected = [
            (
                "Ready",
                "Status condition transitioned, Type: Ready, Status: Unknown -> False, Reason: Because, \
                 Message: SubnetsReady=False",
            ),
            (
                "SubnetsReady",
                "Status condition transitioned, Type: SubnetsReady, Status: Unknown -> True, Reason: Because",
            ),
        ];
        assert_eq!(found, expected);
    }
}
