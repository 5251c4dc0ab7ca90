//! The writes of a termination: the taint, evictions, conditions of the claim, the delete call for the instance, and
//! removal of the finalizer.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::conditions::{ConditionSet, NODE_CLAIM_CONDITIONS};
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::CloudError;
use karpenter_runtime::object::{label, name_of};
use karpenter_runtime::worker::Requeue;
use karpenter_state::claim::{DISRUPTION_REASON, INSTANCE_TERMINATING};
use serde_json::{Value, json};

use super::decide::{DRAINED, Facts, Step, condition};
use super::{DRAIN_POLL, INSTANCE_POLL, NodeTermination};
use crate::events::ObjectEvent;
use crate::evictions::EvictionMode;
use crate::evictions::drain::Drain;
use crate::writes;

const VOLUMES_DETACHED: &str = "VolumesDetached";
/// The reason in the events of evicted pods if the claim has no disruption reason.
const REASON_UNKNOWN: &str = "Forceful Termination";

/// Converts an error of the provider into an error of the reconcile, which is retried with a back-off.
pub(super) fn cloud_failure(error: CloudError) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

impl NodeTermination {
    /// Adds the disrupted taint, and the label that excludes the node from load balancers. Returns `None` if the node
    /// no longer exists.
    pub(super) async fn taint(
        &self,
        node: &Arc<Node>,
        claim: Option<&NodeClaim>,
        terminate_by: Option<Timestamp>,
    ) -> kube::Result<Option<Arc<Node>>> {
        if let Some(by) = terminate_by {
            let message = format!("All pods will be deleted by {by}");
            let event = ObjectEvent::warning(&**node, "TerminationGracePeriodExpiring", message);
            self.writes.recorder.publish(event).await;
        }
        let Some(patch) = taint_patch(node) else { return Ok(Some(node.clone())) };
        let nodes = &self.reads.stores.nodes;
        let written = writes::merge_unchanged(&self.writes.client, nodes, &**node, patch).await?;
        if written.is_some() {
            tracing::info!(
                nodeclaim = claim.map(name_of),
                "taint.Key" = labels::TAINT_DISRUPTED,
                "taint.Value" = "",
                "taint.Effect" = "NoSchedule",
                "tainted node"
            );
        }
        Ok(written.map(Arc::new))
    }

    pub(super) async fn act(&self, facts: &Facts, step: Step) -> kube::Result<Requeue> {
        match step {
            Step::Drain(drain) => {
                self.set_conditions(facts, start_draining).await?;
                self.drain(facts, &drain).await;
                Ok(Requeue::After(DRAIN_POLL))
            }
            Step::AwaitMinDrainTime => {
                self.set_conditions(facts, start_draining).await?;
                Ok(Requeue::After(DRAIN_POLL))
            }
            Step::AwaitVolumes(attachments) => {
                self.count_drained(facts);
                self.set_conditions(facts, |conditions| {
                    conditions.set_true(DRAINED);
                    let reason = "AwaitingVolumeDetachment";
                    conditions.set_unknown_with_reason(VOLUMES_DETACHED, reason, reason);
                })
                .await?;
                let message =
                    format!("Awaiting deletion of bound volumeattachments ({})", attachments.join(", "));
                let event = ObjectEvent::normal(&*facts.node, "AwaitingVolumeDetachment", message);
                self.writes.recorder.publish(event).await;
                Ok(Requeue::After(DRAIN_POLL))
            }
            Step::TerminateInstance { volumes_detached } => {
                self.terminate_instance(facts, volumes_detached).await
            }
        }
    }

    async fn drain(&self, facts: &Facts, drain: &Drain) {
        let node = name_of(&*facts.node);
        let reason = facts.claim.as_deref().and_then(disruption_reason).unwrap_or(REASON_UNKNOWN);
        if let Some(by) = facts.terminate_by {
            for pod in &drain.delete {
                self.evictions.add(pod, node, EvictionMode::DeleteBy(by), reason);
            }
        }
        for pod in &drain.evict {
            self.evictions.add(pod, node, EvictionMode::Evict, reason);
        }
        let message = format!("Failed to drain node, {} pods are waiting to be evicted", drain.waiting);
        self.writes.recorder.publish(ObjectEvent::warning(&*facts.node, "FailedDraining", message)).await;
    }

    /// Counts a drained node, but only before its condition `Drained` becomes `True`, so that each node is counted
    /// once.
    fn count_drained(&self, facts: &Facts) {
        let drained = facts.claim.as_deref().and_then(|claim| condition(claim, DRAINED));
        if drained.is_some_and(|drained| drained.status == ConditionStatus::Unknown) {
            let pool = label(&*facts.node, labels::NODEPOOL).unwrap_or_default();
            self.writes.metrics.nodes_drained.with_label_values(&[pool]).inc();
        }
    }

