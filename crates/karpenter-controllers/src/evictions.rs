//! The queue of pods to evict or delete, which several controllers share, and the order in which the pods of a node are
//! drained.
//!
//! The controller [`crate::node::eviction`] processes the queue.
//!
//! Upstream: pkg/controllers/node/termination/terminator.

pub mod drain;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_model::duration::parse_go_duration;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_state::pod::Pod;

use crate::events::ObjectEvent;
use crate::pods::{self, DoNotDisrupt};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// How a pod is removed from its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionMode {
    /// Evict the pod. While a PodDisruptionBudget or an annotation protects the pod, the eviction is retried.
    Evict,
    /// Evict the pod. If the pod still runs at this time, it is removed from the queue and stays on the node.
    EvictUntil(Timestamp),
    /// Delete the pod so early that its grace period ends by this time.
    DeleteBy(Timestamp),
}

impl EvictionMode {
    /// Of two modes for one pod, the one that removes the pod earlier. `EvictUntil` may leave the pod running, so any
    /// other mode takes precedence over it.
    pub(crate) fn earlier(self, other: Self) -> Self {
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
pub(crate) struct Entry {
    pub(crate) node: String,
    pub(crate) mode: EvictionMode,
    /// The reason for which the node is disrupted; part of the event on the pod.
    pub(crate) reason: String,
    pub(crate) failures: u32,
}

/// The pods in the queue. Clones of the queue share them.
#[derive(Debug, Clone, Default)]
pub struct EvictionQueue {
    entries: Arc<Mutex<BTreeMap<ObjectKey, Entry>>>,
    queue: Arc<OnceLock<Queue>>,
}

impl EvictionQueue {
    /// Adds a pod to the queue. If the pod is in the queue already, the earlier deadline applies.
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

    /// The number of pods in the queue that are not known to be terminating.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    pub(crate) fn attach(&self, queue: &Queue) {
        // Setting the queue fails only for a second controller; the first one already serves it.
        let _ = self.queue.set(queue.clone());
        for key in self.entries().keys() {
            queue.add(key.clone());
        }
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Entry> {
        self.entries().get(key).cloned()
    }

    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.entries().remove(key);
    }

    pub(crate) fn failed(&self, key: &ObjectKey) -> Duration {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return BACKOFF_MIN };
        entry.failures = entry.failures.saturating_add(1);
        backoff(entry.failures)
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACKOFF_MAX)
}

/// The key of a pod in the queue. It includes the uid, so that a new pod with the same name is not evicted.
pub(crate) fn key_of(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.namespace(), format!("{}/{}", pod.name, pod.uid))
}

/// Whether the pod must be deleted now to be gone by the deadline `by`. The pod then gets as much of its own grace
/// period as the deadline allows. A pod without a grace period is not deleted before the deadline.
pub fn needs_deletion(pod: &Pod, by: Timestamp, now: Timestamp) -> bool {
    if pods::is_terminal(pod) {
        return false;
    }
    if let Some(ends) = pod.deleted_at {
        // A pod that is terminating already is deleted again only if that shortens its grace period.
        let asked = i64::from(grace_seconds(by, now));
        return ends > by && ends.as_second() > now.as_second() + asked;
    }
    let grace = pod.spec.termination_grace_period_seconds;
    grace.is_some_and(|grace| now.as_second().saturating_add(grace) > by.as_second())
}

pub(crate) fn grace_seconds(by: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(until(now, by).as_secs()).unwrap_or(u32::MAX).max(1)
}

/// The event about the do-not-disrupt annotation of a pod: until when it protects the pod, or that it is invalid.
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
