//! Launch: updates a NodeClaim with the result of the provider's launch call.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/launch.go.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::labels::PROVISIONER_NAME;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::{CloudError, Instance};
use karpenter_model::labels::DOTTED;
use karpenter_state::claim::{LAUNCHED, change_conditions, condition, condition_status};

use crate::claims::hooks::DeletionCause;

/// The maximum size of a message in an event or a condition.
const MESSAGE_BYTES_MAX: usize = 1024;
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
pub(super) enum LaunchOutcome {
    Launched(Box<Instance>),
    Delete { cause: DeletionCause, error: String },
    Retry { reason: String, message: String },
}

/// Whether the claim is not launched yet.
pub(super) fn is_pending(claim: &NodeClaim) -> bool {
    condition_status(claim, LAUNCHED) == ConditionStatus::Unknown
}

pub(super) fn classify(answer: Result<Instance, CloudError>) -> LaunchOutcome {
    let error = match answer {
        Ok(instance) => return LaunchOutcome::Launched(Box::new(instance)),
        Err(error) => error,
    };
    let text = error.to_string();
    match error {
        CloudError::InsufficientCapacity { .. } => {
            LaunchOutcome::Delete { cause: DeletionCause::InsufficientCapacity, error: text }
        }
        CloudError::NodeClassNotReady { .. } => {
            LaunchOutcome::Delete { cause: DeletionCause::NodeClassNotReady, error: text }
        }
        CloudError::CreateRefused { reason, message } => LaunchOutcome::Retry { reason, message },
        CloudError::NotFound { .. }
        | CloudError::NotEvaluated { .. }
        | CloudError::RebootNotImplemented
        | CloudError::RebootFailed { .. }
        | CloudError::Throttled { .. }
        | CloudError::Unauthorized { .. }
        | CloudError::Transient { .. } => {
            LaunchOutcome::Retry { reason: "LaunchFailed".to_owned(), message: truncate(&text) }
        }
    }
}

/// Adds labels with the dotted keys that Karpenter used before 0.15. Pods may select nodes of Provisioners by these
/// keys, and the kube-scheduler does not map them to the current keys.
fn add_dotted(labels: &mut BTreeMap<String, String>) {
    for (dotted, current) in DOTTED {
        if let Some(value) = labels.get(current).cloned() {
            labels.entry(dotted.to_owned()).or_insert(value);
        }
    }
}

/// Writes the launched instance to the claim. If claim and instance have a label with the same key, the claim's value
/// is kept; of annotations, the instance's value.
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

/// Sets a condition that is true or false to the same status again, so that its observed generation becomes the current
/// one.
pub(super) fn follow_generation(claim: &mut NodeClaim, kind: &str, now: Timestamp) {
    let Some(current) = condition(claim, kind).cloned() else { return };
    change_conditions(claim, now, |set| match current.status {
        ConditionStatus::True => drop(set.set_true_with_reason(kind, &current.reason, &current.message)),
        ConditionStatus::False => drop(set.set_false(kind, &current.reason, &current.message)),
        ConditionStatus::Unknown => {}
    });
}

/// The wait before the next launch after this many failures.
pub(super) fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACKOFF_MAX)
}

pub(super) fn add(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The text, truncated to the maximum size of a message in an event or a condition.
pub(super) fn truncate(text: &str) -> String {
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
