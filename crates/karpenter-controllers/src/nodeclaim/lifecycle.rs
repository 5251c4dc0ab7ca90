//! The way of one claim: launch, registration of its node, initialization, and the end; or giving up in between.
//!
//! A pass works on a copy of the claim and writes it back at the end, the launch at once. Nothing is launched before
//! the finalizer is stored. Failures of the cloud are states with deadlines here, not errors: the condition says what
//! went wrong, and the next try has its time.

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
use karpenter_cloud::{HookAnswer, Instance};
use karpenter_cluster::clock::until;
use karpenter_cluster::controllers::context::{difference, is_conflict, is_deleting, name_of, uid_of};
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use karpenter_state::pod::Pod;
use serde_json::json;

use self::finalize::{Finalize, RETRY_TERMINATION};
use self::initialization::Initialization;
pub(crate) use self::initialization::has_all_resources;
use self::launch::LaunchOutcome;
use self::liveness::Liveness;
use self::registration::Registration;
use super::hooks::{GiveUp, Hooks, Milestone};
use super::{
    INITIALIZED, INSTANCE_TERMINATING, LAUNCHED, REGISTERED, change_conditions, is_node_ready, is_true,
    managed_claim, nodes_of, provider_id, watch_claims,
};
use crate::context::Context;
use crate::events::ObjectEvent;
use crate::legacy::adoption::adopted_provider_id;
use crate::nodepool::registration_health::RegistrationHealth;
use crate::pods;
use crate::stores::BY_PROVIDER_ID;
use crate::writes;

/// At most this many pods are told that their claim could not be launched.
const PODS_TOLD_MAX: usize = 10;
/// A registration hook that does not say when it wants to be asked again is asked after this long.
const HOOK_RETRY: Duration = Duration::from_secs(1);

pub struct Lifecycle {
    pub context: Context,
    pub hooks: Hooks,
    pub registration_health: RegistrationHealth,
    launches: Mutex<BTreeMap<String, Attempt>>,
}

/// What this process knows about a launch that the API server does not know yet.
#[derive(Debug, Default)]
struct Attempt {
    claim_name: String,
    /// The machine exists; asking for it again could buy a second one.
    instance: Option<Instance>,
    failures: u32,
    try_again_at: Option<Timestamp>,
}

/// What a step says about the rest of the pass.
enum Pass {
    GoOn(After),
    Over(After),
}

/// What became of a node at the door.
#[derive(PartialEq, Eq)]
enum Opening {
    Unchanged,
    /// It could be opened, and is kept closed for a moment for the pods that are to run there.
    KeptClosed,
    Opened,
}

impl Lifecycle {
    pub fn new(context: Context, hooks: Hooks, registration_health: RegistrationHealth) -> Self {
        Self { context, hooks, registration_health, launches: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        watch_claims(&self.context, queue);
        (self.hooks.connect)(queue);
        // A node concerns its claim until that is initialized, and again while that is on its way out.
        let (to, claims) = (queue.clone(), self.context.stores.node_claims.clone());
        self.context.stores.nodes.observe(move |change: &Change<Node>| {
            let id = change.object().spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            for claim in id.map(|id| claims.by(BY_PROVIDER_ID, id)).unwrap_or_default() {
                if is_deleting(&*claim) || !is_true(&claim, INITIALIZED) {
                    to.add(ObjectKey::of(&claim.metadata));
                }
            }
        });
    }

    fn launches(&self) -> MutexGuard<'_, BTreeMap<String, Attempt>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn advance(&self, claim: &Arc<NodeClaim>) -> kube::Result<After> {
        let Some(mut stored) = self.ensure_finalizer(claim).await? else { return Ok(After::Done) };
        let mut wish = After::Done;

        let mut working = stored.clone();
        match self.launch(&mut working).await? {
            Pass::Over(after) => return Ok(after),
            Pass::GoOn(after) => wish = wish.earlier(after),
        }
        // The machine's id is stored before anything else happens to it.
        match self.persist(stored, &working).await? {
            Some(answer) => stored = answer,
            None => return Ok(After::Done),
        }
        if is_true(&stored, LAUNCHED) {
            self.launches().remove(uid_of(&stored));
        }

        let mut working = stored.clone();
        let (opening, ask_again) = self.register(&mut working).await?;
        wish = wish.earlier(ask_again);
        let initialized = self.initialize(&mut working).await?;
        let alive = match opening {
            // It has come in time; that it is not registered is our own doing, and soon over.
            Opening::KeptClosed => Liveness::Alive,
            Opening::Opened | Opening::Unchanged => liveness::decide(&working, self.context.clock.now()),
        };
        let Some(stored) = self.persist(stored, &working).await? else { return Ok(After::Done) };
        if opening == Opening::Opened {
            self.hooks.tell(&stored, Milestone::Registered);
            self.registration_health.record_success(&self.context, &stored).await.or_else(unless_conflict)?;
        }
        if initialized {
            self.hooks.tell(&stored, Milestone::Initialized);
        }
        match alive {
            Liveness::Alive => Ok(wish),
            Liveness::CheckAfter(wait) => Ok(wish.earlier(After::Again(wait))),
            Liveness::TimedOut(why) => {
                self.registration_health
                    .record_failure(&self.context, &stored)
                    .await
                    .or_else(unless_conflict)?;
                self.give_up(&stored, why).await
            }
        }
    }

