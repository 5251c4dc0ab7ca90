//! Metrics of pods: durations until they are bound and ready, how long pending pods have been waiting, and the state of
//! each pod.
//!
//! Some times are not in any object: when the provisioner first saw the pod, when a plan first decided about it, and
//! when it was planned onto a node. They are kept in memory for each pod until it is ready or deleted.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{label, name_of};
use karpenter_runtime::store::Change;
use karpenter_state::pod::{Phase, Pod};
use prometheus::{Histogram, HistogramVec};

use super::exposition::Family;
use super::summary::SummaryVec;
use super::{DURATION_BUCKETS, Declare};
use crate::pods::{is_bound, is_terminal, uid_of};

const STATE_LABELS: [&str; 13] = [
    "name",
    "namespace",
    "owner",
    "node",
    "scheduled",
    "nodepool",
    "zone",
    "arch",
    "capacity_type",
    "instance_type",
    "phase",
    "ready",
    "managed",
];

/// Clones share the series.
#[derive(Clone)]
pub struct PodMetrics {
    bound: HistogramVec,
    provisioning_bound: HistogramVec,
    startup: SummaryVec,
    provisioning_startup: Histogram,
    decision: Histogram,
    times: Arc<Mutex<BTreeMap<String, Times>>>,
}

/// Times of a pod that has not started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    /// Whether the pod was seen before it started. The time until its start is measured only for such pods.
    was_seen_pending: bool,
    acknowledged_at: Option<Timestamp>,
    decided_at: Option<Timestamp>,
    /// Since when the pod has been planned onto a node; `None` if the latest plan has no node for it.
    planned_at: Option<Timestamp>,
}

impl PodMetrics {
    pub(super) fn new(declare: &Declare) -> Self {
        Self {
            bound: declare.histogram(
                "karpenter_pods_bound_duration_seconds",
                "Duration from the creation of a pod until it is bound.",
                DURATION_BUCKETS,
                &["dynamic_resources"],
            ),
            provisioning_bound: declare.histogram(
                "karpenter_pods_provisioning_bound_duration_seconds",
                "Duration from the first plan of a node for a pod until the pod is bound.",
                DURATION_BUCKETS,
                &["dynamic_resources"],
            ),
            startup: SummaryVec::new(
                "karpenter_pods_startup_duration_seconds",
                "Duration from the creation of a pod until it is ready.",
                &[],
            ),
            provisioning_startup: declare.histogram_single(
                "karpenter_pods_provisioning_startup_duration_seconds",
                "Duration from the first plan of a node for a pod until the pod is ready.",
                DURATION_BUCKETS,
            ),
            decision: declare.histogram_single(
                "karpenter_pods_scheduling_decision_duration_seconds",
                "Duration from the first sight of a pending pod until its first plan.",
                DURATION_BUCKETS,
            ),
            times: Arc::default(),
        }
    }

