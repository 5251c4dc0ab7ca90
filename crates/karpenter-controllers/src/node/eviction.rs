//! Pods that have to leave their node, one entry each, tried until the pod is on its way out.
//!
//! An entry either asks politely, through the eviction API, which a disruption budget or a do-not-disrupt annotation
//! may hold up for as long as it likes, or until a time when the pod is left where it is; or deletes, because the node's
//! time is up. Which pods have to leave, and in
//! which order, is decided by whoever adds them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod as RawPod};
use karpenter_api::labels;
use karpenter_cluster::clock::until;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use karpenter_model::duration::parse_go_duration;
use karpenter_state::pod::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use serde_json::{Value, json};

use crate::context::Context;
use crate::events::ObjectEvent;
use crate::pods::{self, DoNotDisrupt};

const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// How long the watch may take to show that an evicted pod is on its way out.
const SETTLE: Duration = Duration::from_secs(1);
/// What the server says, with code 500, about a pod that two budgets select.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// How a pod is made to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// By eviction; what stands against it is waited for.
    Evict,
    /// By eviction until then; what is still there stays.
    EvictUntil(Timestamp),
    /// By deletion, so that it is gone by then.
    DeleteBy(Timestamp),
}

impl Manner {
    /// Of two wishes the one that ends the pod earlier. One that may leave the pod where it is gives way to any other.
    fn or_sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::EvictUntil(one), Self::EvictUntil(two)) => Self::EvictUntil(one.min(two)),
            (Self::EvictUntil(_), other) | (other, Self::EvictUntil(_)) => other,
            (Self::DeleteBy(one), Self::DeleteBy(two)) => Self::DeleteBy(one.min(two)),
            (Self::DeleteBy(by), Self::Evict) | (Self::Evict, Self::DeleteBy(by)) => Self::DeleteBy(by),
            (Self::Evict, Self::Evict) => Self::Evict,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    node: String,
    manner: Manner,
    /// Why the node goes, for the pod's event.
    reason: String,
    failures: u32,
}

/// The entries. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct EvictionQueue {
    entries: Arc<Mutex<BTreeMap<ObjectKey, Entry>>>,
    queue: Arc<OnceLock<Queue>>,
}

impl EvictionQueue {
    /// Asks that the pod leaves. Asked again, the earlier deadline counts.
    pub fn add(&self, pod: &Pod, node: &str, manner: Manner, reason: &str) {
        let key = key_of(pod);
        {
            let mut entries = self.entries();
            match entries.get_mut(&key) {
                Some(entry) => {
                    let sooner = entry.manner.clone().or_sooner(manner);
                    if entry.manner == sooner {
                        return;
                    }
                    entry.manner = sooner;
                }
                None => {
                    let (node, reason) = (node.to_owned(), reason.to_owned());
                    entries.insert(key.clone(), Entry { node, manner, reason, failures: 0 });
                }
            }
        }
        if let Some(queue) = self.queue.get() {
            queue.add(key);
        }
    }

    /// How many pods have been asked to leave and are not known to be on their way.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    fn attach(&self, queue: &Queue) {
        // A second attachment would mean two controllers on one queue; the first one serves it.
        let _ = self.queue.set(queue.clone());
        for key in self.entries().keys() {
            queue.add(key.clone());
        }
    }

    fn get(&self, key: &ObjectKey) -> Option<Entry> {
        self.entries().get(key).cloned()
    }

    fn remove(&self, key: &ObjectKey) {
        self.entries().remove(key);
    }

    fn failed(&self, key: &ObjectKey) -> Duration {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return BACK_OFF_FIRST };
        entry.failures = entry.failures.saturating_add(1);
        launch_backoff(entry.failures)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launch_backoff(failures: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACK_OFF_MAX)
}

/// A pod that comes back under the same name has another uid and is not meant.
fn key_of(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.namespace(), format!("{}/{}", pod.name, pod.uid))
}

/// What to do about one entry now.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// The pod is on its way, or was never meant.
    Drop,
    /// Something the pod itself says stands against it, at least until then.
    Wait {
        until: Option<Timestamp>,
    },
    Evict,
    Delete {
        grace_seconds: u32,
    },
}

