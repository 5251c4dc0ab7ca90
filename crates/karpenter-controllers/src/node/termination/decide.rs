//! The next step of a termination: drain, wait for volumes, or terminate the instance.
//!
//! Upstream: pkg/controllers/node/termination/controller.go, terminator/terminator.go.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_runtime::clock::since;
use karpenter_state::pod::Pod;

use crate::evictions::drain::{Drain, MIN_DRAIN_TIME, decide_drain};

pub(super) const DRAINED: &str = "Drained";

/// A VolumeAttachment of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub name: String,
    /// Whether the volume belongs to a pod that is not drained. Such a volume stays attached, so the termination does
    /// not wait for its detachment.
    pub is_ignored: bool,
}

/// The input of the decision for one terminating node.
#[derive(Debug, Clone)]
pub struct Facts {
    pub node: Arc<Node>,
    pub claim: Option<Arc<NodeClaim>>,
    /// All pods that are bound to the node.
    pub pods: Vec<Arc<Pod>>,
    pub attachments: Vec<Attachment>,
    /// The termination deadline.
    pub terminate_by: Option<Timestamp>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Pods have to be evicted or deleted.
    Drain(Drain),
    /// No pod is left, but the minimum drain time has not passed.
    AwaitMinDrainTime,
    /// Wait until these VolumeAttachments are deleted.
    AwaitVolumes(Vec<String>),
    /// The drain is complete and the volumes are detached, or the termination deadline has passed.
    TerminateInstance { volumes_detached: bool },
}

pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let drain = decide_drain(&facts.pods, facts.terminate_by, now);
    if drain.waiting > 0 {
        return Step::Drain(drain);
    }
    if let Some(claim) = facts.claim.as_deref() {
        let drained = condition(claim, DRAINED);
        let started = drained
            .filter(|drained| drained.status == ConditionStatus::Unknown)
            .and_then(|drained| drained.last_transition_time.as_ref());
        match (drained, started) {
            (None, _) => return Step::AwaitMinDrainTime,
            (Some(_), Some(started)) if since(now, started.0) < MIN_DRAIN_TIME => {
                return Step::AwaitMinDrainTime;
            }
            (Some(_), _) => {}
        }
    }
    let attached: Vec<String> = facts
        .attachments
        .iter()
        .filter(|attachment| !attachment.is_ignored)
        .map(|attachment| attachment.name.clone())
        .collect();
    let is_time_up = facts.terminate_by.is_some_and(|by| now > by);
    match (attached.is_empty(), is_time_up) {
        (true, _) => Step::TerminateInstance { volumes_detached: true },
        (false, true) => Step::TerminateInstance { volumes_detached: false },
        (false, false) => Step::AwaitVolumes(attached),
    }
}

pub(super) fn condition<'a>(claim: &'a NodeClaim, name: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == name)
}
