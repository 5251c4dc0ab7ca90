//! The result of a scheduling cycle, and kube-scheduler's messages for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::snapshot::PodKey;
use super::volumes::VolumePlan;

/// The filter plugins of kube-scheduler, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
}

impl Plugin {
    pub(super) const ALL: [Self; 12] = [
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
    ];
}

pub(super) type Reason = Cow<'static, str>;

/// Why a pod does not fit on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// The plugin that rejected the node; `None` if no plugin did.
    pub(super) plugin: Option<Plugin>,
    /// Whether preemption on the node could help.
    pub(super) resolvable: bool,
    pub(super) first: Reason,
    pub(super) more: Vec<Reason>,
}

impl Rejection {
    pub(super) fn resolvable(plugin: Plugin, reason: impl Into<Reason>) -> Self {
        Self { plugin: Some(plugin), resolvable: true, first: reason.into(), more: Vec::new() }
    }

    pub(super) fn unresolvable(plugin: Plugin, reason: impl Into<Reason>) -> Self {
        Self { plugin: Some(plugin), resolvable: false, first: reason.into(), more: Vec::new() }
    }

    pub(super) fn reasons(&self) -> impl Iterator<Item = &Reason> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

/// Why a pod was not scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The plugins that rejected the pod on some node. Empty if there are no nodes.
    pub plugins: BTreeSet<Plugin>,
    /// The message of the pod's condition and event.
    pub message: String,
}

/// The decision for a pending pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The pod can be bound to the node after these volumes are bound or provisioned.
    Bind { node: Arc<str>, volumes: VolumePlan },
    /// The pod fits on the node after the deletion of the victims. Until then, the pod is nominated to the node.
    Nominate { node: Arc<str>, victims: Vec<PodKey>, failure: Failure },
    /// No node is feasible.
    Unschedulable {
        failure: Failure,
        /// Whether the pod's nomination is removed.
        gives_up_nomination: bool,
    },
    /// The objects that the pod refers to are inconsistent; the pod is retried later.
    Failed { message: String },
}

pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

/// Counts reasons for the message `0/3 nodes are available: 1 this, 2 that.`
#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: BTreeMap<Reason, usize>,
}

impl Histogram {
    pub(super) fn add(&mut self, rejection: &Rejection) {
        for reason in rejection.reasons() {
            self.add_times(reason.clone(), 1);
        }
    }

    pub(super) fn add_times(&mut self, reason: Reason, times: usize) {
        if times > 0 {
            *self.counts.entry(reason).or_insert(0) += times;
        }
    }

    pub(super) fn message(&self, nodes: usize) -> String {
        let mut lines: Vec<String> =
            self.counts.iter().map(|(reason, times)| format!("{times} {reason}")).collect();
        lines.sort();
        if lines.is_empty() {
            return format!("0/{nodes} nodes are available:");
        }
        format!("0/{nodes} nodes are available: {}.", lines.join(", "))
    }
}