/// Decides the next attempt at a pod.
pub fn decide(pod: Option<&Pod>, manner: &Manner, now: Timestamp) -> Attempt {
    let Some(pod) = pod else { return Attempt::Drop };
    match manner {
        Manner::DeleteBy(by) if needs_deletion(pod, *by, now) => {
            Attempt::Delete { grace_seconds: grace_seconds(*by, now) }
        }
        Manner::DeleteBy(_) => Attempt::Drop,
        Manner::EvictUntil(end) if now >= *end => Attempt::Drop,
        Manner::Evict | Manner::EvictUntil(_) if !pods::is_active(pod) => Attempt::Drop,
        Manner::Evict | Manner::EvictUntil(_) if pods::is_evictable(pod, now) => Attempt::Evict,
        Manner::Evict | Manner::EvictUntil(_) => {
            let spared_until = match pods::do_not_disrupt(pod, now) {
                DoNotDisrupt::Until(until) => Some(until),
                _ => None,
            };
            let end = match manner {
                Manner::EvictUntil(end) => Some(*end),
                _ => None,
            };
            Attempt::Wait { until: [spared_until, end].into_iter().flatten().min() }
        }
    }
}

/// Whether the pod would outlive its node's time unless it is deleted now. Its own grace period is granted as far as
/// the time reaches; a pod without one is never hurried.
pub fn needs_deletion(pod: &Pod, by: Timestamp, now: Timestamp) -> bool {
    if pods::is_terminal(pod) {
        return false;
    }
    if let Some(ends) = pod.deleted_at {
        // Asking again for the same end would change nothing.
        let asked = i64::from(grace_seconds(by, now));
        return ends > by && ends.as_second() > now.as_second() + asked;
    }
    let grace = pod.spec.termination_grace_period_seconds;
    grace.is_some_and(|grace| now.as_second().saturating_add(grace) > by.as_second())
}

