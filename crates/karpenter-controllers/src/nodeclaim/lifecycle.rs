//! The lifecycle of one NodeClaim: launch, registration of its node, initialization, termination.
//!
//! A reconcile changes a copy of the claim and writes it at the end. Only the result of a launch is written at once. No
//! instance is launched before the finalizer is stored. If a launch fails, the reconcile does not: the condition
//! `Launched` contains the reason, and the launch is retried with a back-off until the launch timeout.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/controller.go.

mod finalize;
mod initialization;
mod launch;
mod liveness;
mod registration;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels::{self, FINALIZER_TERMINATION};
use karpenter_api::types::NodeClaim;
use karpenter_cloud::{CloudProvider, HookAnswer, Instance};
use karpenter_runtime::clock::until;
use karpenter_runtime::object::{ObjectKey, is_conflict, is_deleting, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_runtime::write::difference;
use karpenter_state::claim::{
    INITIALIZED, INSTANCE_TERMINATING, LAUNCHED, REGISTERED, change_conditions, is_true, provider_id,
};
use karpenter_state::node::is_node_ready;
use karpenter_state::pod::Pod;
use serde_json::json;

use self::finalize::{Finalize, RETRY_TERMINATION};
use self::initialization::Initialization;
use self::launch::LaunchOutcome;
use self::liveness::Liveness;
use self::registration::Registration;
use crate::annotations::adopted_provider_id;
use crate::claims::hooks::{DeletionCause, Hooks, LifecycleOutcome};
use crate::events::ObjectEvent;
use crate::inputs::{Reads, Writes};
use crate::pods;
use crate::registration_health::RegistrationHealth;
use crate::stores::BY_PROVIDER_ID;
use crate::writes;

/// The maximum number of nominated pods that get an event when a claim could not be launched.
const PODS_NOTIFIED_MAX: usize = 10;
/// When to call a registration hook again that is not ready and states no time.
const HOOK_RETRY: Duration = Duration::from_secs(1);

pub struct Lifecycle {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
    pub hooks: Hooks,
    pub registration_health: RegistrationHealth,
    launches: Mutex<BTreeMap<String, LaunchAttempt>>,
}

/// The state of a launch that is not stored in the claim yet.
#[derive(Debug, Default)]
struct LaunchAttempt {
    claim_name: String,
    /// The launched instance. It is kept until it is written to the claim, because a repeated launch call could launch
    /// a second instance.
    instance: Option<Instance>,
    failures: u32,
    retry_at: Option<Timestamp>,
}

/// Whether the reconcile continues with registration after the launch step.
enum Progress {
    Continue(Requeue),
    Done(Requeue),
}

/// The result of the registration step.
#[derive(PartialEq, Eq)]
enum RegistrationStep {
    Unchanged,
    /// The node could be registered, but the registration gate holds it.
    Held,
    Registered,
}

impl Lifecycle {
    pub fn new(
        reads: Reads,
        writes: Writes,
        cloud: Arc<dyn CloudProvider>,
        hooks: Hooks,
        registration_health: RegistrationHealth,
    ) -> Self {
        Self { reads, writes, cloud, hooks, registration_health, launches: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        self.reads.stores.enqueue_claims(queue);
        (self.hooks.set_queue)(queue);
        // A change of a node triggers a reconcile of its claim until the claim is initialized, and while it is
        // terminating.
        let (to, claims) = (queue.clone(), self.reads.stores.node_claims.clone());
        self.reads.stores.nodes.observe(move |change: &Change<Node>| {
            let id = change.object().spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            for claim in id.map(|id| claims.by(BY_PROVIDER_ID, id)).unwrap_or_default() {
                if is_deleting(&*claim) || !is_true(&claim, INITIALIZED) {
                    to.add(ObjectKey::of(&claim.metadata));
                }
            }
        });
    }

    fn launches(&self) -> MutexGuard<'_, BTreeMap<String, LaunchAttempt>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn advance(&self, claim: &Arc<NodeClaim>) -> kube::Result<Requeue> {
        let Some(mut stored) = self.ensure_finalizer(claim).await? else { return Ok(Requeue::No) };
        let mut requeue = Requeue::No;

        let mut working = stored.clone();
        match self.launch(&mut working).await? {
            Progress::Done(requeue) => return Ok(requeue),
            Progress::Continue(other) => requeue = requeue.earlier(other),
        }
        // The provider id is stored before any further step.
        match self.persist(stored, &working).await? {
            Some(answer) => stored = answer,
            None => return Ok(Requeue::No),
        }
        if is_true(&stored, LAUNCHED) {
            self.launches().remove(uid_of(&stored));
        }

        let mut working = stored.clone();
        let (step, retry) = self.register(&mut working).await?;
        requeue = requeue.earlier(retry);
        let initialized = self.initialize(&mut working).await?;
        let alive = match step {
            // The node appeared in time, so the registration timeout does not apply while the registration gate holds
            // the node.
            RegistrationStep::Held => Liveness::Alive,
            RegistrationStep::Registered | RegistrationStep::Unchanged => {
                liveness::decide(&working, self.reads.clock.now())
            }
        };
        let Some(stored) = self.persist(stored, &working).await? else { return Ok(Requeue::No) };
        if step == RegistrationStep::Registered {
            self.hooks.report(&stored, LifecycleOutcome::Registered);
            self.registration_health
                .record_success(&self.reads, &self.writes, &stored)
                .await
                .or_else(unless_conflict)?;
        }
        if initialized {
            self.hooks.report(&stored, LifecycleOutcome::Initialized);
        }
        match alive {
            Liveness::Alive => Ok(requeue),
            Liveness::CheckAfter(wait) => Ok(requeue.earlier(Requeue::After(wait))),
            Liveness::TimedOut(cause) => {
                self.registration_health
                    .record_failure(&self.reads, &self.writes, &stored)
                    .await
                    .or_else(unless_conflict)?;
                if cause == DeletionCause::RegistrationTimeout {
                    self.report_registration_timeout(&stored).await;
                }
                self.delete_claim(&stored, cause).await
            }
        }
    }

    /// Publishes an event on the NodeClaim and one on its NodePool. The NodeClaim is about to be deleted, so users can
    /// see only the event on the NodePool afterwards.
    async fn report_registration_timeout(&self, claim: &NodeClaim) {
        const REASON: &str = "NodeClaimRegistrationTimeout";
        let Reads { stores, .. } = &self.reads;
        let Writes { recorder, .. } = &self.writes;
        let name = name_of(claim);
        let label = |key: &str| claim.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let of =
            |key: &str, word: &str| label(key).map(|value| format!(" {word} {value}")).unwrap_or_default();
        let minutes = liveness::REGISTRATION_TIMEOUT.as_secs() / 60;
        let message = format!(
            "NodeClaim {name}{}{} did not register a node within {minutes} minutes and is deleted; check user data, \
             security groups and node role of its node class",
            of(labels::INSTANCE_TYPE, "of type"),
            of(labels::ZONE, "in"),
        );
        recorder.publish(ObjectEvent::warning(claim, REASON, message.clone())).await;
        if let Some(pool) = label(labels::NODEPOOL).and_then(|pool| stores.node_pools.get("", pool)) {
            recorder.publish(ObjectEvent::warning(&*pool, REASON, message).dedupe_by(name)).await;
        }
    }

    /// Adds the finalizer and the node class label to the claim. Returns `None` if the claim no longer exists.
    async fn ensure_finalizer(&self, claim: &Arc<NodeClaim>) -> kube::Result<Option<NodeClaim>> {
        let Some(patch) = finalize::protection(claim) else { return Ok(Some((**claim).clone())) };
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        writes::merge_unchanged(client, &stores.node_claims, &**claim, patch).await
    }

    async fn launch(&self, claim: &mut NodeClaim) -> kube::Result<Progress> {
        let now = self.reads.clock.now();
        if !launch::is_pending(claim) {
            launch::follow_generation(claim, LAUNCHED, now);
            return Ok(Progress::Continue(Requeue::No));
        }
        let uid = uid_of(claim).to_owned();
        let known = {
            let launches = self.launches();
            let attempt = launches.get(&uid);
            if let Some(at) = attempt.and_then(|attempt| attempt.retry_at).filter(|at| *at > now) {
                return Ok(Progress::Continue(Requeue::After(until(now, at))));
            }
            attempt.and_then(|attempt| attempt.instance.clone())
        };
        let answer = match known {
            Some(instance) => Ok(instance),
            None => match adopted_provider_id(claim) {
                Some(provider_id) => self.cloud.get(provider_id).await,
                None => self.cloud.create(claim).await,
            },
        };
        match launch::classify(answer) {
            LaunchOutcome::Launched(instance) => {
                let attempt = LaunchAttempt {
                    claim_name: name_of(claim).to_owned(),
                    instance: Some((*instance).clone()),
                    ..LaunchAttempt::default()
                };
                let is_new = self.launches().insert(uid, attempt).is_none_or(|old| old.instance.is_none());
                launch::record(claim, *instance, now);
                if is_new {
                    self.hooks.report(claim, LifecycleOutcome::Launched);
                }
                Ok(Progress::Continue(Requeue::No))
            }
            LaunchOutcome::Delete { cause, error } => {
                if cause == DeletionCause::InsufficientCapacity {
                    self.report_insufficient_capacity(claim, &error).await;
                }
                self.hooks.report(claim, LifecycleOutcome::LaunchFailed { message: error });
                self.launches().remove(&uid);
                self.delete_claim(claim, cause).await.map(Progress::Done)
            }
            LaunchOutcome::Retry { reason, message } => {
                let wait = {
                    let mut launches = self.launches();
                    let attempt = launches.entry(uid).or_default();
                    attempt.claim_name = name_of(claim).to_owned();
                    attempt.failures += 1;
                    let wait = launch::backoff(attempt.failures);
                    attempt.retry_at = Some(launch::add(now, wait));
                    wait
                };
                change_conditions(claim, now, |set| set.set_unknown_with_reason(LAUNCHED, &reason, &message));
                self.hooks.report(claim, LifecycleOutcome::LaunchFailed { message });
                Ok(Progress::Continue(Requeue::After(wait)))
            }
        }
    }

    async fn report_insufficient_capacity(&self, claim: &NodeClaim, error: &str) {
        const REASON: &str = "InsufficientCapacityError";
        let recorder = &self.writes.recorder;
        let name = name_of(claim);
        let message = launch::truncate(&format!("NodeClaim {name} event: {error}"));
        recorder.publish(ObjectEvent::warning(claim, REASON, message)).await;
        let pods = (self.hooks.planned_pods)(claim).into_iter();
        let waiting = pods
            .filter_map(|key| self.reads.stores.pods.get_key(&key))
            .filter(|pod| is_pending_pod(pod))
            .take(PODS_NOTIFIED_MAX);
        for pod in waiting {
            let message = launch::truncate(&format!(
                "NodeClaim {name} nominated for this pod failed to launch: {error}"
            ));
            recorder.publish(ObjectEvent::warning_of_pod(&pod, REASON, message)).await;
        }
    }

    /// Registers the node if it exists and no hook holds it. The second value says when to ask pending hooks again.
    async fn register(&self, claim: &mut NodeClaim) -> kube::Result<(RegistrationStep, Requeue)> {
        let now = self.reads.clock.now();
        let nodes = self.reads.stores.nodes_of(claim);
        let mut retry = Requeue::No;
        let mut held_by = Vec::new();
        if registration::is_ready_to_register(claim, &nodes) {
            (held_by, retry) = pending_hooks(&*self.cloud, claim).await;
            let node = nodes.first().filter(|_| held_by.is_empty());
            if let Some(wait) = node.and_then(|node| (self.hooks.hold_registration)(claim, node)) {
                return Ok((RegistrationStep::Held, Requeue::After(wait)));
            }
        }
        match registration::decide(claim, &nodes, &held_by) {
            Registration::AlreadyDecided => launch::follow_generation(claim, REGISTERED, now),
            Registration::NodeMissing => change_conditions(claim, now, |set| {
                set.set_unknown_with_reason(REGISTERED, "NodeNotFound", "Node not registered with cluster");
            }),
            Registration::MultipleNodes => change_conditions(claim, now, |set| {
                let message = "Invariant violated, matched multiple nodes";
                set.set_false(REGISTERED, "MultipleNodesFound", message);
            }),
            Registration::Held { node, patch, lacks_taint, by } => {
                self.report_missing_taint(claim, lacks_taint).await;
                if let Some(patch) = patch {
                    let Reads { stores, .. } = &self.reads;
                    let Writes { client, .. } = &self.writes;
                    writes::merge_unchanged(client, &stores.nodes, &*node, patch).await?;
                }
                change_conditions(claim, now, |set| {
                    set.set_unknown_with_reason(REGISTERED, "RegistrationHookPending", &by.join(", "));
                });
            }
            Registration::Register { mut node, mut patch, lacks_taint } => {
                self.report_missing_taint(claim, lacks_taint).await;
                if patch.is_some() && is_node_ready(&node) {
                    (self.hooks.before_schedulable)(Arc::new(claim.clone()), node.clone()).await;
                    // The hook may have taken long and the node may have changed meanwhile, so registration is decided
                    // again.
                    match registration::decide(claim, &self.reads.stores.nodes_of(claim), &[]) {
                        Registration::Register { node: current, patch: left, .. } => {
                            (node, patch) = (current, left)
                        }
                        _ => return Ok((RegistrationStep::Unchanged, Requeue::After(Duration::ZERO))),
                    }
                }
                if let Some(patch) = patch {
                    let Reads { stores, .. } = &self.reads;
                    let Writes { client, .. } = &self.writes;
                    if writes::merge_unchanged(client, &stores.nodes, &*node, patch).await?.is_none() {
                        return Ok((RegistrationStep::Unchanged, Requeue::No));
                    }
                }
                change_conditions(claim, now, |set| set.set_true(REGISTERED));
                claim.status.get_or_insert_default().node_name = node.metadata.name.clone();
                return Ok((RegistrationStep::Registered, Requeue::No));
            }
        }
        Ok((RegistrationStep::Unchanged, retry))
    }

    async fn report_missing_taint(&self, claim: &NodeClaim, lacks_taint: bool) {
        if !lacks_taint {
            return;
        }
        let message = format!(
            "Missing {} taint which prevents registration related race conditions on Karpenter-managed nodes",
            labels::TAINT_UNREGISTERED
        );
        let event = ObjectEvent::warning(claim, "UnregisteredTaintMissing", message);
        self.writes.recorder.publish(event).await;
    }

    /// Initializes the node if it is ready for that. Returns whether it was initialized in this reconcile.
    async fn initialize(&self, claim: &mut NodeClaim) -> kube::Result<bool> {
        let now = self.reads.clock.now();
        match initialization::decide(claim, &self.reads.stores.nodes_of(claim)) {
            Initialization::AlreadyDecided => launch::follow_generation(claim, INITIALIZED, now),
            Initialization::NotApplicable => {}
            Initialization::NotYet { reason, message, opens } => {
                if let Some(node) = opens {
                    (self.hooks.before_schedulable)(Arc::new(claim.clone()), node).await;
                }
                change_conditions(claim, now, |set| {
                    set.set_unknown_with_reason(INITIALIZED, reason, &message);
                });
            }
            Initialization::Done { node, patch } => {
                (self.hooks.before_schedulable)(Arc::new(claim.clone()), node.clone()).await;
                if let Some(patch) = patch {
                    let Reads { stores, .. } = &self.reads;
                    let Writes { client, .. } = &self.writes;
                    writes::merge(client, &stores.nodes, &*node, patch).await?;
                }
                change_conditions(claim, now, |set| set.set_true(INITIALIZED));
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn delete_claim(&self, claim: &NodeClaim, cause: DeletionCause) -> kube::Result<Requeue> {
        writes::delete(&self.writes.client, &self.reads.stores.node_claims, claim).await?;
        self.hooks.report(claim, LifecycleOutcome::Deleted(cause));
        Ok(Requeue::No)
    }

    /// Writes the changes of metadata and status. Returns the stored claim; `None` if it no longer exists. Claims are
    /// compared before they are serialized, because most reconciles change nothing.
    async fn persist(&self, stored: NodeClaim, wanted: &NodeClaim) -> kube::Result<Option<NodeClaim>> {
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let (old, new) = (&stored.metadata, &wanted.metadata);
        let changes_metadata = (&old.labels, &old.annotations) != (&new.labels, &new.annotations);
        let changes_status = stored.status != wanted.status;
        let metadata = |claim: &NodeClaim| json!({"labels": claim.metadata.labels, "annotations": claim.metadata.annotations});
        let patch = changes_metadata.then(|| difference(&metadata(&stored), &metadata(wanted))).flatten();
        let written = match patch {
            Some(patch) => {
                let patch = json!({ "metadata": patch });
                match writes::merge_unchanged(client, &stores.node_claims, &stored, patch).await? {
                    Some(answer) => Some(answer),
                    None => return Ok(None),
                }
            }
            None => None,
        };
        let current = written.as_ref().unwrap_or(&stored);
        if !changes_status || difference(&stored.status, &wanted.status).is_none() {
            return Ok(Some(written.unwrap_or(stored)));
        }
        writes::status_unchanged(client, &stores.node_claims, current, &stored.status, &wanted.status).await
    }

    async fn finish(&self, claim: &Arc<NodeClaim>) -> kube::Result<Requeue> {
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, recorder, .. } = &self.writes;
        let unstored = self.launches().get(uid_of(&**claim)).and_then(|attempt| attempt.instance.clone());
        let unstored = unstored.map(|instance| instance.provider_id);
        match finalize::decide(claim, &self.reads.stores.nodes_of(claim), unstored.as_deref()) {
            Finalize::Nothing => Ok(Requeue::No),
            Finalize::SetDeadline { deadline } => {
                let patch = json!({"metadata": {"annotations": {labels::ANNOTATION_TERMINATION_TIMESTAMP: deadline}}});
                if writes::merge_unchanged(client, &stores.node_claims, &**claim, patch).await?.is_none() {
                    return Ok(Requeue::No);
                }
                tracing::info!(
                    provider_id = provider_id(claim),
                    node = claim.status.as_ref().and_then(|status| status.node_name.as_deref()),
                    "karpenter.sh/nodeclaim-termination-timestamp" = deadline,
                    "annotated nodeclaim"
                );
                let message = format!("All pods will be deleted by {deadline}");
                recorder
                    .publish(ObjectEvent::warning(&**claim, "TerminationGracePeriodExpiring", message))
                    .await;
                Ok(Requeue::After(Duration::ZERO))
            }
            Finalize::DeleteNodes(nodes) => {
                for node in nodes {
                    writes::delete(client, &stores.nodes, &*node).await?;
                }
                // The node controller drains the deleted nodes. The claim is reconciled again when they no longer
                // exist.
                Ok(if self.reads.stores.nodes_of(claim).is_empty() {
                    Requeue::After(Duration::ZERO)
                } else {
                    Requeue::No
                })
            }
            Finalize::AwaitNodes => Ok(Requeue::No),
            Finalize::TerminateInstance { provider_id } => {
                let mut target = (**claim).clone();
                target.status.get_or_insert_default().provider_id = Some(provider_id);
                let answer = self.cloud.delete(&target).await;
                let is_gone = match &answer {
                    Ok(()) => false,
                    Err(error) if error.is_not_found() => true,
                    Err(error) => {
                        let name = name_of(&**claim);
                        if self.writes.log_throttle.is_due("terminating instance", name, clock.now()) {
                            tracing::error!(%error, "failed terminating instance");
                        }
                        return Ok(Requeue::After(finalize::retry_after(error)));
                    }
                };
                let mut wanted = (**claim).clone();
                change_conditions(&mut wanted, clock.now(), |set| set.set_true(INSTANCE_TERMINATING));
                let Some(stored) = self.persist((**claim).clone(), &wanted).await? else {
                    return Ok(Requeue::No);
                };
                if !is_gone {
                    return Ok(Requeue::After(RETRY_TERMINATION));
                }
                self.hooks.report(&stored, LifecycleOutcome::InstanceTerminated);
                self.release(&stored).await
            }
            Finalize::Release => self.release(claim).await,
        }
    }

    async fn release(&self, claim: &NodeClaim) -> kube::Result<Requeue> {
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let left: Vec<&String> = claim
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|finalizer| *finalizer != FINALIZER_TERMINATION)
            .collect();
        let patch = json!({"metadata": {"finalizers": left}});
        writes::merge_unchanged(client, &stores.node_claims, claim, patch).await?;
        self.launches().remove(uid_of(claim));
        self.hooks.report(claim, LifecycleOutcome::Terminated);
        Ok(Requeue::No)
    }
}

impl Reconcile for Lifecycle {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key) else {
            self.launches().retain(|_, attempt| attempt.claim_name != key.name);
            return Ok(Requeue::No);
        };
        if is_deleting(&*claim) { self.finish(&claim).await } else { self.advance(&claim).await }
    }
}

