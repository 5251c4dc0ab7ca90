//! What is told about classes beyond their conditions: one line in the log when something begins to be wrong and one
//! when it is over, and events when conditions change.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use karpenter_api::types::{Condition, EC2NodeClass};
use karpenter_cluster::controllers::context::{name_of, uid_of};
use karpenter_controllers::events::Notice;

use super::conditions::{ALL, Finding, Trouble, Verdict};

/// Stands where a condition's name would.
const CLEAN_UP: &str = "clean-up";

/// What was told last, by uid of the class and condition: the same trouble is told once, however often it is met.
#[derive(Default)]
pub(crate) struct Told {
    troubles: Mutex<BTreeMap<(String, &'static str), String>>,
}

/// What is to be said about a finding.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Begins,
    Over,
    Nothing,
}

impl Told {
    pub(crate) fn tell(&self, class: &EC2NodeClass, finding: &Finding) {
        let (nodeclass, condition) = (name_of(class), finding.condition);
        match self.news(uid_of(class), finding) {
            News::Begins => {
                let Some(trouble) = &finding.trouble else { return };
                let (error, what_to_do) = (trouble.error.as_str(), trouble.remedy.as_str());
                tracing::error!(nodeclass, condition, error, what_to_do, "{}", summary(&finding.verdict));
            }
            News::Over => tracing::info!(nodeclass, condition, "the nodeclass's trouble is over"),
            News::Nothing => {}
        }
    }

    fn news(&self, uid: &str, finding: &Finding) -> News {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (uid.to_owned(), finding.condition);
        match (&finding.trouble, &finding.verdict) {
            (Some(trouble), _) => {
                let before = troubles.insert(key, trouble.error.clone());
                if before.as_ref() == Some(&trouble.error) { News::Nothing } else { News::Begins }
            }
            (None, Verdict::True) if troubles.remove(&key).is_some() => News::Over,
            (None, _) => News::Nothing,
        }
    }

    /// Something of a class that is about to go cannot be deleted.
    pub(crate) fn tell_clean_up(&self, class: &EC2NodeClass, trouble: &Trouble) {
        let key = (uid_of(class).to_owned(), CLEAN_UP);
        let before = {
            let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
            troubles.insert(key, trouble.error.clone())
        };
        if before.as_ref() != Some(&trouble.error) {
            let (error, what_to_do) = (trouble.error.as_str(), trouble.remedy.as_str());
            let nodeclass = name_of(class);
            tracing::error!(
                nodeclass,
                error,
                what_to_do,
                "a deleted nodeclass could not be cleaned up after"
            );
        }
    }

    /// The class is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.retain(|(of, _), _| of != uid);
    }
}

fn summary(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unseen { .. } => "a nodeclass could not be looked at",
        Verdict::False { .. } | Verdict::Unknown { .. } | Verdict::True | Verdict::Unchanged => {
            "a nodeclass cannot be launched with"
        }
    }
}

/// One event for each condition that has another status than before.
pub(crate) fn transitions(class: &EC2NodeClass, before: &[Condition], after: &[Condition]) -> Vec<Notice> {
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
        Some(Notice::normal(class, reason, message.clone()).of_episode(message))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::conditions::{Next, SUBNETS_READY};
    use karpenter_api::types::ConditionStatus;

    fn finding(error: Option<&str>, verdict: Verdict) -> Finding {
        let trouble = error.map(|error| Trouble { error: error.to_owned(), remedy: "do this".to_owned() });
        Finding { condition: SUBNETS_READY, verdict, next: Next::OnChange, trouble }
    }

    #[test]
    fn trouble_is_told_when_it_begins_changes_and_ends() {
        let told = Told::default();
        let unseen = || Verdict::Unseen { reason: "Failed", message: String::new() };
        let steps = [
            ("all is well", None, Verdict::True, News::Nothing),
            ("it begins", Some("denied"), unseen(), News::Begins),
            ("it goes on", Some("denied"), unseen(), News::Nothing),
            ("it changes", Some("throttled"), unseen(), News::Begins),
            ("nothing is known", None, Verdict::Unchanged, News::Nothing),
            ("it is over", None, Verdict::True, News::Over),
            ("all is well again", None, Verdict::True, News::Nothing),
            ("it is back", Some("throttled"), unseen(), News::Begins),
        ];
        for (case, error, verdict, expected) in steps {
            assert_eq!(told.news("uid", &finding(error, verdict)), expected, "{case}");
        }
        assert_eq!(told.news("other", &finding(Some("throttled"), unseen())), News::Begins, "another class");
        told.forget("uid");
        assert_eq!(
            told.news("uid", &finding(Some("throttled"), unseen())),
            News::Begins,
            "a forgotten class"
        );
        assert_eq!(told.news("other", &finding(Some("throttled"), unseen())), News::Nothing);
    }

    #[test]
    fn conditions_that_change_are_events() {
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
        let notices = transitions(&EC2NodeClass::default(), &before, &after);
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
