//! Requests a reboot: the conditions and annotations that node repair writes to a claim.

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::Reason;
use karpenter_model::duration::GoDuration;
use karpenter_runtime::object::{annotation, is_deleting, name_of, uid_of};
use karpenter_state::claim::{DISRUPTION_REASON, REBOOTING, change_conditions, is_true};
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use crate::inputs::Reads;
use crate::state::reboot_history::RebootHistory;
use crate::stores::Stores;
use crate::writes;

/// The reason of the condition `Rebooting` until the provider accepts the reboot.
pub const REQUESTED: &str = "RebootRequested";

/// Requests a reboot of a claim's instance because of `condition` (type/reason). `bound_secs` is the maximum duration
/// of the drain before the reboot; without it, the termination grace period of the claim applies, and if the claim has
/// none, the drain has no time limit.
///
/// Returns `false` if nothing was written: the claim does not exist, is terminating, or is rebooting already.
pub async fn commit(
    reads: &Reads,
    client: &Client,
    history: &RebootHistory,
    claim: &NodeClaim,
    condition: &str,
    bound_secs: Option<i64>,
) -> kube::Result<bool> {
    let Reads { stores, clock, .. } = reads;
    // The claim is read from the API server, because a stale store must not cause a second request.
    let Some(current) = Api::<NodeClaim>::all(client.clone()).get_opt(name_of(claim)).await? else {
        return Ok(false);
    };
    if uid_of(&current) != uid_of(claim) || is_true(&current, REBOOTING) || is_deleting(&current) {
        return Ok(false);
    }
    let bound = bound_secs.map(GoDuration::from_seconds).or(current.spec.termination_grace_period);
    let Some(current) = write_bound(client, stores, current, bound).await? else { return Ok(false) };
    let mut wanted = current.clone();
    let now = clock.now();
    change_conditions(&mut wanted, now, |set| {
        let reason = Reason::Unhealthy.as_str();
        set.set_true_with_reason(DISRUPTION_REASON, reason, reason);
        set.set_true_with_reason(REBOOTING, REQUESTED, &format!("rebooting for {condition}"));
    });
    let claims = &stores.node_claims;
    let written = writes::status_unchanged(client, claims, &current, &current.status, &wanted.status).await?;
    if written.is_none() {
        return Ok(false);
    }
    history.record(uid_of(claim), now);
    tracing::info!(nodeclaim = name_of(claim), condition, "committed node reboot");
    Ok(true)
}

/// Writes the annotation with the maximum duration of the drain. Without a maximum, removes the annotation that an
/// earlier reboot left.
async fn write_bound(
    client: &Client,
    stores: &Stores,
    claim: NodeClaim,
    bound: Option<GoDuration>,
) -> kube::Result<Option<NodeClaim>> {
    let key = labels::ANNOTATION_REBOOT_TERMINATION_GRACE_PERIOD;
    let wanted = bound.map(|bound| bound.to_string());
    if annotation(&claim, key) == wanted.as_deref() {
        return Ok(Some(claim));
    }
    let value = wanted.map_or(Value::Null, Value::String);
    let patch = json!({"metadata": {"annotations": {key: value}}});
    writes::merge_unchanged(client, &stores.node_claims, &claim, patch).await
}
