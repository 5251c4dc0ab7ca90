//! The controllers of NodeClaims: launch, registration, initialization, conditions, expiration, garbage collection,
//! termination.
//!
//! Each controller has its decision as a pure function. NodeClaims whose node class is of another provider are ignored.
//! Draining is in [`crate::node`]; which NodeClaims are created is decided by provisioning and disruption.
//!
//! Upstream: pkg/controllers/nodeclaim.

pub mod consistency;
pub mod disruption;
pub mod expiration;
pub mod garbage_collection;
pub mod hooks;
pub mod hydration;
pub mod lifecycle;
pub mod pod_events;
pub mod reboot;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::conditions::{ConditionSet, NODE_CLAIM_CONDITIONS};
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;

use crate::context::Context;
use crate::stores::BY_PROVIDER_ID;

pub const LAUNCHED: &str = "Launched";
pub const REGISTERED: &str = "Registered";
pub const INITIALIZED: &str = "Initialized";
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
pub const REBOOTING: &str = "Rebooting";

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
pub(crate) fn change_conditions<T>(
    claim: &mut NodeClaim,
    now: Timestamp,
    change: impl FnOnce(&mut ConditionSet<'_>) -> T,
) -> T {
    let status = claim.status.get_or_insert_default();
    change(&mut ConditionSet::open(NODE_CLAIM_CONDITIONS, &claim.metadata, &mut status.conditions, now))
}

/// The Nodes with the provider id of a claim: none or one, unless two Nodes state the same id.
pub(crate) fn nodes_of(context: &Context, claim: &NodeClaim) -> Vec<Arc<Node>> {
    provider_id(claim).map(|id| context.stores.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default()
}

/// The managed claim of a key, if it still exists.
pub(crate) fn managed_claim(context: &Context, key: &ObjectKey) -> Option<Arc<NodeClaim>> {
    let claim = context.stores.node_claims.get_key(key)?;
    context.is_managed(&claim.spec.node_class_ref).then_some(claim)
}

/// Reconciles a claim after each of its changes.
pub(crate) fn watch_claims(context: &Context, queue: &Queue) {
    let to = queue.clone();
    context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
        to.add(ObjectKey::of(&change.object().metadata));
    });
}

/// Whether the node's condition `Ready` is `True`.
pub(crate) fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
