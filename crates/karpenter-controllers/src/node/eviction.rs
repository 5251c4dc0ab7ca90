//! The eviction queue: pods to evict or delete, retried with a back-off until they terminate.
//!
//! A pod is evicted with the eviction API, which respects PodDisruptionBudgets, and only while no do-not-disrupt
//! annotation protects it. A pod is deleted if the termination deadline of its node requires it. The callers decide which
//! pods are added and when.
//!
//! Upstream: pkg/controllers/node/termination/terminator/eviction.go.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod as RawPod};
use karpenter_api::labels;
use karpenter_model::duration::parse_go_duration;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use serde_json::{Value, json};

use crate::context::Context;
use crate::events::ObjectEvent;
use crate::pods::{self, DoNotDisrupt};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How long the watch may take to show that an evicted pod is terminating.
const SETTLE: Duration = Duration::from_secs(1);
/// The message of the API server, with code 500, for a pod that two PodDisruptionBudgets select.
const MULTIPLE_BUDGETS: &str = "more than one PodDisruptionBudget";

/// How a pod is removed from its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionMode {
    /// Evict the pod; retry for as long as it is protected.
    Evict,
    /// Evict the pod; if it still runs at this time, drop it from the queue.
    EvictUntil(Timestamp),
    /// Delete the pod early enough that it has terminated by this time.
    DeleteBy(Timestamp),
}

impl EvictionMode {
    /// The mode that removes the pod earlier. `EvictUntil`, which may leave the pod running, yields to any other mode.
    fn earlier(self, other: Self) -> Self {
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
    mode: EvictionMode,
    /// The disruption reason of the node, for the pod's event.
    reason: String,
    failures: u32,
}

/// The pods in the queue. Clones of the queue share them.
#[derive(Debug, Clone, Default)]
pub struct EvictionQueue {
    entries: Arc<Mutex<BTreeMap<ObjectKey, Entry>>>,
    queue: Arc<OnceLock<Queue>>,
}

impl EvictionQueue {
    /// Adds a pod. If it is present, the earlier deadline counts.
    pub fn add(&self, pod: &Pod, node: &str, mode: EvictionMode, reason: &str) {
        let key = key_of(pod);
        {
            let mut entries = self.entries();
            match entries.get_mut(&key) {
                Some(entry) => {
                    let sooner = entry.mode.clone().earlier(mode);
                    if entry.mode == sooner {
                        return;
                    }
                    entry.mode = sooner;
                }
                None => {
                    let (node, reason) = (node.to_owned(), reason.to_owned());
                    entries.insert(key.clone(), Entry { node, mode, reason, failures: 0 });
                }
            }
        }
        if let Some(queue) = self.queue.get() {
            queue.add(key);
        }
    }

    /// The number of pods that are not known to be terminating.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    fn attach(&self, queue: &Queue) {
        // This fails only for a second controller on the same queue; the first one serves it.
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
        let Some(entry) = entries.get_mut(key) else { return BACKOFF_MIN };
        entry.failures = entry.failures.saturating_add(1);
        backoff(entry.failures)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACKOFF_MAX)
}

/// Includes the uid, so that a new pod with the same name is not evicted.
fn key_of(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.namespace(), format!("{}/{}", pod.name, pod.uid))
}

/// The next step for one entry.
#[derive(Debug, Clone, PartialEq)]
pub enum EvictionAttempt {
    /// The pod is terminating, does not exist anymore, or the time of `EvictUntil` has passed.
    Drop,
    /// A do-not-disrupt annotation protects the pod, until this time if it is limited.
    Wait {
        until: Option<Timestamp>,
    },
    Evict,
    Delete {
        grace_seconds: u32,
    },
}

