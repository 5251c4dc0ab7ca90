//! What is told about pods: how long they waited, for whom they wait now, and the state of each.
//!
//! Times that no object says (when a pod was first seen, decided about, given a place) are remembered per pod until it
//! runs or is gone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_cluster::clock::since;
use karpenter_cluster::controllers::context::{label, name_of};
use karpenter_cluster::store::Change;
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

/// Clones count into the same series.
#[derive(Clone)]
pub struct PodMetrics {
    bound: HistogramVec,
    provisioning_bound: HistogramVec,
    startup: SummaryVec,
    provisioning_startup: Histogram,
    decision: Histogram,
    times: Arc<Mutex<BTreeMap<String, Times>>>,
}

/// What is known of a pod that does not run yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    /// It was seen before it ran, so its start can be timed.
    is_watched: bool,
    acknowledged: Option<Timestamp>,
    decided: Option<Timestamp>,
    /// Since when there is a place for it.
    placed: Option<Timestamp>,
}

impl PodMetrics {
    pub(super) fn new(declare: &Declare) -> Self {
        Self {
            bound: declare.histogram(
                "karpenter_pods_bound_duration_seconds",
                "From the creation of a pod until it is bound.",
                DURATION_BUCKETS,
                &["dynamic_resources"],
            ),
            provisioning_bound: declare.histogram(
                "karpenter_pods_provisioning_bound_duration_seconds",
                "From the first plan with a place for a pod until it is bound.",
                DURATION_BUCKETS,
                &["dynamic_resources"],
            ),
            startup: SummaryVec::new(
                "karpenter_pods_startup_duration_seconds",
                "From the creation of a pod until it runs.",
                &[],
            ),
            provisioning_startup: declare.histogram_single(
                "karpenter_pods_provisioning_startup_duration_seconds",
                "From the first plan with a place for a pod until it runs.",
                DURATION_BUCKETS,
            ),
            decision: declare.histogram_single(
                "karpenter_pods_scheduling_decision_duration_seconds",
                "From the first sight of a pod that waits until the first plan for it.",
                DURATION_BUCKETS,
            ),
            times: Arc::default(),
        }
    }

