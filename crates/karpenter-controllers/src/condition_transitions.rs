//! Detects transitions of status conditions, for every kind with conditions. [`crate::metrics`] counts the transitions,
//! and [`crate::status_events`] publishes events about them.
//!
//! Upstream: github.com/awslabs/operatorpkg/status.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::conditions::{ConditionTypes, NODE_CLAIM_CONDITIONS, NODE_POOL_CONDITIONS};
use karpenter_api::types::{CapacityBuffer, Condition, NodeClaim, NodePool};
use karpenter_runtime::clock::since;
use kube::Resource;
use kube::api::{DynamicObject, ObjectMeta};

/// The status of a condition that is not set yet.
const UNKNOWN: &str = "Unknown";

/// The fields that conditions of all kinds have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionView<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) since: Option<Timestamp>,
}

/// Kinds whose condition transitions are reported.
pub(crate) trait Conditional: Resource {
    fn condition_views(&self) -> Vec<ConditionView<'_>>;
}

impl Conditional for NodeClaim {
    fn condition_views(&self) -> Vec<ConditionView<'_>> {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        complete(NODE_CLAIM_CONDITIONS, views_of(conditions), &self.metadata)
    }
}

impl Conditional for NodePool {
    fn condition_views(&self) -> Vec<ConditionView<'_>> {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        complete(NODE_POOL_CONDITIONS, views_of(conditions), &self.metadata)
    }
}

impl Conditional for CapacityBuffer {
    fn condition_views(&self) -> Vec<ConditionView<'_>> {
        views_of(self.status.iter().flat_map(|status| &status.conditions))
    }
}

impl Conditional for Node {
    fn condition_views(&self) -> Vec<ConditionView<'_>> {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .map(|condition| ConditionView {
                kind: &condition.type_,
                status: &condition.status,
                reason: condition.reason.as_deref().unwrap_or_default(),
                message: condition.message.as_deref().unwrap_or_default(),
                since: condition.last_transition_time.as_ref().map(|time| time.0),
            })
            .collect()
    }
}

/// The node classes of the provider have no Rust type here, so they are dynamic objects.
impl Conditional for DynamicObject {
    fn condition_views(&self) -> Vec<ConditionView<'_>> {
        let conditions = self.data.pointer("/status/conditions").and_then(|list| list.as_array());
        conditions
            .into_iter()
            .flatten()
            .map(|condition| {
                let text = |field: &str| condition[field].as_str().unwrap_or_default();
                ConditionView {
                    kind: text("type"),
                    status: text("status"),
                    reason: text("reason"),
                    message: text("message"),
                    since: text("lastTransitionTime").parse().ok(),
                }
            })
            .collect()
    }
}

fn views_of<'a>(conditions: impl Iterator<Item = &'a Condition>) -> Vec<ConditionView<'a>> {
    conditions
        .map(|condition| ConditionView {
            kind: &condition.type_,
            status: condition.status.as_str(),
            reason: &condition.reason,
            message: &condition.message,
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        })
        .collect()
}

/// Adds the conditions of the kind that the object does not have yet, as `Unknown` since the creation of the object. So
/// the duration of, for example, the condition `Launched` is measured from the creation of the NodeClaim.
fn complete<'a>(
    types: ConditionTypes,
    mut seen: Vec<ConditionView<'a>>,
    metadata: &ObjectMeta,
) -> Vec<ConditionView<'a>> {
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    for kind in types.dependents.iter().copied().chain([types.root]) {
        if !seen.iter().any(|one| one.kind == kind) {
            let reason = "AwaitingReconciliation";
            let message = "object is awaiting reconciliation";
            seen.push(ConditionView { kind, status: UNKNOWN, reason, message, since: created });
        }
    }
    seen
}

/// A condition whose status changed. A condition that was missing counts as `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Transition<'a> {
    pub(crate) now: ConditionView<'a>,
    /// The condition before the change; `None` if the object did not have it.
    pub(crate) before: Option<ConditionView<'a>>,
}

impl Transition<'_> {
    /// How many seconds the condition had the previous status.
    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(since(self.now.since?, self.before?.since?).as_secs_f64())
    }
}

pub(crate) fn transitions<'a>(
    before: &[ConditionView<'a>],
    after: &[ConditionView<'a>],
) -> Vec<Transition<'a>> {
    let changed = after.iter().filter_map(|now| {
        let before = before.iter().find(|old| old.kind == now.kind).copied();
        let is_other = before.map_or(UNKNOWN, |old| old.status) != now.status;
        is_other.then_some(Transition { now: *now, before })
    });
    changed.collect()
}