pub fn decide(pod: Option<&Pod>, mode: &EvictionMode, now: Timestamp) -> EvictionAttempt {
    let Some(pod) = pod else { return EvictionAttempt::Drop };
    match mode {
        EvictionMode::DeleteBy(by) if needs_deletion(pod, *by, now) => {
            EvictionAttempt::Delete { grace_seconds: grace_seconds(*by, now) }
        }
        EvictionMode::DeleteBy(_) => EvictionAttempt::Drop,
        EvictionMode::EvictUntil(end) if now >= *end => EvictionAttempt::Drop,
        EvictionMode::Evict | EvictionMode::EvictUntil(_) if !pods::is_active(pod) => EvictionAttempt::Drop,
        EvictionMode::Evict | EvictionMode::EvictUntil(_) if pods::is_evictable(pod, now) => {
            EvictionAttempt::Evict
        }
        EvictionMode::Evict | EvictionMode::EvictUntil(_) => {
            let protected_until = match pods::do_not_disrupt(pod, now) {
                DoNotDisrupt::Until(until) => Some(until),
                _ => None,
            };
            let end = match mode {
                EvictionMode::EvictUntil(end) => Some(*end),
                _ => None,
            };
            EvictionAttempt::Wait { until: [protected_until, end].into_iter().flatten().min() }
        }
    }
}

/// Whether the pod must be deleted now to be gone by the deadline. It gets as much of its own grace period as the deadline
/// allows; a pod without a grace period is not deleted early.
pub fn needs_deletion(pod: &Pod, by: Timestamp, now: Timestamp) -> bool {
    if pods::is_terminal(pod) {
        return false;
    }
    if let Some(ends) = pod.deleted_at {
        // The pod was already deleted with this grace period or a shorter one, so another deletion would change
        // nothing.
        let asked = i64::from(grace_seconds(by, now));
        return ends > by && ends.as_second() > now.as_second() + asked;
    }
    let grace = pod.spec.termination_grace_period_seconds;
    grace.is_some_and(|grace| now.as_second().saturating_add(grace) > by.as_second())
}

fn grace_seconds(by: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(until(now, by).as_secs()).unwrap_or(u32::MAX).max(1)
}

/// The controller of the eviction queue.
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

    async fn evict(&self, key: &ObjectKey, entry: &Entry, pod: &Pod) -> Requeue {
        let answer = post_eviction(&self.context, pod).await;
        let metrics = &self.context.metrics;
        metrics.pods_eviction_requests.with_label_values(&[code_of(&answer).as_str()]).inc();
        match answer {
            Ok(()) => {
                metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
                let message = format!("Evicted pod: {}", entry.reason);
                self.context.recorder.publish(ObjectEvent::normal_of_pod(pod, "Evicted", message)).await;
                // The entry stays until the store shows the termination, so that the pod is not evicted twice.
                Requeue::After(SETTLE)
            }
            Err(error) => match failure_of(&error) {
                Failure::Gone => {
                    self.queue.remove(key);
                    Requeue::No
                }
                Failure::Budget => {
                    let Some(node) = self.node(entry) else {
                        self.queue.remove(key);
                        return Requeue::No;
                    };
                    let message = format!(
                        "Failed to drain node, evicting pod {}/{} violates a PDB",
                        pod.namespace(),
                        pod.name
                    );
                    // This event is published in addition to the node controller's event with the number of pods.
                    let event =
                        ObjectEvent::warning(&*node, "FailedDraining", message).dedupe_by(key.to_string());
                    self.context.recorder.publish(event).await;
                    Requeue::After(self.queue.failed(key))
                }
                Failure::Other => {
                    self.log_failure("failed evicting pod", key, &error);
                    Requeue::After(self.queue.failed(key))
                }
            },
        }
    }

    /// Logs errors other than those of PodDisruptionBudgets and missing pods.
    fn log_failure(&self, what: &'static str, pod: &ObjectKey, error: &kube::Error) {
        if self.context.log_throttle.is_due(what, pod, self.context.clock.now()) {
            tracing::error!(%pod, %error, "{what}");
        }
    }

    async fn delete(&self, key: &ObjectKey, entry: &Entry, pod: &Pod, grace_seconds: u32) -> Requeue {
        let api = Api::<RawPod>::namespaced(self.context.client.clone(), pod.namespace());
        let params = DeleteParams {
            grace_period_seconds: Some(grace_seconds),
            preconditions: Some(preconditions(pod)),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name, &params).await {
            Ok(_) => {
                self.context.metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
                let by = match entry.mode {
                    EvictionMode::DeleteBy(by) => by.to_string(),
                    EvictionMode::Evict | EvictionMode::EvictUntil(_) => String::new(),
                };
                let own = pod.spec.termination_grace_period_seconds;
                let message = format!(
                    "Deleting the pod to accommodate the terminationTime {by} of the node. The pod was granted \
                     {grace_seconds} seconds of grace-period of its {} terminationGracePeriodSeconds. This bypasses \
                     the PDB of the pod and the do-not-disrupt annotation.",
                    own.unwrap_or_default()
                );
                self.context.recorder.publish(ObjectEvent::normal_of_pod(pod, "Disrupted", message)).await;
                Requeue::After(SETTLE)
            }
            Err(error) => match failure_of(&error) {
                Failure::Gone => {
                    self.queue.remove(key);
                    Requeue::No
                }
                Failure::Budget | Failure::Other => {
                    self.log_failure("failed deleting pod", key, &error);
                    Requeue::After(self.queue.failed(key))
                }
            },
        }
    }

    async fn publish_annotation_event(&self, pod: &Pod, now: Timestamp) {
        if let Some(event) = annotation_event(pod, now) {
            self.context.recorder.publish(event).await;
        }
    }
}