    /// The claim with its finalizer and the label of its node class; `None` if it is gone.
    async fn ensure_finalizer(&self, claim: &Arc<NodeClaim>) -> kube::Result<Option<NodeClaim>> {
        let Some(patch) = finalize::protection(claim) else { return Ok(Some((**claim).clone())) };
        let Context { client, stores, .. } = &self.context;
        writes::merge_unchanged(client, &stores.node_claims, &**claim, patch).await
    }

    async fn launch(&self, claim: &mut NodeClaim) -> kube::Result<Pass> {
        let now = self.context.clock.now();
        if !launch::is_open(claim) {
            launch::follow_generation(claim, LAUNCHED, now);
            return Ok(Pass::GoOn(After::Done));
        }
        let uid = uid_of(claim).to_owned();
        let known = {
            let launches = self.launches();
            let attempt = launches.get(&uid);
            if let Some(at) = attempt.and_then(|attempt| attempt.try_again_at).filter(|at| *at > now) {
                return Ok(Pass::GoOn(After::Again(until(now, at))));
            }
            attempt.and_then(|attempt| attempt.instance.clone())
        };
        let answer = match known {
            Some(instance) => Ok(instance),
            None => match adopted_provider_id(claim) {
                Some(machine) => self.context.cloud.get(machine).await,
                None => self.context.cloud.create(claim).await,
            },
        };
        match launch::judge(answer) {
            LaunchOutcome::Launched(instance) => {
                let attempt = Attempt {
                    claim_name: name_of(claim).to_owned(),
                    instance: Some((*instance).clone()),
                    ..Attempt::default()
                };
                let is_news = self.launches().insert(uid, attempt).is_none_or(|old| old.instance.is_none());
                launch::record(claim, *instance, now);
                if is_news {
                    self.hooks.tell(claim, Milestone::Launched);
                }
                Ok(Pass::GoOn(After::Done))
            }
            LaunchOutcome::GiveUp { why, error } => {
                if why == GiveUp::InsufficientCapacity {
                    self.tell_no_capacity(claim, &error).await;
                }
                self.hooks.tell(claim, Milestone::LaunchFailed { message: error });
                self.launches().remove(&uid);
                self.give_up(claim, why).await.map(Pass::Over)
            }
            LaunchOutcome::TryAgain { reason, message } => {
                let wait = {
                    let mut launches = self.launches();
                    let attempt = launches.entry(uid).or_default();
                    attempt.claim_name = name_of(claim).to_owned();
                    attempt.failures += 1;
                    let wait = launch::pause(attempt.failures);
                    attempt.try_again_at = Some(launch::later(now, wait));
                    wait
                };
                change_conditions(claim, now, |set| set.set_unknown_with_reason(LAUNCHED, &reason, &message));
                self.hooks.tell(claim, Milestone::LaunchFailed { message });
                Ok(Pass::GoOn(After::Again(wait)))
            }
        }
    }

    async fn tell_no_capacity(&self, claim: &NodeClaim, error: &str) {
        const REASON: &str = "InsufficientCapacityError";
        let recorder = &self.context.recorder;
        let name = name_of(claim);
        let message = launch::cut(&format!("NodeClaim {name} event: {error}"));
        recorder.publish(ObjectEvent::warning(claim, REASON, message)).await;
        let pods = (self.hooks.planned_pods)(claim).into_iter();
        let waiting = pods
            .filter_map(|key| self.context.stores.pods.get_key(&key))
            .filter(|pod| is_waiting(pod))
            .take(PODS_TOLD_MAX);
        for pod in waiting {
            let message =
                launch::cut(&format!("NodeClaim {name} nominated for this pod failed to launch: {error}"));
            recorder.publish(ObjectEvent::warning_of_pod(&pod, REASON, message)).await;
        }
    }