/// The names of the provider's registration hooks that are not ready, and the earliest time at which one of them is
/// called again.
async fn pending_hooks(cloud: &dyn CloudProvider, claim: &NodeClaim) -> (Vec<String>, Requeue) {
    let hooks = cloud.registration_hooks();
    let answers = futures::future::join_all(hooks.iter().map(|hook| hook.registered(claim))).await;
    let mut names = Vec::new();
    let mut again = Requeue::No;
    for (hook, answer) in hooks.iter().zip(answers) {
        let after = match answer {
            Ok(HookAnswer::Ready) => continue,
            Ok(HookAnswer::NotYet { ask_again_after }) => ask_again_after.unwrap_or(HOOK_RETRY),
            Err(error) => {
                tracing::error!(hook = hook.name(), %error, "registration hook failed");
                HOOK_RETRY
            }
        };
        names.push(hook.name().to_owned());
        again = again.earlier(Requeue::After(after));
    }
    (names, again)
}

/// Whether a pod is not bound, not terminal and not terminating.
fn is_pending_pod(pod: &Pod) -> bool {
    !pods::is_bound(pod) && pods::is_active(pod)
}

/// Ignores conflicts: the condition of the NodePool only informs users, so a conflict must not repeat the reconcile of
/// the claim.
fn unless_conflict(error: kube::Error) -> kube::Result<()> {
    if is_conflict(&error) { Ok(()) } else { Err(error) }
}