    /// These pods wait and will be planned.
    pub fn acknowledge<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>, now: Timestamp) {
        let mut times = self.times();
        // Pods of nodes that are about to go have started long ago.
        for pod in pods.into_iter().filter(|pod| !is_bound(pod)) {
            times.entry(uid_of(pod).to_owned()).or_default().acknowledged.get_or_insert(now);
        }
    }

    /// There is a plan, and it has a place for them or has not.
    pub fn decide<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>, has_place: bool, now: Timestamp) {
        let mut times = self.times();
        for pod in pods {
            let Some(known) = times.get_mut(uid_of(pod)) else { continue };
            known.placed = has_place.then(|| known.placed.unwrap_or(now));
            if known.decided.is_none() {
                known.decided = Some(now);
                if let Some(seen) = known.acknowledged {
                    self.decision.observe(since(now, seen).as_secs_f64());
                }
            }
        }
    }

    /// Pods that were there before anything was counted are timed if they do not run yet.
    pub(super) fn begin(&self, pods: &[Arc<Pod>]) {
        let mut times = self.times();
        for pod in pods.iter().filter(|pod| pod.status.phase == Phase::Pending) {
            times.entry(uid_of(pod).to_owned()).or_default().is_watched = true;
        }
    }

    pub(super) fn count(&self, change: &Change<Pod>, now: Timestamp) {
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
            if let Some(placed) = times.get(uid).and_then(|known| known.placed) {
                let seconds = since(now, placed).as_secs_f64();
                self.provisioning_bound.with_label_values(&dynamic).observe(seconds);
            }
        }
        if new.status.phase == Phase::Pending {
            times.entry(uid.to_owned()).or_default().is_watched = true;
            return;
        }
        let ready = new.status.ready.filter(|ready| ready.is_true);
        if ready.is_none() && !is_terminal(new) {
            return;
        }
        let known = times.remove(uid);
        let (Some(ready), Some(known)) = (ready, known.filter(|known| known.is_watched)) else { return };
        let at = ready.since.unwrap_or(now);
        if let Some(created) = created {
            self.startup.observe(&[], since(at, created).as_secs_f64(), now);
        }
        if let Some(placed) = known.placed {
            self.provisioning_startup.observe(since(at, placed).as_secs_f64());
        }
    }

    pub(super) fn write_summaries(&self, text: &mut String, now: Timestamp) {
        self.startup.write(text, now);
    }

    /// The series of single pods.
    pub(super) fn write(&self, text: &mut String, pods: &[Arc<Pod>], nodes: &[Arc<Node>], now: Timestamp) {
        let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (name_of(&**node), &**node)).collect();
        let mut state =
            Family::gauge(text, "karpenter_pods_state", "ClusterState of a pod; always 1.", &STATE_LABELS);
        for pod in pods {
            let node = pod.node_name.as_deref().and_then(|name| nodes.get(name));
            state.set(&state_of(pod, node.copied()), 1.0);
        }
        let times = self.times();
        let waiting: Vec<Waiting> = pods
            .iter()
            .filter_map(|pod| waiting(pod, times.get(uid_of(pod)).copied().unwrap_or_default(), now))
            .collect();
        drop(times);
        let named = ["name", "namespace"];
        let dynamic = ["name", "namespace", "dynamic_resources"];
        for gauge in GAUGES {
            let labels = if gauge.is_by_resources { &dynamic[..] } else { &named[..] };
            let mut family = Family::gauge(text, gauge.name, gauge.help, labels);
            for pod in &waiting {
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
    is_by_resources: bool,
    value: fn(&Waiting) -> Option<f64>,
}

const GAUGES: [PodGauge; 5] = [
    PodGauge {
        name: "karpenter_pods_unstarted_time_seconds",
        help: "Age of a pod that does not run yet.",
        is_by_resources: false,
        value: |pod| pod.unstarted,
    },
    PodGauge {
        name: "karpenter_pods_unbound_time_seconds",
        help: "Age of a pod that is not bound yet.",
        is_by_resources: true,
        value: |pod| pod.unbound,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_unstarted_time_seconds",
        help: "How long a pod that does not run yet has had a place.",
        is_by_resources: false,
        value: |pod| pod.provisioning_unstarted,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_unbound_time_seconds",
        help: "How long a pod that is not bound yet has had a place.",
        is_by_resources: true,
        value: |pod| pod.provisioning_unbound,
    },
    PodGauge {
        name: "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
        help: "How long a pod has been known without a plan for it.",
        is_by_resources: false,
        value: |pod| pod.undecided,
    },
];

/// How long a pod has been waiting for what, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Waiting<'a> {
    pod: &'a Pod,
    unstarted: Option<f64>,
    unbound: Option<f64>,
    provisioning_unstarted: Option<f64>,
    provisioning_unbound: Option<f64>,
    undecided: Option<f64>,
}

/// What a pod waits for, if for anything.
fn waiting(pod: &Pod, known: Times, now: Timestamp) -> Option<Waiting<'_>> {
    let is_pending = pod.status.phase == Phase::Pending;
    let is_ready = pod.status.ready.is_some_and(|ready| ready.is_true);
    let is_unstarted = is_pending || (known.is_watched && !is_ready && !is_terminal(pod));
    let is_scheduled = pod.status.scheduled.is_some_and(|scheduled| scheduled.is_true);
    let is_unbound = is_pending && !is_scheduled;
    let is_undecided = known.decided.is_none() && !is_scheduled && !is_bound(pod) && !is_terminal(pod);
    if !is_unstarted && !is_undecided {
        return None;
    }
    let elapsed =
        |is_so: bool, from: Option<Timestamp>| Some(since(now, from.filter(|_| is_so)?).as_secs_f64());
    let created = pod.created_at;
    Some(Waiting {
        pod,
        unstarted: elapsed(is_unstarted, created),
        unbound: elapsed(is_unbound, created),
        provisioning_unstarted: elapsed(is_unstarted, known.placed),
        provisioning_unbound: elapsed(is_unbound, known.placed),
        undecided: elapsed(is_undecided, known.acknowledged),
    })
}

/// The values of [`STATE_LABELS`].
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
