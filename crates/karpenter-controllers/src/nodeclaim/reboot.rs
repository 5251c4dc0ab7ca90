//! Machines that are restarted in place: the node is emptied, the provider asked, and the node watched until it is back.
//!
//! Who decides that a machine should be restarted calls [`commit`], which writes it on the claim; everything after that
//! follows from the claim and its node, so that a started restart is finished by whichever process is there. A restart
//! that fails ends in the claim's deletion. Initialising the node again is the lifecycle's business.
//! Upstream: pkg/controllers/nodeclaim/reboot.

pub mod commit;
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
use karpenter_cloud::CloudError;
use karpenter_cluster::clock::{since, whole_seconds};
use karpenter_cluster::controllers::context::{annotation, is_deleting, label, name_of, uid_of};
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use serde_json::{Value, json};

pub use self::commit::commit;
use self::decide::{Facts, Outcome, POLL, Step, decide};
use super::{INITIALIZED, REBOOTING, change_conditions, condition, managed_claim, nodes_of};
use crate::context::Context;
use crate::events::ObjectEvent;
use crate::node::EvictionQueue;
use crate::stores::{BY_NODE, BY_PROVIDER_ID};
use crate::writes;

/// Longer than a restart may take: each of its events is told once.
const EVENT_REPEAT: Duration = Duration::from_secs(30 * 60);

pub struct RebootController {
    pub context: Context,
    pub evictions: EvictionQueue,
    /// Since when the provider has been asked, by the claim's uid.
    issuing_since: Mutex<BTreeMap<String, Timestamp>>,
}

