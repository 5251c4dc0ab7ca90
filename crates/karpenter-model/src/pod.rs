//! What the engine knows of a pod: everything that decides where it may run, parsed and normalised, and nothing else.
//!
//! Equal specs are one class with a count; a pod's name is looked at only when a plan is written out.

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
    /// Required node-affinity terms: any one of them must hold. Empty: no such constraint.
    pub required_terms: Vec<Requirements>,
    /// Preferred node-affinity terms, heaviest first.
    pub preferred_terms: Vec<(i32, Requirements)>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<TopologySpread>,
    pub affinity: Vec<PodAffinityTerm>,
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Heaviest first.
    pub preferred_affinity: Vec<(i32, PodAffinityTerm)>,
    /// Heaviest first.
    pub preferred_anti_affinity: Vec<(i32, PodAffinityTerm)>,
    pub host_ports: BTreeSet<HostPort>,
    pub volumes: PodVolumes,
    pub priority: i32,
    /// Set when the pod must be left alone or cannot be planned at all (invalid requirement, missing claim, opt-out).
    pub refusal: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopologySpread {
    pub key: Arc<str>,
    pub max_skew: u32,
    pub min_domains: Option<u32>,
    /// `false`: ScheduleAnyway.
    pub hard: bool,
    /// `None` matches nothing. `matchLabelKeys` are already folded in.
    pub selector: Option<LabelSelector>,
    /// nodeAffinityPolicy Honor (the default).
    pub honor_affinity: bool,
    /// nodeTaintsPolicy Honor (default Ignore).
    pub honor_taints: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodAffinityTerm {
    pub key: Arc<str>,
    /// `None` matches nothing.
    pub selector: Option<LabelSelector>,
    /// Resolved namespaces: named ones, selected ones, or the pod's own.
    pub namespaces: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// "" or "0.0.0.0" or "::" means every address.
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

/// The volumes of a pod as far as they decide placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodVolumes {
    /// Node requirements of the volumes: any one of them must hold. Empty: no constraint.
    pub alternatives: Vec<Requirements>,
    /// (CSI driver, claim key) pairs; the same claim used by two pods counts once per node.
    pub attachments: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl PodSpec {
    /// Requirements of the node selector plus the first required term and, unless ignored, the heaviest preference.
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
