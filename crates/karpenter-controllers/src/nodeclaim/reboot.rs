//! Reboots instances in place: drains the node, calls the provider to reboot the instance, and waits until the node is
//! ready again.
//!
//! [`crate::claims::reboot_request`] writes the request to the claim. The further state is kept in the claim and its
//! node, so that another process can continue. If the reboot fails, the claim is deleted and so its node replaced.
//! After the reboot, the lifecycle controller initializes the node again.
//!
//! Upstream: pkg/controllers/nodeclaim/reboot.

pub mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::{CloudError, CloudProvider};
use karpenter_runtime::clock::{since, whole_seconds};
use karpenter_runtime::object::{ObjectKey, annotation, is_deleting, label, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::{DISRUPTION_REASON, INITIALIZED, REBOOTING, change_conditions, condition};
use serde_json::{Value, json};

use self::decide::{Facts, Outcome, POLL, Step, decide};
use crate::events::ObjectEvent;
use crate::evictions::EvictionQueue;
use crate::inputs::{Reads, Writes};
use crate::stores::{BY_NODE, BY_PROVIDER_ID};
use crate::writes;

/// How long an event is not repeated. It is longer than a reboot may take, so that each event is published once per
/// reboot.
const EVENT_REPEAT: Duration = Duration::from_secs(30 * 60);

pub struct RebootController {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
    pub evictions: EvictionQueue,
    /// When this process first requested the reboot from the provider, by the claim's uid.
    issuing_since: Mutex<BTreeMap<String, Timestamp>>,
}

impl RebootController {
    pub fn new(
        reads: Reads,
        writes: Writes,
        cloud: Arc<dyn CloudProvider>,
        evictions: EvictionQueue,
    ) -> Self {
        Self { reads, writes, cloud, evictions, issuing_since: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            if condition(change.object(), REBOOTING).is_some() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        // After the provider has accepted the reboot, changes of the node trigger a reconcile of its claim.
        let (to, claims) = (queue.clone(), self.reads.stores.node_claims.clone());
        self.reads.stores.nodes.observe(move |change: &Change<Node>| {
            let id = change.object().spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            for claim in id.map(|id| claims.by(BY_PROVIDER_ID, id)).unwrap_or_default() {
                if decide::active(&claim).is_some_and(|found| found.reason == decide::ISSUED) {
                    to.add(ObjectKey::of(&claim.metadata));
                }
            }
        });
    }

    fn issuing_since(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.issuing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe(&self, claim: Arc<NodeClaim>) -> Facts {
        let stores = &self.reads.stores;
        let node = self.reads.stores.nodes_of(&claim).into_iter().next();
        let pods = node.as_ref().map(|node| stores.pods.by(BY_NODE, name_of(&**node))).unwrap_or_default();
        let issuing_since = self.issuing_since().get(uid_of(&*claim)).copied();
        Facts { claim, node, pods, issuing_since }
    }

    async fn act(&self, facts: &Facts, step: Step) -> kube::Result<Requeue> {
        match step {
            Step::Nothing => {
                self.issuing_since().remove(uid_of(&*facts.claim));
                Ok(Requeue::No)
            }
            Step::Wait(again) => Ok(Requeue::After(again)),
            Step::Fail { outcome, message } => self.fail(facts, outcome, &message).await,
            Step::Drain { evict, mode, again } => {
                let Some(node) = self.taint(facts).await? else { return Ok(Requeue::After(POLL)) };
                let reason = condition(&facts.claim, DISRUPTION_REASON);
                let reason = reason.map_or("", |found| found.reason.as_str());
                for pod in &evict {
                    self.evictions.add(pod, name_of(&node), mode.clone(), reason);
                }
                Ok(Requeue::After(again))
            }
            Step::Issue { boot_id, is_recorded } => self.issue(facts, &boot_id, is_recorded).await,
            Step::MarkIssued => {
                if self.taint(facts).await?.is_none() {
                    return Ok(Requeue::After(POLL));
                }
                self.mark_issued(facts).await
            }
            Step::Observe { has_booted } => self.watch_recovery(facts, has_booted).await,
            Step::Succeed => self.succeed(facts).await,
        }
    }

    async fn issue(&self, facts: &Facts, boot_id: &str, is_recorded: bool) -> kube::Result<Requeue> {
        if self.taint(facts).await?.is_none() {
            return Ok(Requeue::After(POLL));
        }
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let cloud = &self.cloud;
        self.issuing_since().entry(uid_of(&*facts.claim).to_owned()).or_insert_with(|| clock.now());
        if !is_recorded {
            // The boot id of the node is recorded before the provider is called for the first time, because the reboot
            // changes the boot id.
            let key = labels::ANNOTATION_REBOOT_PRE_BOOT_ID;
            let patch = json!({"metadata": {"annotations": {key: boot_id}}});
            let written = writes::merge_unchanged(client, &stores.node_claims, &*facts.claim, patch).await?;
            return Ok(if written.is_some() { Requeue::After(Duration::ZERO) } else { Requeue::No });
        }
        let Some(rebooting) = decide::active(&facts.claim) else { return Ok(Requeue::No) };
        let operation = decide::operation_id(&facts.claim, rebooting, boot_id);
        match cloud.reboot(&facts.claim, &operation).await {
            Ok(()) => self.mark_issued(facts).await,
            Err(CloudError::RebootNotImplemented) => {
                let message = "reboot not implemented by the cloud provider";
                self.fail(facts, Outcome::ProviderError, message).await
            }
            Err(error @ (CloudError::RebootFailed { .. } | CloudError::NotFound { .. })) => {
                let message = format!("reboot rejected by the cloud provider: {error}");
                self.fail(facts, Outcome::ProviderError, &message).await
            }
            Err(error) => Err(kube::Error::Service(Box::new(error))),
        }
    }

    async fn mark_issued(&self, facts: &Facts) -> kube::Result<Requeue> {
        let mut wanted = (*facts.claim).clone();
        let message = condition(&wanted, REBOOTING).map(|found| found.message.clone()).unwrap_or_default();
        change_conditions(&mut wanted, self.reads.clock.now(), |set| {
            set.set_true_with_reason(REBOOTING, decide::ISSUED, &message);
            // The condition is reset, so that the lifecycle controller initializes the node again after the reboot.
            set.set_unknown_with_reason(INITIALIZED, "Rebooting", "node is rebooting");
        });
        if self.write_status(&facts.claim, &wanted).await?.is_none() {
            return Ok(Requeue::No);
        }
        if let Some(node) = &facts.node {
            self.remove_initialized_label(node).await?;
        }
        Ok(Requeue::After(POLL))
    }

    async fn watch_recovery(&self, facts: &Facts, has_booted: bool) -> kube::Result<Requeue> {
        let Some(node) = &facts.node else { return Ok(Requeue::After(POLL)) };
        let node = self.remove_initialized_label(node).await?;
        if has_booted && let Some(node) = node {
            self.untaint(&node).await?;
            self.report_observed(&facts.claim).await;
        }
        Ok(Requeue::After(POLL))
    }

    async fn succeed(&self, facts: &Facts) -> kube::Result<Requeue> {
        if let Some(node) = &facts.node
            && let Some(node) = self.remove_initialized_label(node).await?
        {
            self.untaint(&node).await?;
        }
        self.report_observed(&facts.claim).await;
        let message = "node rebooted and rejoined the cluster";
        if !self.finish(&facts.claim, "RebootSucceeded", message).await? {
            return Ok(Requeue::No);
        }
        let now = self.reads.clock.now();
        self.count(&facts.claim, Outcome::Succeeded, now);
        let rebooting = decide::active(&facts.claim);
        if let Some(issued) = rebooting.and_then(|found| decide::issued_at(&facts.claim, found)) {
            let recovery = &self.writes.metrics.nodes_reboot_recovery_duration;
            recovery.with_label_values::<&str>(&[]).observe(since(now, issued).as_secs_f64());
        }
        Ok(Requeue::No)
    }

    /// Handles a reboot that failed. If the request was invalid, it is dropped. After any other failure the claim is
    /// deleted, and its termination deadline is set to the maximum drain duration of the reboot.
    async fn fail(&self, facts: &Facts, outcome: Outcome, message: &str) -> kube::Result<Requeue> {
        if let Some(node) = &facts.node {
            self.untaint(node).await?;
        }
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        if outcome == Outcome::InvalidRequest {
            if !self.finish(&facts.claim, "RebootFailed", message).await? {
                return Ok(Requeue::No);
            }
        } else {
            let mut claim = facts.claim.clone();
            if let Ok(Some(bound)) = decide::drain_bound(&claim) {
                let bound = SignedDuration::try_from(bound).unwrap_or(SignedDuration::MAX);
                let by = clock.now().checked_add(bound).unwrap_or(Timestamp::MAX);
                match tighten_termination(&self.reads, &self.writes, &claim, by).await? {
                    Some(tightened) => claim = Arc::new(tightened),
                    None => return Ok(Requeue::No),
                }
            }
            writes::delete_unchanged(client, &stores.node_claims, &*claim).await?;
            self.issuing_since().remove(uid_of(&*claim));
            tracing::info!(result = outcome.label(), "reboot failed, replacing node");
        }
        let event = ObjectEvent::warning(&*facts.claim, "RebootFailed", message);
        self.writes.recorder.publish(of_this_reboot(event, &facts.claim)).await;
        self.count(&facts.claim, outcome, clock.now());
        Ok(Requeue::No)
    }

    /// Writes the outcome to the claim and removes the annotation with the boot id of this reboot. Returns `false` if
    /// the claim no longer exists.
    async fn finish(&self, claim: &Arc<NodeClaim>, reason: &str, message: &str) -> kube::Result<bool> {
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        self.issuing_since().remove(uid_of(&**claim));
        let mut current = claim.clone();
        if annotation(&*current, labels::ANNOTATION_REBOOT_PRE_BOOT_ID).is_some() {
            let patch =
                json!({"metadata": {"annotations": {labels::ANNOTATION_REBOOT_PRE_BOOT_ID: Value::Null}}});
            match writes::merge_unchanged(client, &stores.node_claims, &*current, patch).await? {
                Some(written) => current = Arc::new(written),
                None => return Ok(false),
            }
        }
        let mut wanted = (*current).clone();
        change_conditions(&mut wanted, clock.now(), |set| set.set_false(REBOOTING, reason, message));
        let written = self.write_status(&current, &wanted).await?.is_some();
        if written {
            tracing::info!(reason, "reboot reached terminal outcome");
        }
        Ok(written)
    }

    async fn write_status(&self, stored: &NodeClaim, wanted: &NodeClaim) -> kube::Result<Option<NodeClaim>> {
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        writes::status_unchanged(client, &stores.node_claims, stored, &stored.status, &wanted.status).await
    }

    /// Adds the taint `karpenter.sh/rebooting` to the node. Returns `None` if the node no longer exists.
    async fn taint(&self, facts: &Facts) -> kube::Result<Option<Node>> {
        let Some(node) = facts.node.as_deref() else { return Ok(None) };
        let mut taints = taints_of(node);
        if taints.iter().any(is_rebooting) {
            return Ok(Some(node.clone()));
        }
        let (key, effect) = (labels::TAINT_REBOOTING.to_owned(), "NoSchedule".to_owned());
        taints.push(Taint { key, effect, ..Taint::default() });
        self.write_taints(node, &taints).await
    }

    async fn untaint(&self, node: &Node) -> kube::Result<()> {
        let taints = taints_of(node);
        let left: Vec<Taint> = taints.iter().filter(|taint| !is_rebooting(taint)).cloned().collect();
        if left.len() < taints.len() {
            self.write_taints(node, &left).await?;
        }
        Ok(())
    }

    async fn write_taints(&self, node: &Node, taints: &[Taint]) -> kube::Result<Option<Node>> {
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let patch = json!({"spec": {"taints": taints}});
        writes::merge_unchanged(client, &stores.nodes, node, patch).await
    }

    /// Removes the label `initialized` and returns the node after the write; `None` if the node no longer exists.
    async fn remove_initialized_label(&self, node: &Arc<Node>) -> kube::Result<Option<Node>> {
        if label(&**node, labels::INITIALIZED).is_none() {
            return Ok(Some((**node).clone()));
        }
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let patch = json!({"metadata": {"labels": {labels::INITIALIZED: Value::Null}}});
        writes::merge(client, &stores.nodes, &**node, patch).await
    }

    async fn report_observed(&self, claim: &NodeClaim) {
        let message = "New boot observed (bootID changed); awaiting node readiness";
        let event = ObjectEvent::normal(claim, "RebootObserved", message);
        self.writes.recorder.publish(of_this_reboot(event, claim)).await;
    }

    fn count(&self, claim: &NodeClaim, outcome: Outcome, now: Timestamp) {
        let metrics = &self.writes.metrics;
        metrics.nodes_reboots.with_label_values(&[outcome.label()]).inc();
        if let Some(rebooting) = condition(claim, REBOOTING) {
            let seconds = since(now, decide::requested_at(rebooting)).as_secs_f64();
            metrics.nodes_reboot_duration.with_label_values(&[outcome.label()]).observe(seconds);
        }
    }
}

impl Reconcile for RebootController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key) else { return Ok(Requeue::No) };
        if is_deleting(&*claim) {
            self.issuing_since().remove(uid_of(&*claim));
            return Ok(Requeue::No);
        }
        let facts = self.observe(claim);
        let step = decide(&facts, self.reads.clock.now());
        self.act(&facts, step).await
    }
}

/// Sets the termination deadline of a claim, unless it already has an earlier one. Returns `None` if the claim no
/// longer exists.
pub async fn tighten_termination(
    reads: &Reads,
    writes: &Writes,
    claim: &NodeClaim,
    by: Timestamp,
) -> kube::Result<Option<NodeClaim>> {
    let key = labels::ANNOTATION_TERMINATION_TIMESTAMP;
    let present = annotation(claim, key).and_then(|text| text.parse::<Timestamp>().ok());
    if present.is_some_and(|present| present <= by) {
        return Ok(Some(claim.clone()));
    }
    let patch = json!({"metadata": {"annotations": {key: whole_seconds(by).to_string()}}});
    writes::merge_unchanged(&writes.client, &reads.stores.node_claims, claim, patch).await
}

fn of_this_reboot(event: ObjectEvent, claim: &NodeClaim) -> ObjectEvent {
    let requested = condition(claim, REBOOTING).map(|found| decide::requested_at(found).to_string());
    event.repeat_after(EVENT_REPEAT).dedupe_by(requested.unwrap_or_default())
}

fn taints_of(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

fn is_rebooting(taint: &Taint) -> bool {
    taint.key == labels::TAINT_REBOOTING && taint.effect == "NoSchedule"
}
