//! Decides the next step of a reboot: drain the node, call the provider, wait until the node has booted, or fail.
//!
//! Upstream: pkg/controllers/nodeclaim/reboot.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_model::duration::parse_go_duration;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::{annotation, is_deleting, uid_of};
use karpenter_state::claim::{INITIALIZED, REBOOTING, condition};
use karpenter_state::node::is_node_ready;
use karpenter_state::pod::Pod;

use crate::claims::reboot_request::REQUESTED;
use crate::evictions::EvictionMode;
use crate::evictions::drain::{MIN_DRAIN_TIME, decide_drain};

pub const POLL: Duration = Duration::from_secs(15);
/// How long the provider may take to accept the reboot. Each process measures the time from its own first call.
pub const ISSUANCE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How long the node may take to become ready after the reboot was issued.
pub const OBSERVATION_WINDOW: Duration = Duration::from_secs(20 * 60);

pub const ISSUED: &str = "RebootIssued";

/// The outcome of a reboot; the label `result` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    ProviderError,
    RecoveryTimeout,
    InvalidRequest,
}

impl Outcome {
    pub const fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::ProviderError => "provider_error",
            Self::RecoveryTimeout => "recovery_timeout",
            Self::InvalidRequest => "invalid_request",
        }
    }
}

/// The input of the decision for one claim.
#[derive(Debug, Clone)]
pub struct Facts {
    pub claim: Arc<NodeClaim>,
    pub node: Option<Arc<Node>>,
    /// All pods that are bound to the node.
    pub pods: Vec<Arc<Pod>>,
    /// When this process first requested the reboot from the provider.
    pub issuing_since: Option<Timestamp>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// No reboot is requested, or the claim is terminating.
    Nothing,
    /// Reconcile again after this time.
    Wait(Duration),
    Fail {
        outcome: Outcome,
        message: String,
    },
    /// Taint the node and evict these pods.
    Drain {
        evict: Vec<Arc<Pod>>,
        mode: EvictionMode,
        again: Duration,
    },
    /// Taint the node, record its boot id, then call the provider.
    Issue {
        boot_id: String,
        is_recorded: bool,
    },
    /// The boot id of the node has changed since it was recorded, so the provider has accepted the reboot. Record that,
    /// and wait until the node is ready.
    MarkIssued,
    /// The node has not recovered yet. If its boot id has changed, it has booted, and its taint is removed at once.
    Observe {
        has_booted: bool,
    },
    Succeed,
}

pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let Some(rebooting) = active(&facts.claim) else { return Step::Nothing };
    let phase_end = deadline(facts, rebooting);
    let Some(node) = facts.node.as_deref() else {
        // Without a node the provider is not called, so the issuance timeout counts from the request instead of the
        // first call.
        let end = phase_end.unwrap_or_else(|| later(requested_at(rebooting), ISSUANCE_TIMEOUT));
        return if now > end { timed_out(rebooting) } else { Step::Wait(POLL) };
    };
    if phase_end.is_some_and(|end| now > end) {
        return timed_out(rebooting);
    }
    match rebooting.reason.as_str() {
        REQUESTED => requested(facts, rebooting, node, now),
        ISSUED => observe(&facts.claim, node),
        _ => Step::Nothing,
    }
}

/// The condition `Rebooting`, if a reboot is requested or issued.
pub fn active(claim: &NodeClaim) -> Option<&Condition> {
    let rebooting = condition(claim, REBOOTING)?;
    (rebooting.status == ConditionStatus::True && !is_deleting(claim)).then_some(rebooting)
}

fn requested(facts: &Facts, rebooting: &Condition, node: &Node, now: Timestamp) -> Step {
    let bound = match drain_bound(&facts.claim) {
        Ok(bound) => bound,
        Err(mistake) => {
            let message = format!("invalid reboot request: {mistake}");
            return Step::Fail { outcome: Outcome::InvalidRequest, message };
        }
    };
    let boot_id = boot_id(node);
    if let Some(before) = annotation(&*facts.claim, labels::ANNOTATION_REBOOT_PRE_BOOT_ID) {
        return if boot_id == before {
            Step::Issue { boot_id: boot_id.to_owned(), is_recorded: true }
        } else {
            Step::MarkIssued
        };
    }
    drain(facts, requested_at(rebooting), bound, now)
        .unwrap_or_else(|| Step::Issue { boot_id: boot_id.to_owned(), is_recorded: false })
}

