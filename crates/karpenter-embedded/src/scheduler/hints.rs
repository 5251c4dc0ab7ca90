//! Queueing hints: whether an event could make an unschedulable pod schedulable.
//!
//! Some hints are coarser than kube-scheduler's: a pod may be retried more often than kube-scheduler would, but never
//! less often.

use std::collections::BTreeSet;

use super::cycle::fits_when_empty;
use super::node::{NodeFacts, Verdict};
use super::pod::PodInfo;
use super::verdict::Plugin;

pub(super) enum ClusterEvent<'a> {
    NodeApplied {
        old: Option<&'a NodeFacts>,
        new: &'a NodeFacts,
    },
    NodeGone,
    /// A pod was bound to a node.
    PodPlaced(&'a PodInfo),
    PodChanged {
        old: &'a PodInfo,
        new: &'a PodInfo,
    },
    /// A pod no longer uses resources, or is no longer nominated.
    PodGone(&'a PodInfo),
    Claim {
        namespace: &'a str,
    },
    VolumeOrClass,
    CsiNode,
    Detached,
}

impl ClusterEvent<'_> {
    /// The plugins whose result for some pod may be changed by this event.
    pub(super) fn affected_plugins(&self) -> &'static [Plugin] {
        match self {
            Self::NodeApplied { old: Some(old), new } if *old == *new => &[],
            Self::NodeApplied { .. } => &Plugin::ALL,
            Self::NodeGone => &[Plugin::PodTopologySpread],
            Self::PodPlaced(_) => &[Plugin::InterPodAffinity, Plugin::PodTopologySpread],
            Self::PodChanged { old, new } => {
                let same = old.labels == new.labels
                    && old.deleting == new.deleting
                    && old.requests.total == new.requests.total;
                if same {
                    return &[];
                }
                &[Plugin::InterPodAffinity, Plugin::PodTopologySpread, Plugin::NodeResourcesFit]
            }
            Self::PodGone(_) => &[
                Plugin::NodePorts,
                Plugin::NodeResourcesFit,
                Plugin::VolumeRestrictions,
                Plugin::NodeVolumeLimits,
                Plugin::PodTopologySpread,
                Plugin::InterPodAffinity,
            ],
            Self::Claim { .. } | Self::VolumeOrClass | Self::CsiNode | Self::Detached => &[
                Plugin::VolumeRestrictions,
                Plugin::NodeVolumeLimits,
                Plugin::VolumeBinding,
                Plugin::VolumeZone,
            ],
        }
    }
}

/// Whether a pod that these plugins rejected should be retried.
pub(super) fn could_help(event: &ClusterEvent<'_>, pod: &PodInfo, plugins: &BTreeSet<Plugin>) -> bool {
    plugins.iter().any(|plugin| could_help_with(*plugin, event, pod))
}

fn could_help_with(plugin: Plugin, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
    match event {
        ClusterEvent::NodeApplied { old, new } => node_could_help(plugin, *old, new, pod),
        ClusterEvent::NodeGone => plugin == Plugin::PodTopologySpread,
        ClusterEvent::PodPlaced(other) => match plugin {
            Plugin::InterPodAffinity => !pod.required_affinity.is_empty(),
            Plugin::PodTopologySpread => spreads_with(pod, other),
            _ => false,
        },
        ClusterEvent::PodChanged { old, new } => match plugin {
            Plugin::InterPodAffinity => old.labels != new.labels,
            Plugin::PodTopologySpread => {
                (old.labels != new.labels || old.deleting != new.deleting)
                    && (spreads_with(pod, old) || spreads_with(pod, new))
            }
            Plugin::NodeResourcesFit => old.requests.total != new.requests.total,
            _ => false,
        },
        ClusterEvent::PodGone(other) => match plugin {
            Plugin::NodeResourcesFit | Plugin::InterPodAffinity | Plugin::NodeVolumeLimits => true,
            Plugin::NodePorts => !other.host_ports.is_empty(),
            Plugin::VolumeRestrictions => !other.claims.is_empty() || !other.disks.is_empty(),
            Plugin::PodTopologySpread => spreads_with(pod, other),
            _ => false,
        },
        ClusterEvent::Claim { namespace } => {
            is_about_volumes(plugin) && !pod.claims.is_empty() && pod.key.namespace == *namespace
        }
        ClusterEvent::VolumeOrClass => is_about_volumes(plugin) && !pod.claims.is_empty(),
        ClusterEvent::CsiNode => matches!(plugin, Plugin::NodeVolumeLimits | Plugin::VolumeBinding),
        ClusterEvent::Detached => plugin == Plugin::NodeVolumeLimits,
    }
}

fn is_about_volumes(plugin: Plugin) -> bool {
    matches!(
        plugin,
        Plugin::VolumeRestrictions | Plugin::NodeVolumeLimits | Plugin::VolumeBinding | Plugin::VolumeZone
    )
}

fn spreads_with(pod: &PodInfo, other: &PodInfo) -> bool {
    pod.key.namespace == other.key.namespace
        && pod.hard_spread.iter().any(|constraint| constraint.selects(&other.labels))
}

fn node_could_help(plugin: Plugin, old: Option<&NodeFacts>, new: &NodeFacts, pod: &PodInfo) -> bool {
    let verdict = |facts: &NodeFacts| Verdict::judge(1, facts, &pod.placement);
    let became = |property: fn(&Verdict) -> bool| {
        property(&verdict(new)) && old.is_none_or(|old| !property(&verdict(old)))
    };
    let relabelled = old.is_none_or(|old| old.labels != new.labels);
    match plugin {
        Plugin::NodeUnschedulable => became(|verdict| verdict.schedulable),
        Plugin::TaintToleration => became(|verdict| verdict.tolerated),
        Plugin::NodeAffinity => became(|verdict| verdict.affine),
        Plugin::NodeName | Plugin::NodePorts => old.is_none(),
        Plugin::NodeResourcesFit => {
            let grown =
                old.is_none_or(|old| old.allocatable != new.allocatable || old.pods_max != new.pods_max);
            grown && fits_when_empty(pod, new)
        }
        Plugin::PodTopologySpread => {
            let shunned = |facts: &NodeFacts| (facts.taints.clone(), facts.unschedulable);
            relabelled || old.is_some_and(|old| shunned(old) != shunned(new))
        }
        Plugin::VolumeBinding | Plugin::VolumeZone | Plugin::InterPodAffinity => relabelled,
        Plugin::NodeVolumeLimits => old.is_none(),
        Plugin::VolumeRestrictions => false,
    }
}

/// Whether the update of a pending pod could make it schedulable.
pub(super) fn update_could_help(old: &PodInfo, new: &PodInfo) -> bool {
    old.labels != new.labels
        || old.placement != new.placement
        || old.requests != new.requests
        || old.claims != new.claims
        || old.hard_spread != new.hard_spread
}
