//! Topology groups and their counters: spread, affinity and anti-affinity over zones, hosts and other labels.
//!
//! A group is shared by all pods that state the same constraint. Zone-like keys count per domain; the hostname key
//! counts per slot (an existing node or a planned one). Upstream: pkg/controllers/provisioning/scheduling/topology*.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::requirements::Requirements;
use karpenter_model::selector::{LabelSelector, Labels};
use karpenter_model::taints::{Effect, Taint, Toleration, first_untolerated};
use rustc_hash::FxHashMap;

use crate::bits::Bits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// A node slot: existing nodes first, then planned ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Spread { max_skew: u32, min_domains: Option<u32> },
    Affinity,
    AntiAffinity,
}

/// Which nodes a spread constraint looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    /// nodeAffinityPolicy Honor: any of these must be compatible. `None`: every node.
    pub(crate) terms: Option<Vec<Requirements>>,
    /// nodeTaintsPolicy Honor: these must tolerate the node. `None`: every node.
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    pub(crate) const ALL: Self = Self { terms: None, tolerations: None };

    pub(crate) fn is_all(&self) -> bool {
        *self == Self::ALL
    }

    pub(crate) fn accepts(
        &self,
        requirements: &Requirements,
        taints: &[Taint],
        open: &BTreeSet<Arc<str>>,
    ) -> bool {
        self.tolerations.as_ref().is_none_or(|tolerations| !keeps_away(taints, tolerations))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| requirements.compatible(term, open).is_ok()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) key: usize,
    pub(crate) kind: Kind,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) namespaces: BTreeSet<Arc<str>>,
    pub(crate) filter: NodeFilter,
    /// Domains count only where this pod may go (taint-aware groups); part of the identity.
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupKey,
    pub(crate) is_hostname: bool,
    /// Domains that count for a zone-like key.
    pub(crate) universe: Bits,
    /// Pods the selector matches, per domain (zone-like keys).
    pub(crate) matched: Vec<u32>,
    /// Pods that state the constraint, per domain (anti-affinity on zone-like keys).
    pub(crate) owners: Vec<u32>,
    /// Matched pods anywhere.
    pub(crate) matched_total: u64,
    /// Bumped whenever a count changes.
    pub(crate) version: u64,
}

impl Group {
    fn selects(&self, namespace: &Arc<str>, labels: &Labels) -> bool {
        self.id.namespaces.contains(namespace)
            && self.id.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// All groups, their counters, and the domains of each key.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) keys: Vec<Arc<str>>,
    /// Sorted domain names per key; empty for the hostname key.
    pub(crate) domains: Vec<Vec<Arc<str>>>,
    /// Domains per key in which a node exists.
    pub(crate) with_nodes: Vec<Bits>,
    pub(crate) groups: Vec<Group>,
    index: BTreeMap<GroupKey, GroupId>,
    /// Groups whose selector needs `label = value`, by that pair; the rest in `unindexed`.
    by_label: FxHashMap<(Arc<str>, Arc<str>), Vec<GroupId>>,
    unindexed: Vec<GroupId>,
    host_matched: FxHashMap<(GroupId, Slot), u32>,
    host_owners: FxHashMap<(GroupId, Slot), u32>,
}

impl Topology {
    pub(crate) fn key(&mut self, name: &Arc<str>) -> usize {
        match self.keys.iter().position(|known| known == name) {
            Some(position) => position,
            None => {
                self.keys.push(name.clone());
                self.domains.push(Vec::new());
                self.keys.len() - 1
            }
        }
    }

    pub(crate) fn is_hostname(&self, key: usize) -> bool {
        &*self.keys[key] == labels::HOSTNAME
    }

    pub(crate) fn intern(&mut self, id: GroupKey) -> GroupId {
        if let Some(known) = self.index.get(&id) {
            return *known;
        }
        let group_id = GroupId(self.groups.len() as u32);
        match id.selector.as_ref().and_then(LabelSelector::one_required_pair) {
            Some(pair) => self.by_label.entry(pair).or_default().push(group_id),
            None => self.unindexed.push(group_id),
        }
        self.index.insert(id.clone(), group_id);
        self.groups.push(Group {
            is_hostname: self.is_hostname(id.key),
            id,
            universe: Bits::default(),
            matched: Vec::new(),
            owners: Vec::new(),
            matched_total: 0,
            version: 0,
        });
        group_id
    }