impl RebootController {
    pub fn new(context: Context, evictions: EvictionQueue) -> Self {
        Self { context, evictions, issuing_since: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            if condition(change.object(), REBOOTING).is_some() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        // What a node says about its boot concerns its claim while that waits for it.
        let (to, claims) = (queue.clone(), self.context.stores.node_claims.clone());
        self.context.stores.nodes.observe(move |change: &Change<Node>| {
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
        let stores = &self.context.stores;
        let node = nodes_of(&self.context, &claim).into_iter().next();
        let pods = node.as_ref().map(|node| stores.pods.by(BY_NODE, name_of(&**node))).unwrap_or_default();
        let issuing_since = self.issuing_since().get(uid_of(&*claim)).copied();
        Facts { claim, node, pods, issuing_since }
    }

    async fn act(&self, facts: &Facts, step: Step) -> kube::Result<After> {
        match step {
            Step::Nothing => {
                self.issuing_since().remove(uid_of(&*facts.claim));
                Ok(After::Done)
            }
            Step::Wait(again) => Ok(After::Again(again)),
            Step::Fail { outcome, message } => self.fail(facts, outcome, &message).await,
            Step::Drain { evict, manner, again } => {
                let Some(node) = self.close(facts).await? else { return Ok(After::Again(POLL)) };
                let reason = condition(&facts.claim, commit::DISRUPTION_REASON);
                let reason = reason.map_or("", |found| found.reason.as_str());
                for pod in &evict {
                    self.evictions.add(pod, name_of(&node), manner.clone(), reason);
                }
                Ok(After::Again(again))
            }
            Step::Issue { boot_id, is_recorded } => self.issue(facts, &boot_id, is_recorded).await,
            Step::MarkIssued => {
                if self.close(facts).await?.is_none() {
                    return Ok(After::Again(POLL));
                }
                self.mark_issued(facts).await
            }
            Step::Observe { has_booted } => self.watch_recovery(facts, has_booted).await,
            Step::Succeed => self.succeed(facts).await,
        }
    }

    async fn issue(&self, facts: &Facts, boot_id: &str, is_recorded: bool) -> kube::Result<After> {
        if self.close(facts).await?.is_none() {
            return Ok(After::Again(POLL));
        }
        let Context { client, stores, clock, cloud, .. } = &self.context;
        self.issuing_since().entry(uid_of(&*facts.claim).to_owned()).or_insert_with(|| clock.now());
        if !is_recorded {
            // Before the first call: afterwards nobody could tell which boot the node was in.
            let key = labels::ANNOTATION_REBOOT_PRE_BOOT_ID;
            let patch = json!({"metadata": {"annotations": {key: boot_id}}});
            let written = writes::merge_unchanged(client, &stores.node_claims, &*facts.claim, patch).await?;
            return Ok(if written.is_some() { After::Again(Duration::ZERO) } else { After::Done });
        }
        let Some(rebooting) = decide::active(&facts.claim) else { return Ok(After::Done) };
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

    async fn mark_issued(&self, facts: &Facts) -> kube::Result<After> {
        let mut wanted = (*facts.claim).clone();
        let message = condition(&wanted, REBOOTING).map(|found| found.message.clone()).unwrap_or_default();
        change_conditions(&mut wanted, self.context.clock.now(), |set| {
            set.set_true_with_reason(REBOOTING, decide::ISSUED, &message);
            // Whether a node is finished is a matter of one boot.
            set.set_unknown_with_reason(INITIALIZED, "Rebooting", "node is rebooting");
        });
        if self.write_status(&facts.claim, &wanted).await?.is_none() {
            return Ok(After::Done);
        }
        if let Some(node) = &facts.node {
            self.remove_initialized_label(node).await?;
        }
        Ok(After::Again(POLL))
    }

    async fn watch_recovery(&self, facts: &Facts, has_booted: bool) -> kube::Result<After> {
        let Some(node) = &facts.node else { return Ok(After::Again(POLL)) };
        let node = self.remove_initialized_label(node).await?;
        if has_booted && let Some(node) = node {
            self.open(&node).await?;
            self.tell_observed(&facts.claim).await;
        }
        Ok(After::Again(POLL))
    }

    async fn succeed(&self, facts: &Facts) -> kube::Result<After> {
        if let Some(node) = &facts.node
            && let Some(node) = self.remove_initialized_label(node).await?
        {
            self.open(&node).await?;
        }
        self.tell_observed(&facts.claim).await;
        let message = "node rebooted and rejoined the cluster";
        if !self.end(&facts.claim, "RebootSucceeded", message).await? {
            return Ok(After::Done);
        }
        let now = self.context.clock.now();
        self.count(&facts.claim, Outcome::Succeeded, now);
        let rebooting = decide::active(&facts.claim);
        if let Some(issued) = rebooting.and_then(|found| decide::issued_at(&facts.claim, found)) {
            let recovery = &self.context.metrics.nodes_reboot_recovery_duration;
            recovery.with_label_values::<&str>(&[]).observe(since(now, issued).as_secs_f64());
        }
        Ok(After::Done)
    }

    /// A request that makes no sense is dropped. Anything else that went wrong leaves a node of which nobody knows what
    /// to expect: it is replaced, within the time the restart had for its pods.
    async fn fail(&self, facts: &Facts, outcome: Outcome, message: &str) -> kube::Result<After> {
        if let Some(node) = &facts.node {
            self.open(node).await?;
        }
        let Context { client, stores, clock, .. } = &self.context;
        if outcome == Outcome::InvalidRequest {
            if !self.end(&facts.claim, "RebootFailed", message).await? {
                return Ok(After::Done);
            }
        } else {
            let mut claim = facts.claim.clone();
            if let Ok(Some(bound)) = decide::drain_bound(&claim) {
                let bound = SignedDuration::try_from(bound).unwrap_or(SignedDuration::MAX);
                let by = clock.now().checked_add(bound).unwrap_or(Timestamp::MAX);
                match tighten_termination(&self.context, &claim, by).await? {
                    Some(tightened) => claim = Arc::new(tightened),
                    None => return Ok(After::Done),
                }
            }
            writes::delete_unchanged(client, &stores.node_claims, &*claim).await?;
            self.issuing_since().remove(uid_of(&*claim));
            tracing::info!(result = outcome.label(), "reboot failed, replacing node");
        }
        let notice = ObjectEvent::warning(&*facts.claim, "RebootFailed", message);
        self.context.recorder.publish(of_this_reboot(notice, &facts.claim)).await;
        self.count(&facts.claim, outcome, clock.now());
        Ok(After::Done)
    }

    /// Writes how it ended, and wipes what belongs to this restart alone. `false` if the claim is gone.
    async fn end(&self, claim: &Arc<NodeClaim>, reason: &str, message: &str) -> kube::Result<bool> {
        let Context { client, stores, clock, .. } = &self.context;
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
        let Context { client, stores, .. } = &self.context;
        writes::status_unchanged(client, &stores.node_claims, stored, &stored.status, &wanted.status).await
    }

    /// Closes the node to new pods. `None` if it is gone.
    async fn close(&self, facts: &Facts) -> kube::Result<Option<Node>> {
        let Some(node) = facts.node.as_deref() else { return Ok(None) };
        let mut taints = taints_of(node);
        if taints.iter().any(is_rebooting) {
            return Ok(Some(node.clone()));
        }
        let (key, effect) = (labels::TAINT_REBOOTING.to_owned(), "NoSchedule".to_owned());
        taints.push(Taint { key, effect, ..Taint::default() });
        self.write_taints(node, &taints).await
    }

    async fn open(&self, node: &Node) -> kube::Result<()> {
        let taints = taints_of(node);
        let left: Vec<Taint> = taints.iter().filter(|taint| !is_rebooting(taint)).cloned().collect();
        if left.len() < taints.len() {
            self.write_taints(node, &left).await?;
        }
        Ok(())
    }

    async fn write_taints(&self, node: &Node, taints: &[Taint]) -> kube::Result<Option<Node>> {
        let Context { client, stores, .. } = &self.context;
        let patch = json!({"spec": {"taints": taints}});
        writes::merge_unchanged(client, &stores.nodes, node, patch).await
    }

    /// The node as it is afterwards; `None` if it is gone.
    async fn remove_initialized_label(&self, node: &Arc<Node>) -> kube::Result<Option<Node>> {
        if label(&**node, labels::INITIALIZED).is_none() {
            return Ok(Some((**node).clone()));
        }
        let Context { client, stores, .. } = &self.context;
        let patch = json!({"metadata": {"labels": {labels::INITIALIZED: Value::Null}}});
        writes::merge(client, &stores.nodes, &**node, patch).await
    }

    async fn tell_observed(&self, claim: &NodeClaim) {
        let message = "New boot observed (bootID changed); awaiting node readiness";
        let notice = ObjectEvent::normal(claim, "RebootObserved", message);
        self.context.recorder.publish(of_this_reboot(notice, claim)).await;
    }

    fn count(&self, claim: &NodeClaim, outcome: Outcome, now: Timestamp) {
        let metrics = &self.context.metrics;
        metrics.nodes_reboots.with_label_values(&[outcome.label()]).inc();
        if let Some(rebooting) = condition(claim, REBOOTING) {
            let seconds = since(now, decide::requested_at(rebooting)).as_secs_f64();
            metrics.nodes_reboot_duration.with_label_values(&[outcome.label()]).observe(seconds);
        }
    }
}

impl Reconcile for RebootController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let Some(claim) = managed_claim(&self.context, key) else { return Ok(After::Done) };
        if is_deleting(&*claim) {
            self.issuing_since().remove(uid_of(&*claim));
            return Ok(After::Done);
        }
        let facts = self.observe(claim);
        let step = decide(&facts, self.context.clock.now());
        self.act(&facts, step).await
    }
}

/// Sets the time by which the claim's node must be gone, unless it must be gone earlier. `None` if the claim is gone.
pub async fn tighten_termination(
    context: &Context,
    claim: &NodeClaim,
    by: Timestamp,
) -> kube::Result<Option<NodeClaim>> {
    let key = labels::ANNOTATION_TERMINATION_TIMESTAMP;
    let present = annotation(claim, key).and_then(|text| text.parse::<Timestamp>().ok());
    if present.is_some_and(|present| present <= by) {
        return Ok(Some(claim.clone()));
    }
    let patch = json!({"metadata": {"annotations": {key: whole_seconds(by).to_string()}}});
    writes::merge_unchanged(&context.client, &context.stores.node_claims, claim, patch).await
}

fn of_this_reboot(notice: ObjectEvent, claim: &NodeClaim) -> ObjectEvent {
    let requested = condition(claim, REBOOTING).map(|found| decide::requested_at(found).to_string());
    notice.repeat_after(EVENT_REPEAT).dedupe_by(requested.unwrap_or_default())
}

fn taints_of(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

fn is_rebooting(taint: &Taint) -> bool {
    taint.key == labels::TAINT_REBOOTING && taint.effect == "NoSchedule"
}