    /// Records that the provisioner has seen these pending pods and will plan them.
    pub fn acknowledge<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>, now: Timestamp) {
        let mut times = self.times();
        // Pods that will move from a terminating node are planned like pending pods, but they are bound and therefore
        // not counted here.
        for pod in pods.into_iter().filter(|pod| !is_bound(pod)) {
            times.entry(uid_of(pod).to_owned()).or_default().acknowledged_at.get_or_insert(now);
        }
    }

    /// Records the result of a plan for these pods: whether it has a node for them.
    pub fn decide<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>, is_planned: bool, now: Timestamp) {
        let mut times = self.times();
        for pod in pods {
            let Some(known) = times.get_mut(uid_of(pod)) else { continue };
            known.planned_at = is_planned.then(|| known.planned_at.unwrap_or(now));
            if known.decided_at.is_none() {
                known.decided_at = Some(now);
                if let Some(seen) = known.acknowledged_at {
                    self.decision.observe(since(now, seen).as_secs_f64());
                }
            }
        }
    }

    /// Registers the pods that had not started when counting began.
    pub(crate) fn begin(&self, pods: &[Arc<Pod>]) {
        let mut times = self.times();
        for pod in pods.iter().filter(|pod| pod.status.phase == Phase::Pending) {
            times.entry(uid_of(pod).to_owned()).or_default().was_seen_pending = true;
        }
    }

    pub(crate) fn count(&self, change: &Change<Pod>, now: Timestamp) {
        let mut times = self.times();
        let Change::Applied { old, new } = change else {
            times.remove(uid_of(change.object()));
            return;
        };
        let uid = uid_of(new);
        let created = new.created_at;
        if is_bound(new) && old.as_ref().is_some_and(|old| !is_bound(old)) {
            let dynamic = [dynamic_resources(new)];
            if let Some(created) = created {
                self.bound.with_label_values(&dynamic).observe(since(now, created).as_secs_f64());
            }
            if let Some(planned_at) = times.get(uid).and_then(|known| known.planned_at) {
                let seconds = since(now, planned_at).as_secs_f64();
                self.provisioning_bound.with_label_values(&dynamic).observe(seconds);
            }
        }
        if new.status.phase == Phase::Pending {
            times.entry(uid.to_owned()).or_default().was_seen_pending = true;
            return;
        }
        let ready = new.status.ready.filter(|ready| ready.is_true);
        if ready.is_none() && !is_terminal(new) {
            return;
        }
        let known = times.remove(uid);
        let (Some(ready), Some(known)) = (ready, known.filter(|known| known.was_seen_pending)) else {
            return;
        };
        let at = ready.since.unwrap_or(now);
        if let Some(created) = created {
            self.startup.observe(&[], since(at, created).as_secs_f64(), now);
        }
        if let Some(planned_at) = known.planned_at {
            self.provisioning_startup.observe(since(at, planned_at).as_secs_f64());
        }
    }

    pub(crate) fn write_summaries(&self, text: &mut String, now: Timestamp) {
        self.startup.write(text, now);
    }

    /// Writes the series of single pods.
    pub(crate) fn write(&self, text: &mut String, pods: &[Arc<Pod>], nodes: &[Arc<Node>], now: Timestamp) {
        let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (name_of(&**node), &**node)).collect();
        let mut state =
            Family::gauge(text, "karpenter_pods_state", "State of a pod; always 1.", &STATE_LABELS);
        for pod in pods {
            let node = pod.node_name.as_deref().and_then(|name| nodes.get(name));
            state.set(&state_of(pod, node.copied()), 1.0);
        }
        let times = self.times();
        let pending: Vec<PendingDurations> = pods
            .iter()
            .filter_map(|pod| {
                pending_durations(pod, times.get(uid_of(pod)).copied().unwrap_or_default(), now)
            })
            .collect();
        drop(times);
        let named = ["name", "namespace"];
        let dynamic = ["name", "namespace", "dynamic_resources"];
        for gauge in GAUGES {
            let labels = if gauge.has_dynamic_resources_label { &dynamic[..] } else { &named[..] };
            let mut family = Family::gauge(text, gauge.name, gauge.help, labels);
            for pod in &pending {
                if let Some(seconds) = (gauge.value)(pod) {
                    let values = [&*pod.pod.name, pod.pod.namespace(), dynamic_resources(pod.pod)];
                    family.set(&values[..labels.len()], seconds);
                }
            }
        }
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<String, Times>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct PodGauge {
    name: &'static str,
    help: &'static str,
    has_dynamic_resources_label: bool,
    value: fn(&PendingDurations) -> Option<f64>,
}