/// The step that continues the drain; `None` when the drain is complete or its maximum duration has passed.
fn drain(facts: &Facts, since: Timestamp, bound: Option<Duration>, now: Timestamp) -> Option<Step> {
    if bound == Some(Duration::ZERO) {
        return None;
    }
    let deadline = bound.map(|bound| later(since, bound.max(MIN_DRAIN_TIME)));
    let drain = decide_drain(&facts.pods, None, now);
    if drain.waiting > 0 {
        let again = match deadline {
            None => POLL,
            Some(end) if end > now => POLL.min(until(now, end)),
            // The maximum duration has passed: the remaining pods stay on the node during the reboot.
            Some(_) => return None,
        };
        let mode = deadline.map_or(EvictionMode::Evict, EvictionMode::EvictUntil);
        return Some(Step::Drain { evict: drain.evict, mode, again });
    }
    // The minimum drain time also applies to a node without pods, because a pod may have been bound while the taint was
    // added.
    let floor = later(since, MIN_DRAIN_TIME);
    let mode = deadline.map_or(EvictionMode::Evict, EvictionMode::EvictUntil);
    (floor > now).then(|| Step::Drain { evict: Vec::new(), mode, again: until(now, floor) })
}

fn observe(claim: &NodeClaim, node: &Node) -> Step {
    let before = annotation(claim, labels::ANNOTATION_REBOOT_PRE_BOOT_ID).unwrap_or_default();
    let has_booted = boot_id(node) != before;
    if has_booted && is_node_ready(node) { Step::Succeed } else { Step::Observe { has_booted } }
}

/// The maximum duration of the drain: `None` means no limit, and zero means no drain.
pub fn drain_bound(claim: &NodeClaim) -> Result<Option<Duration>, String> {
    let Some(text) = annotation(claim, labels::ANNOTATION_REBOOT_TERMINATION_GRACE_PERIOD) else {
        return Ok(None);
    };
    let nanos = parse_go_duration(text)
        .map_err(|error| format!("parsing reboot termination grace period {text:?}: {error}"))?;
    let nanos = u64::try_from(nanos)
        .map_err(|_| format!("reboot termination grace period must be non-negative, got {text:?}"))?;
    Ok(Some(Duration::from_nanos(nanos)))
}

/// When the current phase, the call of the provider or the recovery of the node, times out; `None` before the first
/// call.
fn deadline(facts: &Facts, rebooting: &Condition) -> Option<Timestamp> {
    if rebooting.reason == ISSUED {
        issued_at(&facts.claim, rebooting).map(|issued| later(issued, OBSERVATION_WINDOW))
    } else {
        facts.issuing_since.map(|started| later(started, ISSUANCE_TIMEOUT))
    }
}

fn timed_out(rebooting: &Condition) -> Step {
    let (outcome, message) = if rebooting.reason == ISSUED {
        (Outcome::RecoveryTimeout, "node did not recover within the observation window")
    } else {
        (Outcome::ProviderError, "reboot was not issued within the issuance timeout")
    };
    Step::Fail { outcome, message: message.to_owned() }
}

pub fn requested_at(rebooting: &Condition) -> Timestamp {
    rebooting.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// When the provider accepted the reboot: since then the condition `Initialized` is unknown. On a node that was never
/// initialized, the condition has been unknown for longer, so the time of the request is used if it is later.
pub fn issued_at(claim: &NodeClaim, rebooting: &Condition) -> Option<Timestamp> {
    let initialized = condition(claim, INITIALIZED)?;
    let since = initialized.last_transition_time.as_ref()?.0;
    (initialized.status == ConditionStatus::Unknown).then(|| since.max(requested_at(rebooting)))
}

/// The idempotency token of a reboot. Every call for the same reboot has the same token, even from another process.
pub fn operation_id(claim: &NodeClaim, rebooting: &Condition, boot_id: &str) -> String {
    format!("{}-{}-{boot_id}", uid_of(claim), requested_at(rebooting).as_nanosecond())
}

fn boot_id(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| info.boot_id.as_str())
}

fn later(time: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}