    pub(crate) fn spread_group(&mut self, spec: &PodSpec, spread: &TopologySpread) -> GroupId {
        let terms = spread
            .honor_affinity
            .then(|| node_terms(spec))
            .filter(|terms| !terms.iter().all(Requirements::is_empty));
        let key = self.key(&spread.key);
        self.intern(GroupKey {
            key,
            kind: Kind::Spread { max_skew: spread.max_skew.max(1), min_domains: spread.min_domains },
            selector: spread.selector.clone(),
            namespaces: [spec.namespace.clone()].into(),
            filter: NodeFilter { terms, tolerations: spread.honor_taints.then(|| spec.tolerations.clone()) },
            tolerations: spread.honor_taints.then(|| spec.tolerations.clone()),
        })
    }

    pub(crate) fn affinity_group(&mut self, spec: &PodSpec, term: &PodAffinityTerm, anti: bool) -> GroupId {
        let key = self.key(&term.key);
        self.intern(GroupKey {
            key,
            kind: if anti { Kind::AntiAffinity } else { Kind::Affinity },
            selector: term.selector.clone(),
            namespaces: term.namespaces.clone(),
            filter: NodeFilter::ALL,
            tolerations: Some(spec.tolerations.clone()),
        })
    }

    /// Groups that select a pod with these labels, ascending.
    pub(crate) fn matching(&self, namespace: &Arc<str>, labels: &Labels) -> Vec<GroupId> {
        let mut found: Vec<GroupId> = self
            .unindexed
            .iter()
            .chain(
                labels
                    .iter()
                    .filter_map(|(key, value)| self.by_label.get(&(key.clone(), value.clone())))
                    .flatten(),
            )
            .copied()
            .filter(|id| self.group(*id).selects(namespace, labels))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Fixes the domains of every key; counters start at zero.
    pub(crate) fn set_domains(&mut self, key: usize, names: Vec<Arc<str>>) {
        self.domains[key] = names;
    }

    pub(crate) fn start_counting(&mut self) {
        for group in &mut self.groups {
            let size = self.domains[group.id.key].len();
            group.matched = vec![0; size];
            group.owners = vec![0; size];
        }
    }

    pub(crate) fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0 as usize]
    }

    pub(crate) fn on_host(&self, id: GroupId, slot: Slot) -> u32 {
        self.host_matched.get(&(id, slot)).copied().unwrap_or(0)
    }

    pub(crate) fn owners_on_host(&self, id: GroupId, slot: Slot) -> u32 {
        self.host_owners.get(&(id, slot)).copied().unwrap_or(0)
    }

    pub(crate) fn count_host(&mut self, id: GroupId, slot: Slot, count: u32) {
        *self.host_matched.entry((id, slot)).or_insert(0) += count;
        let group = self.group_mut(id);
        group.matched_total += u64::from(count);
        group.version += 1;
    }

    pub(crate) fn count_domains(
        &mut self,
        id: GroupId,
        domains: impl IntoIterator<Item = usize>,
        count: u32,
    ) {
        let group = self.group_mut(id);
        for domain in domains {
            group.matched[domain] += count;
        }
        group.matched_total += u64::from(count);
        group.version += 1;
    }

    pub(crate) fn own_host(&mut self, id: GroupId, slot: Slot, count: u32) {
        *self.host_owners.entry((id, slot)).or_insert(0) += count;
    }

    pub(crate) fn own_domains(&mut self, id: GroupId, domains: impl IntoIterator<Item = usize>, count: u32) {
        let group = self.group_mut(id);
        for domain in domains {
            group.owners[domain] += count;
        }
    }

    /// The smallest count among the domains a pod may use; 0 while fewer than `minDomains` of them exist.
    pub(crate) fn spread_minimum(&self, id: GroupId, pod_allows: &Bits) -> u32 {
        let group = self.group(id);
        let mut supported = 0;
        let mut minimum = u32::MAX;
        for domain in group.universe.iter().filter(|domain| pod_allows.contains(*domain)) {
            supported += 1;
            minimum = minimum.min(group.matched[domain]);
        }
        match group.id.kind {
            Kind::Spread { min_domains: Some(wanted), .. } if supported < wanted => 0,
            _ if supported == 0 => 0,
            _ => minimum,
        }
    }
}

/// Whether a hard taint is not tolerated. Preferred taints do not take a node out of a topology.
pub(crate) fn keeps_away(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .any(|taint| first_untolerated(std::slice::from_ref(taint), tolerations).is_some())
}

/// The node terms of a pod: selector and each required term joined.
pub(crate) fn node_terms(spec: &PodSpec) -> Vec<Requirements> {
    if spec.required_terms.is_empty() {
        return vec![spec.node_selector.clone()];
    }
    spec.required_terms
        .iter()
        .map(|term| {
            let mut all = spec.node_selector.clone();
            all.extend(term);
            all
        })
        .collect()
}