const GAUGES: [PodGauge; 5] = [
    PodGauge {
        name: "karpenter_pods_unstarted_time_seconds",
        help: "Age of a pod that is not ready.",
        has_dynamic_resources_label: false,
        value: |pod| pod.unstarted,
    },
    PodGauge {
        name: "karpenter_pods_unbound_time_seconds",
        help: "Age of a pod that is not bound.",
        has_dynamic_resources_label: true,
        value: |pod| pod.unbound,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_unstarted_time_seconds",
        help: "How long a node has been planned for a pod that is not ready.",
        has_dynamic_resources_label: false,
        value: |pod| pod.provisioning_unstarted,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_unbound_time_seconds",
        help: "How long a node has been planned for a pod that is not bound.",
        has_dynamic_resources_label: true,
        value: |pod| pod.provisioning_unbound,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
        help: "How long a pending pod has been known without a plan.",
        has_dynamic_resources_label: false,
        value: |pod| pod.undecided,
    },
];

/// How long a pod has been pending, in seconds, from different starting points; each is the value of one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PendingDurations<'a> {
    pod: &'a Pod,
    unstarted: Option<f64>,
    unbound: Option<f64>,
    provisioning_unstarted: Option<f64>,
    provisioning_unbound: Option<f64>,
    undecided: Option<f64>,
}

/// How long the pod has been pending; `None` if it is not pending.
fn pending_durations(pod: &Pod, known: Times, now: Timestamp) -> Option<PendingDurations<'_>> {
    let is_pending = pod.status.phase == Phase::Pending;
    let is_ready = pod.status.ready.is_some_and(|ready| ready.is_true);
    let is_unstarted = is_pending || (known.was_seen_pending && !is_ready && !is_terminal(pod));
    let is_scheduled = pod.status.scheduled.is_some_and(|scheduled| scheduled.is_true);
    let is_unbound = is_pending && !is_scheduled;
    let is_undecided = known.decided_at.is_none() && !is_scheduled && !is_bound(pod) && !is_terminal(pod);
    if !is_unstarted && !is_undecided {
        return None;
    }
    let elapsed =
        |is_so: bool, from: Option<Timestamp>| Some(since(now, from.filter(|_| is_so)?).as_secs_f64());
    let created = pod.created_at;
    Some(PendingDurations {
        pod,
        unstarted: elapsed(is_unstarted, created),
        unbound: elapsed(is_unbound, created),
        provisioning_unstarted: elapsed(is_unstarted, known.planned_at),
        provisioning_unbound: elapsed(is_unbound, known.planned_at),
        undecided: elapsed(is_undecided, known.acknowledged_at),
    })
}

/// The label values of the pod, in the order of [`STATE_LABELS`].
fn state_of(pod: &Pod, node: Option<&Node>) -> [String; STATE_LABELS.len()] {
    let namespace = pod.namespace();
    let owner = pod.owners().first().map(|owner| {
        let kind = owner.kind.to_lowercase();
        format!("/apis/{}/namespaces/{namespace}/{kind}s/{}", owner.api_version, owner.name)
    });
    let of_node = |key| node.and_then(|node| label(node, key)).unwrap_or_default().to_owned();
    let is_ready = pod.status.ready.is_some_and(|ready| ready.is_true);
    let node_name = pod.node_name.as_deref().unwrap_or_default().to_owned();
    let pool = of_node(labels::NODEPOOL);
    let is_managed = !pool.is_empty();
    [
        pod.name.to_string(),
        namespace.to_owned(),
        owner.unwrap_or_default(),
        node_name,
        is_bound(pod).to_string(),
        pool,
        of_node(labels::ZONE),
        of_node(labels::ARCH),
        of_node(labels::CAPACITY_TYPE),
        of_node(labels::INSTANCE_TYPE),
        pod.status.phase.as_str().to_owned(),
        is_ready.to_string(),
        is_managed.to_string(),
    ]
}

fn dynamic_resources(pod: &Pod) -> &'static str {
    let claims = pod.spec.resource_claims.as_ref();
    if claims.is_some_and(|claims| !claims.is_empty()) { "true" } else { "false" }
}