    /// Whether the node was opened for pods in this pass, and when to ask again who holds that up.
    async fn register(&self, claim: &mut NodeClaim) -> kube::Result<(Opening, After)> {
        let now = self.context.clock.now();
        let nodes = nodes_of(&self.context, claim);
        let mut ask_again = After::Done;
        let mut held_by = Vec::new();
        if registration::is_at_the_door(claim, &nodes) {
            (held_by, ask_again) = hold_ups(&self.context, claim).await;
            let node = nodes.first().filter(|_| held_by.is_empty());
            if let Some(wait) = node.and_then(|node| (self.hooks.hold_closed)(claim, node)) {
                return Ok((Opening::KeptClosed, After::Again(wait)));
            }
        }
        match registration::decide(claim, &nodes, &held_by) {
            Registration::Settled => launch::follow_generation(claim, REGISTERED, now),
            Registration::NodeMissing => change_conditions(claim, now, |set| {
                set.set_unknown_with_reason(REGISTERED, "NodeNotFound", "Node not registered with cluster");
            }),
            Registration::SeveralNodes => change_conditions(claim, now, |set| {
                let message = "Invariant violated, matched multiple nodes";
                set.set_false(REGISTERED, "MultipleNodesFound", message);
            }),
            Registration::Held { node, patch, lacks_taint, by } => {
                self.tell_missing_taint(claim, lacks_taint).await;
                if let Some(patch) = patch {
                    let Context { client, stores, .. } = &self.context;
                    writes::merge_unchanged(client, &stores.nodes, &*node, patch).await?;
                }
                change_conditions(claim, now, |set| {
                    set.set_unknown_with_reason(REGISTERED, "RegistrationHookPending", &by.join(", "));
                });
            }
            Registration::Open { mut node, mut patch, lacks_taint } => {
                self.tell_missing_taint(claim, lacks_taint).await;
                if patch.is_some() && is_node_ready(&node) {
                    (self.hooks.before_opening)(Arc::new(claim.clone()), node.clone()).await;
                    // Others may have written to the node meanwhile.
                    match registration::decide(claim, &nodes_of(&self.context, claim), &[]) {
                        Registration::Open { node: current, patch: left, .. } => {
                            (node, patch) = (current, left)
                        }
                        _ => return Ok((Opening::Unchanged, After::Again(Duration::ZERO))),
                    }
                }
                if let Some(patch) = patch {
                    let Context { client, stores, .. } = &self.context;
                    if writes::merge_unchanged(client, &stores.nodes, &*node, patch).await?.is_none() {
                        return Ok((Opening::Unchanged, After::Done));
                    }
                }
                change_conditions(claim, now, |set| set.set_true(REGISTERED));
                claim.status.get_or_insert_default().node_name = node.metadata.name.clone();
                return Ok((Opening::Opened, After::Done));
            }
        }
        Ok((Opening::Unchanged, ask_again))
    }

    async fn tell_missing_taint(&self, claim: &NodeClaim, lacks_taint: bool) {
        if !lacks_taint {
            return;
        }
        let message = format!(
            "Missing {} taint which prevents registration related race conditions on Karpenter-managed nodes",
            labels::TAINT_UNREGISTERED
        );
        let notice = ObjectEvent::warning(claim, "UnregisteredTaintMissing", message);
        self.context.recorder.publish(notice).await;
    }

