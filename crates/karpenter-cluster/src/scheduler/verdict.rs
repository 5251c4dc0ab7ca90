//! What a scheduling attempt comes to, and the words kube-scheduler uses for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::snapshot::PodKey;
use super::volumes::VolumePlan;

/// The rules of kube-scheduler that can turn a pod away, in the order in which they are asked.
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

/// Why a pod cannot go to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// `None`: no rule of its own.
    pub(super) plugin: Option<Plugin>,
    /// Whether fewer pods on the node could change it.
    pub(super) resolvable: bool,
    pub(super) first: Reason,
    pub(super) more: Vec<Reason>,
}

impl Rejection {
    pub(super) fn resolvable(plugin: Plugin, reason: impl Into<Reason>) -> Self {
        Self { plugin: Some(plugin), resolvable: true, first: reason.into(), more: Vec::new() }
    }

    pub(super) fn final_(plugin: Plugin, reason: impl Into<Reason>) -> Self {
        Self { plugin: Some(plugin), resolvable: false, first: reason.into(), more: Vec::new() }
    }

    pub(super) fn reasons(&self) -> impl Iterator<Item = &Reason> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

/// Why a pod was not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rules that turned the pod away somewhere. Empty: there is nowhere to go at all.
    pub plugins: BTreeSet<Plugin>,
    /// What the pod's condition and event say.
    pub message: String,
}

/// What to do about a pod that waits.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It goes to the node, after these volumes have been seen to.
    Bind { node: Arc<str>, volumes: VolumePlan },
    /// It could go to the node once the victims are gone; until then room is held there.
    Nominate { node: Arc<str>, victims: Vec<PodKey>, failure: Failure },
    /// It can go nowhere.
    Unschedulable {
        failure: Failure,
        /// Whether room that is held for the pod is given up.
        gives_up_nomination: bool,
    },
    /// The objects contradict each other; try again later.
    Failed { message: String },
}

pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

/// How often each reason was given, as `0/3 nodes are available: 1 this, 2 that.`
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