    async fn terminate_instance(&self, facts: &Facts, volumes_detached: bool) -> kube::Result<Requeue> {
        self.count_drained(facts);
        let Some(claim) = self
            .set_conditions(facts, |conditions| {
                conditions.set_true(DRAINED);
                if volumes_detached {
                    conditions.set_true(VOLUMES_DETACHED);
                } else {
                    let reason = "TerminationGracePeriodElapsed";
                    conditions.set_false(VOLUMES_DETACHED, reason, reason);
                }
            })
            .await?
        else {
            // Without a claim, it is not known which instance to terminate, so only the finalizer of the node is
            // removed.
            return self.remove_finalizer(&facts.node, None).await;
        };
        match self.cloud.delete(&claim).await {
            Ok(()) => {
                let facts = Facts { claim: Some(claim), ..facts.clone() };
                self.set_conditions(&facts, |conditions| {
                    conditions.set_true(INSTANCE_TERMINATING);
                })
                .await?;
                Ok(Requeue::After(INSTANCE_POLL))
            }
            Err(error) if error.is_not_found() => self.remove_finalizer(&facts.node, Some(&claim)).await,
            Err(error) => Err(cloud_failure(error)),
        }
    }

    /// Writes conditions of the claim and returns the stored claim; `None` if the node has no claim.
    async fn set_conditions(
        &self,
        facts: &Facts,
        change: impl FnOnce(&mut ConditionSet<'_>),
    ) -> kube::Result<Option<Arc<NodeClaim>>> {
        let Some(claim) = &facts.claim else { return Ok(None) };
        let old = claim.status.clone().unwrap_or_default();
        let mut new = old.clone();
        let now = self.reads.clock.now();
        let metadata = &claim.metadata;
        change(&mut ConditionSet::open(NODE_CLAIM_CONDITIONS, metadata, &mut new.conditions, now));
        let claims = &self.reads.stores.node_claims;
        let written = writes::status_unchanged(&self.writes.client, claims, &**claim, &old, &new).await?;
        Ok(Some(written.map_or_else(|| claim.clone(), Arc::new)))
    }

    /// Removes the finalizer, so that the API server deletes the Node.
    pub(super) async fn remove_finalizer(
        &self,
        node: &Node,
        claim: Option<&NodeClaim>,
    ) -> kube::Result<Requeue> {
        let nodes = &self.reads.stores.nodes;
        let left: Vec<&String> = node
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|name| *name != labels::FINALIZER_TERMINATION)
            .collect();
        let patch = json!({"metadata": {"finalizers": left}});
        if writes::merge_unchanged(&self.writes.client, nodes, node, patch).await?.is_some() {
            tracing::info!(nodeclaim = claim.map(name_of), "deleted node");
        }
        Ok(Requeue::No)
    }
}

/// Sets the condition `Drained` to unknown when the drain starts. Its transition time must not change afterwards,
/// because the minimum drain time counts from it.
fn start_draining(conditions: &mut ConditionSet<'_>) {
    if conditions.get(DRAINED).is_none_or(|drained| drained.status != ConditionStatus::Unknown) {
        conditions.set_unknown_with_reason(DRAINED, "Draining", "Draining");
    }
}

fn disruption_reason(claim: &NodeClaim) -> Option<&str> {
    let found = condition(claim, DISRUPTION_REASON)?;
    (found.status == ConditionStatus::True).then_some(found.reason.as_str())
}

/// The patch that adds the disrupted taint and the label that excludes the node from load balancers; `None` if the node
/// has both.
pub(super) fn taint_patch(node: &Node) -> Option<Value> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_tainted =
        taints.iter().any(|taint| taint.key == labels::TAINT_DISRUPTED && taint.effect == "NoSchedule");
    let excluded = labels::EXCLUDE_FROM_LOAD_BALANCERS;
    let is_excluded = label(node, excluded) == Some(labels::EXCLUDE_FROM_LOAD_BALANCERS_VALUE);
    // Nodes of the v1alpha5 API are also cordoned, because tools for that API rely on it.
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let has_to_be_cordoned = label(node, labels::PROVISIONER_NAME).is_some() && !is_cordoned;
    if is_tainted && is_excluded && !has_to_be_cordoned {
        return None;
    }
    let mut patch = json!({"metadata": {"labels": {excluded: labels::EXCLUDE_FROM_LOAD_BALANCERS_VALUE}}});
    if !is_tainted {
        let others = taints.into_iter().filter(|taint| taint.key != labels::TAINT_DISRUPTED);
        let disrupted = Taint {
            key: labels::TAINT_DISRUPTED.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        patch["spec"]["taints"] = json!(others.chain([disrupted]).collect::<Vec<Taint>>());
    }
    if has_to_be_cordoned {
        patch["spec"]["unschedulable"] = json!(true);
    }
    Some(patch)
}
