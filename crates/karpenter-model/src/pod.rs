//! The fields of a pod that affect scheduling, in parsed and normalized form.
//!
//! Pods with equal specs are planned as one class with a count; pod names matter only when a plan is printed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::reason::Reason;
use crate::requirements::Requirements;
use crate::resources::ResourceList;
use crate::selector::{LabelSelector, Labels};
use crate::taints::Toleration;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodSpec {
    pub namespace: Arc<str>,
    pub labels: Labels,
    /// Includes `pods: 1`.
    pub requests: ResourceList,
    pub node_selector: Requirements,
    /// Required node affinity terms; a node must match one of them. An empty list is no constraint.
    pub required_terms: Vec<Requirements>,
    /// Preferred node affinity terms, highest weight first.
    pub preferred_terms: Vec<(i32, Requirements)>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<TopologySpread>,
    pub affinity: Vec<PodAffinityTerm>,
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Highest weight first.
    pub preferred_affinity: Vec<(i32, PodAffinityTerm)>,
    /// Highest weight first.
    pub preferred_anti_affinity: Vec<(i32, PodAffinityTerm)>,
    pub host_ports: BTreeSet<HostPort>,
    pub volumes: PodVolumes,
    pub priority: i32,
    /// Why the pod cannot be planned on any node (invalid requirement, missing volume claim, opt-out); `None` if it
    /// can.
    pub refusal: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopologySpread {
    pub key: Arc<str>,
    pub max_skew: u32,
    pub min_domains: Option<u32>,
    /// `false`: ScheduleAnyway.
    pub hard: bool,
    /// The label selector, into which `matchLabelKeys` are merged; `None` selects no pods.
    pub selector: Option<LabelSelector>,
    /// Whether `nodeAffinityPolicy` is `Honor` (the default).
    pub honor_affinity: bool,
    /// Whether `nodeTaintsPolicy` is `Honor` (the default is `Ignore`).
    pub honor_taints: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodAffinityTerm {
    pub key: Arc<str>,
    /// `None` matches nothing.
    pub selector: Option<LabelSelector>,
    /// The namespaces in which the term selects pods: those listed and those matching the namespace selector, or else
    /// the pod's own.
    pub namespaces: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The IP address of a host port; "", "0.0.0.0" and "::" mean every address.
    pub address: Arc<str>,
    pub port: u16,
    pub protocol: Arc<str>,
}

impl HostPort {
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (any(&self.address) || any(&other.address) || self.address == other.address)
    }
}

/// The properties of a pod's volumes that affect scheduling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodVolumes {
    /// Requirements of the volumes on the node; a node must meet one of them. An empty list is no constraint.
    pub alternatives: Vec<Requirements>,
    /// The volumes that count against attachment limits, as (CSI driver, claim key) pairs. A claim that several pods on
    /// a node use counts once.
    pub attachments: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl PodSpec {
    /// The requirements of the node selector and of the first required affinity term, and, if `with_preferences`, those
    /// of the preferred term with the highest weight.
    pub fn node_requirements(&self, with_preferences: bool) -> Requirements {
        let mut requirements = self.strict_requirements();
        if with_preferences && let Some((_, term)) = self.preferred_terms.first() {
            requirements.extend(term);
        }
        requirements
    }

    /// Requirements without preferences.
    pub fn strict_requirements(&self) -> Requirements {
        let mut requirements = self.node_selector.clone();
        if let Some(term) = self.required_terms.first() {
            requirements.extend(term);
        }
        requirements
    }
}