fn grace_seconds(by: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(until(now, by).as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Works on the entries.
pub struct Evictions {
    pub context: Context,
    pub queue: EvictionQueue,
}

impl Evictions {
    pub fn watch(&self, queue: &Queue) {
        self.queue.attach(queue);
    }

    fn node(&self, entry: &Entry) -> Option<Arc<Node>> {
        self.context.stores.nodes.get("", &entry.node)
    }

    async fn evict(&self, key: &ObjectKey, entry: &Entry, pod: &Pod) -> After {
        let answer = post_eviction(&self.context, pod).await;
        let metrics = &self.context.metrics;
        metrics.pods_eviction_requests.with_label_values(&[code_of(&answer).as_str()]).inc();
        match answer {
            Ok(()) => {
                metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
                let message = format!("Evicted pod: {}", entry.reason);
                self.context.recorder.publish(ObjectEvent::normal_of_pod(pod, "Evicted", message)).await;
                // Stays until the store shows it, so that nobody evicts it twice meanwhile.
                After::Again(SETTLE)
            }
            Err(error) => match refusal_of(&error) {
                Refusal::Gone => {
                    self.queue.remove(key);
                    After::Done
                }
                Refusal::Budget => {
                    let Some(node) = self.node(entry) else {
                        self.queue.remove(key);
                        return After::Done;
                    };
                    let message = format!(
                        "Failed to drain node, evicting pod {}/{} violates a PDB",
                        pod.namespace(),
                        pod.name
                    );
                    // Which pod it is says more than how many wait, and is told besides.
                    let notice =
                        ObjectEvent::warning(&*node, "FailedDraining", message).dedupe_by(key.to_string());
                    self.context.recorder.publish(notice).await;
                    After::Again(self.queue.failed(key))
                }
                Refusal::Other => {
                    self.complain("evicting a pod", key, &error);
                    After::Again(self.queue.failed(key))
                }
            },
        }
    }

    /// What is neither an answer of a budget nor of the pod's absence.
    fn complain(&self, what: &'static str, pod: &ObjectKey, error: &kube::Error) {
        if self.context.log_throttle.is_due(what, pod, self.context.clock.now()) {
            tracing::error!(%pod, %error, "{what}");
        }
    }

    async fn delete(&self, key: &ObjectKey, entry: &Entry, pod: &Pod, grace_seconds: u32) -> After {
        let api = Api::<RawPod>::namespaced(self.context.client.clone(), pod.namespace());
        let params = DeleteParams {
            grace_period_seconds: Some(grace_seconds),
            preconditions: Some(preconditions(pod)),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name, &params).await {
            Ok(_) => {
                self.context.metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
                let by = match entry.manner {
                    Manner::DeleteBy(by) => by.to_string(),
                    Manner::Evict | Manner::EvictUntil(_) => String::new(),
                };
                let own = pod.spec.termination_grace_period_seconds;
                let message = format!(
                    "Deleting the pod to accommodate the terminationTime {by} of the node. The pod was granted \
                     {grace_seconds} seconds of grace-period of its {} terminationGracePeriodSeconds. This bypasses \
                     the PDB of the pod and the do-not-disrupt annotation.",
                    own.unwrap_or_default()
                );
                self.context.recorder.publish(ObjectEvent::normal_of_pod(pod, "Disrupted", message)).await;
                After::Again(SETTLE)
            }
            Err(error) => match refusal_of(&error) {
                Refusal::Gone => {
                    self.queue.remove(key);
                    After::Done
                }
                Refusal::Budget | Refusal::Other => {
                    self.complain("deleting a pod", key, &error);
                    After::Again(self.queue.failed(key))
                }
            },
        }
    }

    async fn tell_about_annotation(&self, pod: &Pod, now: Timestamp) {
        if let Some(notice) = annotation_notice(pod, now) {
            self.context.recorder.publish(notice).await;
        }
    }
}

/// Tells a pod's owner what its annotation does, or that it does nothing.
pub(crate) fn annotation_notice(pod: &Pod, now: Timestamp) -> Option<ObjectEvent> {
    let notice = match pods::do_not_disrupt(pod, now) {
        DoNotDisrupt::Absent | DoNotDisrupt::Always => return None,
        DoNotDisrupt::Until(until) => {
            let message = format!("The karpenter.sh/do-not-disrupt grace period will elapse at {until}");
            ObjectEvent::normal_of_pod(pod, "DoNotDisruptUntil", message)
        }
        DoNotDisrupt::Elapsed => ObjectEvent::normal_of_pod(
            pod,
            "DoNotDisruptGracePeriodElapsed",
            "The karpenter.sh/do-not-disrupt grace period has elapsed, pod is now disruptable",
        ),
        DoNotDisrupt::Invalid => {
            let value = pod.annotation(labels::ANNOTATION_DO_NOT_DISRUPT).unwrap_or_default();
            let error = match parse_go_duration(value) {
                Ok(_) => format!("duration {value:?} must be positive"),
                Err(error) => format!("failed to parse {value:?} as a duration: {error}"),
            };
            let message =
                format!("Invalid karpenter.sh/do-not-disrupt annotation: {error}, ignoring annotation");
            ObjectEvent::warning_of_pod(pod, "InvalidDoNotDisruptAnnotation", message)
        }
    };
    Some(notice)
}

impl Reconcile for Evictions {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let Some(entry) = self.queue.get(key) else { return Ok(After::Done) };
        let name = key.name.split('/').next().unwrap_or_default();
        let pod = self.context.stores.pods.get(&key.namespace, name);
        let pod = pod.filter(|pod| key_of(pod) == *key);
        let now = self.context.clock.now();
        let attempt = decide(pod.as_deref(), &entry.manner, now);
        if let Some(pod) = pod.as_deref().filter(|_| !matches!(entry.manner, Manner::DeleteBy(_))) {
            self.tell_about_annotation(pod, now).await;
        }
        match (attempt, pod) {
            (Attempt::Drop, _) | (_, None) => {
                self.queue.remove(key);
                Ok(After::Done)
            }
            (Attempt::Wait { until: wait_until }, _) => {
                // The pod may be spared because its node is: then nobody waits for it any more.
                if !self.node(&entry).is_some_and(|node| is_emptied(&node)) {
                    self.queue.remove(key);
                    return Ok(After::Done);
                }
                let pause = self.queue.failed(key);
                Ok(After::Again(wait_until.map_or(pause, |end| pause.min(until(now, end)))))
            }
            (Attempt::Evict, Some(pod)) => Ok(self.evict(key, &entry, &pod).await),
            (Attempt::Delete { grace_seconds }, Some(pod)) => {
                Ok(self.delete(key, &entry, &pod, grace_seconds).await)
            }
        }
    }
}

/// Whether the node still wants its pods out: it is on its way out itself, or about to be restarted.
fn is_emptied(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_some() || taints.any(|taint| taint.key == labels::TAINT_REBOOTING)
}

fn preconditions(pod: &Pod) -> Preconditions {
    Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }
}

async fn post_eviction(context: &Context, pod: &Pod) -> kube::Result<()> {
    let api = Api::<RawPod>::namespaced(context.client.clone(), pod.namespace());
    // kube's own call would lose the delete options: it does not name them as the server does.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace()},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let params = PostParams::default();
    api.create_subresource::<_, Value>("eviction", &pod.name, &params, &eviction).await.map(drop)
}

/// The code of the server's answer; 500 if there was none.
fn code_of(answer: &kube::Result<()>) -> String {
    match answer {
        Ok(()) => "200".to_owned(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(_) => "500".to_owned(),
    }
}

/// Why the server did not let a pod go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It is not there any more, or its namesake is meant.
    Gone,
    Budget,
    Other,
}

fn refusal_of(error: &kube::Error) -> Refusal {
    let kube::Error::Api(status) = error else { return Refusal::Other };
    match status.code {
        404 | 409 => Refusal::Gone,
        429 => Refusal::Budget,
        500 if status.message.contains(SEVERAL_BUDGETS) => Refusal::Budget,
        _ => Refusal::Other,
    }
}