    /// Whether the node counts as initialized from this pass on.
    async fn initialize(&self, claim: &mut NodeClaim) -> kube::Result<bool> {
        let now = self.context.clock.now();
        match initialization::decide(claim, &nodes_of(&self.context, claim)) {
            Initialization::Settled => launch::follow_generation(claim, INITIALIZED, now),
            Initialization::TooEarly => {}
            Initialization::NotYet { reason, message, opens } => {
                if let Some(node) = opens {
                    (self.hooks.before_opening)(Arc::new(claim.clone()), node).await;
                }
                change_conditions(claim, now, |set| {
                    set.set_unknown_with_reason(INITIALIZED, reason, &message);
                });
            }
            Initialization::Done { node, patch } => {
                (self.hooks.before_opening)(Arc::new(claim.clone()), node.clone()).await;
                if let Some(patch) = patch {
                    let Context { client, stores, .. } = &self.context;
                    writes::merge(client, &stores.nodes, &*node, patch).await?;
                }
                change_conditions(claim, now, |set| set.set_true(INITIALIZED));
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn give_up(&self, claim: &NodeClaim, why: GiveUp) -> kube::Result<After> {
        writes::delete(&self.context.client, &self.context.stores.node_claims, claim).await?;
        self.hooks.tell(claim, Milestone::GaveUp(why));
        Ok(After::Done)
    }

    /// Writes what a pass changed; the answer is the claim as it is now, `None` if it is gone. Most passes change nothing,
    /// which is seen before anything is made into JSON.
    async fn persist(&self, stored: NodeClaim, wanted: &NodeClaim) -> kube::Result<Option<NodeClaim>> {
        let Context { client, stores, .. } = &self.context;
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

    async fn finish(&self, claim: &Arc<NodeClaim>) -> kube::Result<After> {
        let Context { client, stores, recorder, clock, .. } = &self.context;
        let unstored = self.launches().get(uid_of(&**claim)).and_then(|attempt| attempt.instance.clone());
        let unstored = unstored.map(|instance| instance.provider_id);
        match finalize::decide(claim, &nodes_of(&self.context, claim), unstored.as_deref()) {
            Finalize::Nothing => Ok(After::Done),
            Finalize::SetDeadline { deadline } => {
                let patch = json!({"metadata": {"annotations": {labels::ANNOTATION_TERMINATION_TIMESTAMP: deadline}}});
                if writes::merge_unchanged(client, &stores.node_claims, &**claim, patch).await?.is_none() {
                    return Ok(After::Done);
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
                Ok(After::Again(Duration::ZERO))
            }
            Finalize::DeleteNodes(nodes) => {
                for node in nodes {
                    writes::delete(client, &stores.nodes, &*node).await?;
                }
                // Their own controller drains them; this claim is looked at again when they are gone.
                Ok(if nodes_of(&self.context, claim).is_empty() {
                    After::Again(Duration::ZERO)
                } else {
                    After::Done
                })
            }
            Finalize::AwaitNodes => Ok(After::Done),
            Finalize::EndInstance { provider_id } => {
                let mut target = (**claim).clone();
                target.status.get_or_insert_default().provider_id = Some(provider_id);
                let answer = self.context.cloud.delete(&target).await;
                let is_gone = match &answer {
                    Ok(()) => false,
                    Err(error) if error.is_not_found() => true,
                    Err(error) => {
                        let name = name_of(&**claim);
                        if self.context.log_throttle.is_due("ending instance", name, clock.now()) {
                            tracing::error!(%error, "failed terminating instance");
                        }
                        return Ok(After::Again(finalize::pause_after(error)));
                    }
                };
                let mut wanted = (**claim).clone();
                change_conditions(&mut wanted, clock.now(), |set| set.set_true(INSTANCE_TERMINATING));
                let Some(stored) = self.persist((**claim).clone(), &wanted).await? else {
                    return Ok(After::Done);
                };
                if !is_gone {
                    return Ok(After::Again(RETRY_TERMINATION));
                }
                self.hooks.tell(&stored, Milestone::InstanceTerminated);
                self.release(&stored).await
            }
            Finalize::Release => self.release(claim).await,
        }
    }

    async fn release(&self, claim: &NodeClaim) -> kube::Result<After> {
        let Context { client, stores, .. } = &self.context;
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
        self.hooks.tell(claim, Milestone::Terminated);
        Ok(After::Done)
    }
}

impl Reconcile for Lifecycle {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let Some(claim) = managed_claim(&self.context, key) else {
            self.launches().retain(|_, attempt| attempt.claim_name != key.name);
            return Ok(After::Done);
        };
        if is_deleting(&*claim) { self.finish(&claim).await } else { self.advance(&claim).await }
    }
}

/// The provider's hooks that do not agree to open the claim's node yet, and when to ask the first of them again.
async fn hold_ups(context: &Context, claim: &NodeClaim) -> (Vec<String>, After) {
    let hooks = context.cloud.registration_hooks();
    let answers = futures::future::join_all(hooks.iter().map(|hook| hook.registered(claim))).await;
    let mut names = Vec::new();
    let mut again = After::Done;
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
        again = again.earlier(After::Again(after));
    }
    (names, again)
}

/// Still without a node, and alive.
fn is_waiting(pod: &Pod) -> bool {
    !pods::is_bound(pod) && pods::is_active(pod)
}

/// The health of a pool is told on the way; that somebody else wrote the pool meanwhile must not repeat the pass.
fn unless_conflict(error: kube::Error) -> kube::Result<()> {
    if is_conflict(&error) { Ok(()) } else { Err(error) }
}