/// The event that says until when the do-not-disrupt annotation of a pod protects it, or that it is invalid.
pub(crate) fn annotation_event(pod: &Pod, now: Timestamp) -> Option<ObjectEvent> {
    let event = match pods::do_not_disrupt(pod, now) {
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
    Some(event)
}

impl Reconcile for Evictions {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(entry) = self.queue.get(key) else { return Ok(Requeue::No) };
        let name = key.name.split('/').next().unwrap_or_default();
        let pod = self.context.stores.pods.get(&key.namespace, name);
        let pod = pod.filter(|pod| key_of(pod) == *key);
        let now = self.context.clock.now();
        let attempt = decide(pod.as_deref(), &entry.mode, now);
        if let Some(pod) = pod.as_deref().filter(|_| !matches!(entry.mode, EvictionMode::DeleteBy(_))) {
            self.publish_annotation_event(pod, now).await;
        }
        match (attempt, pod) {
            (EvictionAttempt::Drop, _) | (_, None) => {
                self.queue.remove(key);
                Ok(Requeue::No)
            }
            (EvictionAttempt::Wait { until: wait_until }, _) => {
                // The drain may have been cancelled.
                if !self.node(&entry).is_some_and(|node| is_draining(&node)) {
                    self.queue.remove(key);
                    return Ok(Requeue::No);
                }
                let pause = self.queue.failed(key);
                Ok(Requeue::After(wait_until.map_or(pause, |end| pause.min(until(now, end)))))
            }
            (EvictionAttempt::Evict, Some(pod)) => Ok(self.evict(key, &entry, &pod).await),
            (EvictionAttempt::Delete { grace_seconds }, Some(pod)) => {
                Ok(self.delete(key, &entry, &pod, grace_seconds).await)
            }
        }
    }
}

/// Whether the node is still drained: it is terminating or about to be rebooted.
fn is_draining(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_some() || taints.any(|taint| taint.key == labels::TAINT_REBOOTING)
}

fn preconditions(pod: &Pod) -> Preconditions {
    Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }
}

async fn post_eviction(context: &Context, pod: &Pod) -> kube::Result<()> {
    let api = Api::<RawPod>::namespaced(context.client.clone(), pod.namespace());
    // `Api::evict` of kube drops the delete options, because it spells their field differently.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace()},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let params = PostParams::default();
    api.create_subresource::<_, Value>("eviction", &pod.name, &params, &eviction).await.map(drop)
}

/// The status code of the response; 500 if there was none.
fn code_of(answer: &kube::Result<()>) -> String {
    match answer {
        Ok(()) => "200".to_owned(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(_) => "500".to_owned(),
    }
}

/// Why an eviction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The pod does not exist anymore, or another pod has its name.
    Gone,
    Budget,
    Other,
}

fn failure_of(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else { return Failure::Other };
    match status.code {
        404 | 409 => Failure::Gone,
        429 => Failure::Budget,
        500 if status.message.contains(MULTIPLE_BUDGETS) => Failure::Budget,
        _ => Failure::Other,
    }
}
