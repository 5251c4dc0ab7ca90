//! What a NodeClaim states: its conditions, its provider id, and whether its Node has the resources that the NodeClaim
//! requested.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::conditions::{ConditionSet, NODE_CLAIM_CONDITIONS};
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_model::quantity::Quantity;

pub const LAUNCHED: &str = "Launched";
pub const REGISTERED: &str = "Registered";
pub const INITIALIZED: &str = "Initialized";
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
pub const REBOOTING: &str = "Rebooting";
/// The condition of a NodeClaim that is being disrupted.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// A condition as stored, whatever its observed generation; [`ConditionSet`] takes the generation into account.
pub fn condition<'a>(claim: &'a NodeClaim, kind: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

pub fn condition_status(claim: &NodeClaim, kind: &str) -> ConditionStatus {
    condition(claim, kind).map_or(ConditionStatus::Unknown, |condition| condition.status)
}

pub fn is_true(claim: &NodeClaim, kind: &str) -> bool {
    condition_status(claim, kind) == ConditionStatus::True
}

pub fn provider_id(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// Whether the provider was asked to terminate the instance.
pub fn is_instance_terminating(claim: &NodeClaim) -> bool {
    is_true(claim, INSTANCE_TERMINATING)
}

/// The value of the metric label `termination_mode`, by the termination grace period of the claim.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period {
        None => "graceful",
        Some(period) if period.nanos > 0 => "eventual",
        Some(_) => "forceful",
    }
}

/// Changes the conditions of a claim in memory; the caller writes them.
pub fn change_conditions<T>(
    claim: &mut NodeClaim,
    now: Timestamp,
    change: impl FnOnce(&mut ConditionSet<'_>) -> T,
) -> T {
    let status = claim.status.get_or_insert_default();
    change(&mut ConditionSet::open(NODE_CLAIM_CONDITIONS, &claim.metadata, &mut status.conditions, now))
}

/// Whether the node reports a quantity of every requested resource.
pub fn has_all_resources(claim: &NodeClaim, node: &Node) -> bool {
    unregistered_resource(claim, node).is_none()
}

/// The first requested resource that the node does not report, because its device plugin is not registered yet.
pub fn unregistered_resource<'a>(claim: &'a NodeClaim, node: &Node) -> Option<&'a str> {
    let requests = claim.spec.resources.as_ref()?.requests.as_ref()?;
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let has = |name: &str| {
        let amount = allocatable.and_then(|amounts| amounts.get(name));
        amount.and_then(|amount| amount.0.parse::<Quantity>().ok()).is_some_and(|amount| !amount.is_zero())
    };
    requests.iter().find(|(name, amount)| !amount.is_zero() && !has(name)).map(|(name, _)| name.as_str())
}
