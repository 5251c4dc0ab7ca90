//! What the cloud's answer to a launch means for the claim.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::labels::PROVISIONER_NAME;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::{CloudError, Instance};
use karpenter_model::labels::DOTTED;

use crate::nodeclaim::hooks::GiveUp;
use crate::nodeclaim::{LAUNCHED, change_conditions, condition, condition_status};

/// Events and conditions hold no more than this.
const MESSAGE_BYTES_MAX: usize = 1024;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
pub(super) enum LaunchOutcome {
    Launched(Box<Instance>),
    GiveUp { why: GiveUp, error: String },
    TryAgain { reason: String, message: String },
}

/// Whether the claim still waits for a machine.
pub(super) fn is_open(claim: &NodeClaim) -> bool {
    condition_status(claim, LAUNCHED) == ConditionStatus::Unknown
}

pub(super) fn judge(answer: Result<Instance, CloudError>) -> LaunchOutcome {
    let error = match answer {
        Ok(instance) => return LaunchOutcome::Launched(Box::new(instance)),
        Err(error) => error,
    };
    let text = error.to_string();
    match error {
        CloudError::InsufficientCapacity { .. } => {
            LaunchOutcome::GiveUp { why: GiveUp::InsufficientCapacity, error: text }
        }
        CloudError::NodeClassNotReady { .. } => {
            LaunchOutcome::GiveUp { why: GiveUp::NodeClassNotReady, error: text }
        }
        CloudError::CreateRefused { reason, message } => LaunchOutcome::TryAgain { reason, message },
        CloudError::NotFound { .. }
        | CloudError::NotEvaluated { .. }
        | CloudError::RebootNotImplemented
        | CloudError::RebootFailed { .. }
        | CloudError::Throttled { .. }
        | CloudError::Unauthorized { .. }
        | CloudError::Transient { .. } => {
            LaunchOutcome::TryAgain { reason: "LaunchFailed".to_owned(), message: cut(&text) }
        }
    }
}

/// Pods may select nodes of the API before v1 by keys of before 0.15, and the scheduler compares letters.
fn add_dotted(labels: &mut BTreeMap<String, String>) {
    for (dotted, today) in DOTTED {
        if let Some(value) = labels.get(today).cloned() {
            labels.entry(dotted.to_owned()).or_insert(value);
        }
    }
}

/// Writes the machine into the claim. Labels that the claim has stay; annotations of the cloud win.
pub(super) fn record(claim: &mut NodeClaim, instance: Instance, now: Timestamp) {
    let mut labels = instance.labels;
    labels.extend(claim.metadata.labels.take().unwrap_or_default());
    if labels.contains_key(PROVISIONER_NAME) {
        add_dotted(&mut labels);
    }
    claim.metadata.labels = some_unless_empty(labels);
    let mut annotations = claim.metadata.annotations.take().unwrap_or_default();
    annotations.extend(instance.annotations);
    claim.metadata.annotations = some_unless_empty(annotations);
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(instance.provider_id);
    status.image_id = instance.image_id;
    status.capacity = some_unless_empty(instance.capacity);
    status.allocatable = some_unless_empty(instance.allocatable);
    change_conditions(claim, now, |set| set.set_true(LAUNCHED));
}

fn some_unless_empty<V>(map: BTreeMap<String, V>) -> Option<BTreeMap<String, V>> {
    Some(map).filter(|map| !map.is_empty())
}

/// A decided condition is said again, so that it is one about the current generation.
pub(super) fn follow_generation(claim: &mut NodeClaim, kind: &str, now: Timestamp) {
    let Some(said) = condition(claim, kind).cloned() else { return };
    change_conditions(claim, now, |set| match said.status {
        ConditionStatus::True => drop(set.set_true_with_reason(kind, &said.reason, &said.message)),
        ConditionStatus::False => drop(set.set_false(kind, &said.reason, &said.message)),
        ConditionStatus::Unknown => {}
    });
}

/// How long after a number of failures the next try is.
pub(super) fn pause(failures: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(PAUSE_MAX)
}

pub(super) fn later(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The text, or as much of it as an event can hold.
pub(super) fn cut(text: &str) -> String {
    const MORE: &str = "...";
    if text.len() <= MESSAGE_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = MESSAGE_BYTES_MAX - MORE.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", &text[..end])
}
