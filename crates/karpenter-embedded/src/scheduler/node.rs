//! A node for filters and scores: fields of the Node object, and the pods on it.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use karpenter_model::selector::Labels;
use karpenter_model::taints::{Effect, Taint};

use super::pod::{Placement, PodInfo};
use super::resources::{Amounts, allocatable};
use super::selectors::{labels, taints};

/// Relevant fields of the Node object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) name: Arc<str>,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Amounts,
    pub(super) pods_max: i64,
}

impl NodeFacts {
    pub(super) fn parse(node: &core::Node) -> Self {
        let (allocatable, pods_max) = allocatable(node);
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default().into(),
            labels: labels(node.metadata.labels.as_ref()),
            taints: taints(node),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
            allocatable,
            pods_max,
        }
    }
}

/// The pods on a node and their requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    pub(super) pods: Vec<Arc<PodInfo>>,
    pub(super) requested: Amounts,
    pub(super) scored_cpu_milli: i64,
    pub(super) scored_memory_bytes: i64,
}

impl Load {
    pub(super) fn add(&mut self, pod: &Arc<PodInfo>) {
        self.requested.add(&pod.requests.total);
        self.scored_cpu_milli += pod.requests.scored_cpu_milli;
        self.scored_memory_bytes += pod.requests.scored_memory_bytes;
        self.pods.push(pod.clone());
    }

    pub(super) fn remove(&mut self, pod: &PodInfo) {
        let Some(position) = self.pods.iter().position(|kept| kept.key == pod.key) else { return };
        let pod = self.pods.swap_remove(position);
        self.requested.subtract(&pod.requests.total);
        self.scored_cpu_milli -= pod.requests.scored_cpu_milli;
        self.scored_memory_bytes -= pod.requests.scored_memory_bytes;
    }
}

/// Results for one node that depend only on the Node object and a [`Placement`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verdict {
    /// The version of the node for which this was computed; zero if never.
    pub(super) version: u64,
    pub(super) schedulable: bool,
    pub(super) tolerated: bool,
    pub(super) affine: bool,
    /// The number of untolerated taints with the effect PreferNoSchedule.
    pub(super) repelling_taints: i64,
    /// The sum of the weights of matching preferred node affinity terms.
    pub(super) preference: i64,
}

impl Verdict {
    pub(super) fn judge(version: u64, node: &NodeFacts, placement: &Placement) -> Self {
        let tolerates =
            |taint: &Taint| placement.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            value: "".into(),
            effect: Effect::NoSchedule,
        };
        let soft = |taint: &&Taint| taint.effect == Effect::PreferNoSchedule;
        let selected = placement.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        let matches = |term: &super::selectors::NodeTerm| term.matches(&node.labels, Some(&node.name));
        Self {
            version,
            schedulable: !node.unschedulable || tolerates(&cordon),
            tolerated: node.taints.iter().all(|taint| soft(&taint) || tolerates(taint)),
            affine: selected && placement.required.as_ref().is_none_or(|terms| terms.iter().any(matches)),
            repelling_taints: node.taints.iter().filter(soft).filter(|taint| !tolerates(taint)).count()
                as i64,
            preference: placement
                .preferred
                .iter()
                .filter(|(_, term)| matches(term))
                .map(|(weight, _)| i64::from(*weight))
                .sum(),
        }
    }
}
