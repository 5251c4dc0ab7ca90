//! The eviction queue: evicts or deletes pods, and retries with a back-off until they terminate.
//!
//! An eviction uses the eviction API, which respects PodDisruptionBudgets, and is attempted only while no
//! do-not-disrupt annotation protects the pod. A pod is deleted only if the termination deadline of its node requires
//! it. The callers decide which pods are added to the queue and when.
//!
//! Upstream: pkg/controllers/node/termination/terminator/eviction.go.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod as RawPod};
use karpenter_api::labels;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use serde_json::{Value, json};

use crate::events::ObjectEvent;
use crate::evictions::{
    Entry, EvictionMode, EvictionQueue, annotation_event, grace_seconds, key_of, needs_deletion,
};
use crate::inputs::{Reads, Writes};
use crate::pods::{self, DoNotDisrupt};

/// How long to wait until the watch shows that an evicted pod is terminating.
const SETTLE: Duration = Duration::from_secs(1);
/// The message with which the API server rejects, with code 500, the eviction of a pod that two PodDisruptionBudgets
/// select.
const MULTIPLE_BUDGETS: &str = "more than one PodDisruptionBudget";

/// What to do next with one pod of the queue.
#[derive(Debug, Clone, PartialEq)]
pub enum EvictionAttempt {
    /// The pod is removed from the queue: it is terminating, no longer exists, or the time of `EvictUntil` has passed.
    Drop,
    /// A do-not-disrupt annotation protects the pod. If the annotation has a duration, this is its end.
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

/// The controller of the eviction queue.
pub struct Evictions {
    pub reads: Reads,
    pub writes: Writes,
    pub queue: EvictionQueue,
}

impl Evictions {
    pub fn watch(&self, queue: &Queue) {
        self.queue.attach(queue);
    }

    fn node(&self, entry: &Entry) -> Option<Arc<Node>> {
        self.reads.stores.nodes.get("", &entry.node)
    }

    async fn evict(&self, key: &ObjectKey, entry: &Entry, pod: &Pod) -> Requeue {
        let answer = post_eviction(&self.writes.client, pod).await;
        let metrics = &self.writes.metrics;
        metrics.pods_eviction_requests.with_label_values(&[code_of(&answer).as_str()]).inc();
        match answer {
            Ok(()) => {
                metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
                let message = format!("Evicted pod: {}", entry.reason);
                self.writes.recorder.publish(ObjectEvent::normal_of_pod(pod, "Evicted", message)).await;
                // The pod stays in the queue until the store shows that it is terminating, so that it is not evicted
                // twice.
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
                    // The node controller publishes an event on the node with the number of pods; this event is on the
                    // pod.
                    let event =
                        ObjectEvent::warning(&*node, "FailedDraining", message).dedupe_by(key.to_string());
                    self.writes.recorder.publish(event).await;
                    Requeue::After(self.queue.failed(key))
                }
                Failure::Other => {
                    self.log_failure("failed evicting pod", key, &error);
                    Requeue::After(self.queue.failed(key))
                }
            },
        }
    }

    /// Logs a failed eviction or deletion, unless a PodDisruptionBudget prevented it or the pod no longer exists.
    fn log_failure(&self, what: &'static str, pod: &ObjectKey, error: &kube::Error) {
        if self.writes.log_throttle.is_due(what, pod, self.reads.clock.now()) {
            tracing::error!(%pod, %error, "{what}");
        }
    }

    async fn delete(&self, key: &ObjectKey, entry: &Entry, pod: &Pod, grace_seconds: u32) -> Requeue {
        let api = Api::<RawPod>::namespaced(self.writes.client.clone(), pod.namespace());
        let params = DeleteParams {
            grace_period_seconds: Some(grace_seconds),
            preconditions: Some(preconditions(pod)),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name, &params).await {
            Ok(_) => {
                self.writes.metrics.pods_drained.with_label_values(&[entry.reason.as_str()]).inc();
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
                self.writes.recorder.publish(ObjectEvent::normal_of_pod(pod, "Disrupted", message)).await;
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
            self.writes.recorder.publish(event).await;
        }
    }
}

impl Reconcile for Evictions {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(entry) = self.queue.get(key) else { return Ok(Requeue::No) };
        let name = key.name.split('/').next().unwrap_or_default();
        let pod = self.reads.stores.pods.get(&key.namespace, name);
        let pod = pod.filter(|pod| key_of(pod) == *key);
        let now = self.reads.clock.now();
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
                // A protected pod is removed from the queue if its node is no longer drained, because the reboot or
                // termination was cancelled.
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

/// Whether the node is still being drained: it is terminating, or tainted for a reboot.
fn is_draining(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_some() || taints.any(|taint| taint.key == labels::TAINT_REBOOTING)
}

fn preconditions(pod: &Pod) -> Preconditions {
    Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }
}

async fn post_eviction(client: &Client, pod: &Pod) -> kube::Result<()> {
    let api = Api::<RawPod>::namespaced(client.clone(), pod.namespace());
    // The request is built here, because kube's `Api::evict` drops the delete options: it spells the field differently
    // from the API.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace()},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let params = PostParams::default();
    api.create_subresource::<_, Value>("eviction", &pod.name, &params, &eviction).await.map(drop)
}

/// The status code of a response for metrics; 500 if there was no response.
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
    /// The pod no longer exists, or another pod has its name.
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
