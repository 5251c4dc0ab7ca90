//! What happens to NodeClaims: from the wish for a machine to a node that takes pods, and to the end of both.
//!
//! One controller per concern, each with its decision as a pure function. Only claims whose node class is the
//! provider's are looked at; all others are somebody else's. Draining is the node controller's business, and which
//! claims are wanted at all is provisioning's and disruption's.

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
use karpenter_cluster::harness::Queue;
use karpenter_cluster::mirror::{Change, ObjectKey};

use crate::context::Context;
use crate::stores::BY_PROVIDER_ID;

pub const LAUNCHED: &str = "Launched";
pub const REGISTERED: &str = "Registered";
pub const INITIALIZED: &str = "Initialized";
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
pub const REBOOTING: &str = "Rebooting";

/// A condition as it is stored; whoever needs the current generation asks [`ConditionSet`].
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

/// Whether the cloud was asked to end the claim's machine.
pub fn is_instance_terminating(claim: &NodeClaim) -> bool {
    is_true(claim, INSTANCE_TERMINATING)
}

/// How patient the end of a claim is, as metrics call it.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period {
        None => "graceful",
        Some(period) if period.nanos > 0 => "eventual",
        Some(_) => "forceful",
    }
}

/// Changes the conditions of a copy of the claim.
pub(crate) fn change_conditions<T>(
    claim: &mut NodeClaim,
    now: Timestamp,
    change: impl FnOnce(&mut ConditionSet<'_>) -> T,
) -> T {
    let status = claim.status.get_or_insert_default();
    change(&mut ConditionSet::open(NODE_CLAIM_CONDITIONS, &claim.metadata, &mut status.conditions, now))
}

/// The nodes of a claim's machine: one, unless something is very wrong.
pub(crate) fn nodes_of(context: &Context, claim: &NodeClaim) -> Vec<Arc<Node>> {
    provider_id(claim).map(|id| context.stores.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default()
}

/// The managed claim of a key, if it still exists.
pub(crate) fn managed_claim(context: &Context, key: &ObjectKey) -> Option<Arc<NodeClaim>> {
    let claim = context.stores.node_claims.get_key(key)?;
    context.is_managed(&claim.spec.node_class_ref).then_some(claim)
}

/// Every change of a claim is a reason to look at it.
pub(crate) fn watch_claims(context: &Context, queue: &Queue) {
    let to = queue.clone();
    context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
        to.add(ObjectKey::of(&change.object().metadata));
    });
}

/// Whether the node's kubelet says that it is ready.
pub(crate) fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
