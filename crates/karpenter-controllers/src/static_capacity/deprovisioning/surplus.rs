//! Decides which NodeClaims of a static NodePool are deleted if it has more than `spec.replicas`. Pure functions.

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::name_of;
use karpenter_state::claim::provider_id;
use karpenter_state::cost::{DeletionCosts, eviction_cost};
use karpenter_state::pod::Pod;

use crate::pods;

/// A claim that could be deleted, and the pods on its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) claim: &'a NodeClaim,
    pub(crate) pods: &'a [std::sync::Arc<Pod>],
}

/// The order in which claims are deleted: first claims that are not launched, then those with an empty node, then by
/// the disruption cost of the pods on the node. Nodes with a do-not-disrupt pod are last.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum DeletionOrder {
    Unlaunched,
    Empty,
    Occupied { is_do_not_disrupt: bool, cost: f64 },
}

/// Names of the claims to delete, at most `count`.
pub(crate) fn choose(
    members: &[Member<'_>],
    count: usize,
    deletion_costs: DeletionCosts,
    now: Timestamp,
) -> Vec<String> {
    let mut order: Vec<(DeletionOrder, &str)> = members
        .iter()
        .map(|member| (deletion_order(member, deletion_costs, now), name_of(member.claim)))
        .collect();
    // Disruption costs are never NaN, so any two can be compared.
    order.sort_by(|one, two| {
        one.0.partial_cmp(&two.0).unwrap_or(std::cmp::Ordering::Equal).then_with(|| one.1.cmp(two.1))
    });
    order.into_iter().take(count).map(|(_, name)| name.to_owned()).collect()
}

fn deletion_order(member: &Member<'_>, deletion_costs: DeletionCosts, now: Timestamp) -> DeletionOrder {
    if provider_id(member.claim).is_none() {
        return DeletionOrder::Unlaunched;
    }
    let is_do_not_disrupt = member.pods.iter().any(|pod| pods::is_do_not_disrupt_active(pod, now));
    if !is_do_not_disrupt && member.pods.iter().all(|pod| pods::is_owned_by_daemon_set(pod)) {
        return DeletionOrder::Empty;
    }
    let cost: f64 = member.pods.iter().map(|pod| eviction_cost(pod, deletion_costs)).sum();
    DeletionOrder::Occupied { is_do_not_disrupt, cost: cost * lifetime_left(member.claim, now) }
}

/// The share of `expireAfter` that is left, from 0 to 1. Claims that do not expire have 1.
fn lifetime_left(claim: &NodeClaim, now: Timestamp) -> f64 {
    let expires_after = claim.spec.expire_after.as_ref().and_then(|after| after.nanos());
    let created = claim.metadata.creation_timestamp.as_ref();
    let (Some(nanos), Some(created)) = (expires_after.filter(|nanos| *nanos > 0), created) else {
        return 1.0;
    };
    let age = since(now, created.0).as_secs_f64();
    let whole = nanos as f64 / 1e9;
    ((whole - age) / whole).clamp(0.0, 1.0)
}
