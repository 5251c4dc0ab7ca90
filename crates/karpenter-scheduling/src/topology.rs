//! Topology groups and their counters: spread, affinity and anti-affinity over zones, hosts and other labels.
//!
//! All pods that state the same constraint share one group. Groups over zone-like keys count pods per domain; groups
//! over the hostname key count pods per slot (an existing or planned node).
//!
//! Upstream: pkg/controllers/provisioning/scheduling/topology.go, topologygroup.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::requirements::Requirements;
use karpenter_model::selector::{LabelSelector, Labels};
use karpenter_model::taints::{Effect, Taint, Toleration, first_untolerated};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bits::Bits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// The number of a node, counting existing nodes first and planned nodes after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Spread { max_skew: u32, min_domains: Option<u32> },
    Affinity,
    AntiAffinity,
}

/// Conditions that a node must meet for a spread constraint to count it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    /// With `nodeAffinityPolicy: Honor`, the node must match one of these terms. `None`: affinity is ignored.
    pub(crate) terms: Option<Vec<Requirements>>,
    /// With `nodeTaintsPolicy: Honor`, these tolerations must tolerate the node's taints. `None`: taints are ignored.
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    pub(crate) const ALL: Self = Self { terms: None, tolerations: None };

    pub(crate) fn is_all(&self) -> bool {
        *self == Self::ALL
    }

    /// Whether the constraint counts a node with these labels and taints.
    pub(crate) fn accepts(&self, labels: &Requirements, taints: &[Taint]) -> bool {
        let suits = |term: &Requirements| labels.compatible(term, &BTreeSet::new()).is_ok();
        self.tolerations.as_ref().is_none_or(|tolerations| !keeps_away(taints, tolerations))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(suits))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) key: usize,
    pub(crate) kind: Kind,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) namespaces: BTreeSet<Arc<str>>,
    pub(crate) filter: NodeFilter,
    /// The tolerations of the pod; domains whose nodes it does not tolerate do not count. Groups with different
    /// tolerations are different groups.
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) id: GroupKey,
    pub(crate) is_hostname: bool,
    /// The domains of a zone-like key that count: those that a NodePool offers, and those with a node that the filter
    /// accepts.
    pub(crate) universe: Bits,
    pub(crate) offered: Bits,
    pub(crate) nodes_in: Vec<u32>,
    /// The nodes that the filter accepts; `None` if it accepts all nodes.
    pub(crate) eligible: Option<Bits>,
    /// The number of bound pods that state this anti-affinity as required.
    pub(crate) stated_by_bound: u32,
    /// The number of the latest simulation in which some pod to be placed states the constraint.
    pub(crate) stated_in_simulation: u64,
    /// For each domain of a zone-like key: the number of pods that the selector matches.
    pub(crate) matched: Vec<u32>,
    /// For each domain: the number of matching pods whose nodes the current simulation removed and that are not placed
    /// again yet.
    pub(crate) vacated: Vec<u32>,
    /// For each domain of a zone-like key: the number of pods that state the anti-affinity.
    pub(crate) owners: Vec<u32>,
    /// The total number of pods that the selector matches, over all domains.
    pub(crate) matched_total: u64,
    /// Incremented with every change of a count.
    pub(crate) version: u64,
}

impl Group {
    fn selects(&self, namespace: &Arc<str>, labels: &Labels) -> bool {
        self.id.namespaces.contains(namespace)
            && self.id.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// All groups, their counters, and the domains of each key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topology {
    pub(crate) keys: Vec<Arc<str>>,
    /// For each key: the sorted names of its domains; empty for the hostname key.
    pub(crate) domains: Vec<Vec<Arc<str>>>,
    /// For each key: the domains in which some NodePool can launch.
    offered: Vec<Bits>,
    /// For each key and domain: the number of existing nodes.
    nodes_in: Vec<Vec<u32>>,
    /// For each key: the domains that a NodePool offers or that have a node; `None` if these are all domains.
    present_domains: Vec<Option<Bits>>,
    pub(crate) groups: Vec<Group>,
    index: BTreeMap<GroupKey, GroupId>,
    /// The groups whose selector requires `label = value`, by that pair; groups with other selectors are in
    /// `unindexed`.
    by_label: FxHashMap<(Arc<str>, Arc<str>), Vec<GroupId>>,
    unindexed: Vec<GroupId>,
    host_matched: FxHashMap<(GroupId, Slot), u32>,
    host_owners: FxHashMap<(GroupId, Slot), u32>,
    /// The changes of the running simulation, which its end undoes.
    journal: Vec<Undo>,
    is_recording: bool,
}

/// The previous value of one counter, to undo a change.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Matched {
        group: GroupId,
        domain: u32,
        before: u32,
    },
    Vacated {
        group: GroupId,
        domain: u32,
        before: u32,
    },
    Owners {
        group: GroupId,
        domain: u32,
        before: u32,
    },
    Total {
        group: GroupId,
        before: u64,
    },
    HostMatched {
        group: GroupId,
        slot: Slot,
        before: u32,
    },
    HostOwners {
        group: GroupId,
        slot: Slot,
        before: u32,
    },
    /// A node that the group counted was removed from the group.
    GroupNode {
        group: GroupId,
        domain: u32,
    },
    /// A node was removed.
    KeyNode {
        key: u32,
        domain: u32,
    },
}

impl Topology {
    pub(crate) fn key(&mut self, name: &Arc<str>) -> usize {
        match self.keys.iter().position(|known| known == name) {
            Some(position) => position,
            None => {
                self.keys.push(name.clone());
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
            offered: Bits::default(),
            nodes_in: Vec::new(),
            eligible: None,
            stated_by_bound: 0,
            stated_in_simulation: 0,
            matched: Vec::new(),
            vacated: Vec::new(),
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

    /// The groups that select a pod with these labels, ascending.
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

    /// Renumbers keys and groups by their content, so that their order does not depend on which pods state them.
    /// Returns the new number of every key and every group.
    pub(crate) fn sort(&mut self) -> (Vec<usize>, Vec<GroupId>) {
        let mut keys: Vec<usize> = (0..self.keys.len()).collect();
        keys.sort_by(|a, b| self.keys[*a].cmp(&self.keys[*b]));
        let mut new_key = vec![0; keys.len()];
        keys.iter().enumerate().for_each(|(new, old)| new_key[*old] = new);
        self.keys = keys.iter().map(|old| self.keys[*old].clone()).collect();
        for group in &mut self.groups {
            group.id.key = new_key[group.id.key];
        }
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_by(|a, b| self.groups[*a].id.cmp(&self.groups[*b].id));
        let mut new_group = vec![GroupId(0); order.len()];
        order.iter().enumerate().for_each(|(new, old)| new_group[*old] = GroupId(new as u32));
        let mut groups: Vec<Option<Group>> = std::mem::take(&mut self.groups).into_iter().map(Some).collect();
        self.groups = order.iter().filter_map(|old| groups[*old].take()).collect();
        self.index =
            (0..self.groups.len()).map(|new| (self.groups[new].id.clone(), GroupId(new as u32))).collect();
        let renumber = |id: &mut GroupId| *id = new_group[id.0 as usize];
        self.by_label.values_mut().flatten().for_each(renumber);
        self.unindexed.iter_mut().for_each(renumber);
        (new_key, new_group)
    }

    /// Sets the domains of every key (all possible ones, and those that a NodePool offers) and resets all counters.
    pub(crate) fn start_counting(&mut self, domains: Vec<(Vec<Arc<str>>, Bits)>) {
        (self.domains, self.offered) = domains.into_iter().unzip();
        self.nodes_in = self.domains.iter().map(|names| vec![0; names.len()]).collect();
        self.present_domains = vec![None; self.keys.len()];
        for group in &mut self.groups {
            let size = self.domains[group.id.key].len();
            group.matched = vec![0; size];
            group.vacated = vec![0; size];
            group.owners = vec![0; size];
            group.nodes_in = vec![0; size];
        }
    }

    pub(crate) fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0 as usize]
    }

    /// Whether a node counts for a group.
    pub(crate) fn is_eligible(&self, id: GroupId, node: usize) -> bool {
        self.group(id).eligible.as_ref().is_none_or(|eligible| eligible.contains(node))
    }

    /// Whether a domain counts for a spread.
    pub(crate) fn counts(&self, id: GroupId, domain: usize) -> bool {
        let group = self.group(id);
        group.universe.contains(domain)
            && self.present_domains[group.id.key]
                .as_ref()
                .is_none_or(|present_domains| present_domains.contains(domain))
    }

    /// Whether a domain has a node.
    pub(crate) fn has_node(&self, key: usize, domain: usize) -> bool {
        self.nodes_in[key][domain] > 0
    }

    /// The domains of a key that a NodePool offers or that have a node; `None` if these are all domains.
    pub(crate) fn present_domains(&self, key: usize) -> Option<&Bits> {
        self.present_domains[key].as_ref()
    }

    /// Increments the number of nodes in each domain of a new node.
    pub(crate) fn add_node(&mut self, domains: &[Option<usize>]) {
        for (key, domain) in domains.iter().enumerate() {
            if let Some(domain) = domain {
                self.nodes_in[key][*domain] += 1;
            }
        }
    }

    /// Computes, for every key, which domains a NodePool offers or have a node.
    pub(crate) fn update_present_domains(&mut self) {
        for key in 0..self.keys.len() {
            self.update_present_domains_of(key);
        }
    }

    fn update_present_domains_of(&mut self, key: usize) {
        let mut bits = self.offered[key].clone();
        let with_nodes = self.nodes_in[key].iter().enumerate().filter(|(_, nodes)| **nodes > 0);
        with_nodes.for_each(|(domain, _)| bits.insert(domain));
        self.present_domains[key] = (bits.len() < self.domains[key].len()).then_some(bits);
    }

    /// Decrements the number of nodes in each domain of a removed node.
    pub(crate) fn remove_node(&mut self, domains: &[Option<usize>]) {
        for (key, domain) in domains.iter().enumerate() {
            let Some(domain) = *domain else { continue };
            self.nodes_in[key][domain] -= 1;
            self.note(Undo::KeyNode { key: key as u32, domain: domain as u32 });
            if self.nodes_in[key][domain] == 0 {
                self.update_present_domains_of(key);
            }
        }
    }

    /// Adds a node to the domain in which a spread counts it.
    pub(crate) fn add_node_to_group(&mut self, id: GroupId, domain: usize) {
        let group = self.group_mut(id);
        group.nodes_in[domain] += 1;
        group.universe.insert(domain);
    }

    pub(crate) fn remove_node_from_group(&mut self, id: GroupId, domain: usize) {
        let group = self.group_mut(id);
        group.nodes_in[domain] -= 1;
        if group.nodes_in[domain] == 0 && !group.offered.contains(domain) {
            group.universe.remove(domain);
        }
        self.note(Undo::GroupNode { group: id, domain: domain as u32 });
    }

    pub(crate) fn on_host(&self, id: GroupId, slot: Slot) -> u32 {
        self.host_matched.get(&(id, slot)).copied().unwrap_or(0)
    }

    pub(crate) fn owners_on_host(&self, id: GroupId, slot: Slot) -> u32 {
        self.host_owners.get(&(id, slot)).copied().unwrap_or(0)
    }

    pub(crate) fn count_host(&mut self, id: GroupId, slot: Slot, count: u32) {
        let present = self.host_matched.entry((id, slot)).or_insert(0);
        let before = *present;
        *present += count;
        self.note(Undo::HostMatched { group: id, slot, before });
        self.count_total(id, i64::from(count));
    }

    pub(crate) fn count_domains(
        &mut self,
        id: GroupId,
        domains: impl IntoIterator<Item = usize>,
        count: u32,
    ) {
        for domain in domains {
            self.set_matched(id, domain, |present| present + count);
            self.set_vacated(id, domain, |vacated| vacated.saturating_sub(count));
        }
        self.count_total(id, i64::from(count));
    }

    /// Subtracts the pods of a removed node from the counts of its domain. The count of the host itself is not read any
    /// more, so it is not changed.
    pub(crate) fn remove_matched(&mut self, id: GroupId, domain: Option<usize>, count: u32) {
        if let Some(domain) = domain {
            self.set_matched(id, domain, |present| present - count);
            self.set_vacated(id, domain, |vacated| vacated + count);
        }
        self.count_total(id, -i64::from(count));
    }

    pub(crate) fn remove_owners(&mut self, id: GroupId, domain: usize, count: u32) {
        self.set_owners(id, domain, |present| present - count);
    }

    pub(crate) fn own_host(&mut self, id: GroupId, slot: Slot, count: u32) {
        let present = self.host_owners.entry((id, slot)).or_insert(0);
        let before = *present;
        *present += count;
        self.note(Undo::HostOwners { group: id, slot, before });
    }

    pub(crate) fn own_domains(&mut self, id: GroupId, domains: impl IntoIterator<Item = usize>, count: u32) {
        for domain in domains {
            self.set_owners(id, domain, |present| present + count);
        }
    }

    /// Resets the counts of a zonal group.
    pub(crate) fn reset_counts(&mut self, id: GroupId) {
        for domain in 0..self.group(id).matched.len() {
            self.set_matched(id, domain, |_| 0);
            self.set_owners(id, domain, |_| 0);
        }
        let total = self.group(id).matched_total as i64;
        self.count_total(id, -total);
    }

    fn set_matched(&mut self, id: GroupId, domain: usize, change: impl Fn(u32) -> u32) {
        let before = self.group(id).matched[domain];
        self.note(Undo::Matched { group: id, domain: domain as u32, before });
        self.group_mut(id).matched[domain] = change(before);
    }

    /// Changes the count of vacated pods; it is tracked only during simulations.
    fn set_vacated(&mut self, id: GroupId, domain: usize, change: impl Fn(u32) -> u32) {
        let before = self.group(id).vacated[domain];
        let after = change(before);
        if self.is_recording && after != before {
            self.note(Undo::Vacated { group: id, domain: domain as u32, before });
            self.group_mut(id).vacated[domain] = after;
        }
    }

    fn set_owners(&mut self, id: GroupId, domain: usize, change: impl Fn(u32) -> u32) {
        let before = self.group(id).owners[domain];
        self.note(Undo::Owners { group: id, domain: domain as u32, before });
        self.group_mut(id).owners[domain] = change(before);
    }

    fn count_total(&mut self, id: GroupId, change: i64) {
        let before = self.group(id).matched_total;
        self.note(Undo::Total { group: id, before });
        let group = self.group_mut(id);
        group.matched_total = before.saturating_add_signed(change);
        group.version += 1;
    }

    fn note(&mut self, undo: Undo) {
        if self.is_recording {
            self.journal.push(undo);
        }
    }

    /// Starts recording changes, so that `roll_back` can undo them.
    pub(crate) fn record(&mut self) {
        self.is_recording = true;
    }

    /// Undoes every change since `record`.
    pub(crate) fn roll_back(&mut self) {
        self.is_recording = false;
        let mut keys: SmallVec<[usize; 2]> = SmallVec::new();
        while let Some(undo) = self.journal.pop() {
            match undo {
                Undo::Matched { group, domain, before } => {
                    self.group_mut(group).matched[domain as usize] = before;
                }
                Undo::Vacated { group, domain, before } => {
                    self.group_mut(group).vacated[domain as usize] = before;
                }
                Undo::Owners { group, domain, before } => {
                    self.group_mut(group).owners[domain as usize] = before;
                }
                Undo::Total { group, before } => self.group_mut(group).matched_total = before,
                Undo::HostMatched { group, slot, before } => {
                    restore(&mut self.host_matched, group, slot, before)
                }
                Undo::HostOwners { group, slot, before } => {
                    restore(&mut self.host_owners, group, slot, before)
                }
                Undo::GroupNode { group, domain } => self.add_node_to_group(group, domain as usize),
                Undo::KeyNode { key, domain } => {
                    self.nodes_in[key as usize][domain as usize] += 1;
                    if self.nodes_in[key as usize][domain as usize] == 1 {
                        keys.push(key as usize);
                    }
                }
            }
        }
        keys.into_iter().for_each(|key| self.update_present_domains_of(key));
    }

    /// The smallest count among the domains that a pod may use; 0 if fewer than `minDomains` such domains exist.
    pub(crate) fn spread_minimum(&self, id: GroupId, pod_allows: &Bits) -> u32 {
        let group = self.group(id);
        let mut supported = 0;
        let mut minimum = u32::MAX;
        for domain in pod_allows.iter().filter(|domain| self.counts(id, *domain)) {
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

fn restore(counts: &mut FxHashMap<(GroupId, Slot), u32>, group: GroupId, slot: Slot, before: u32) {
    if before == 0 {
        counts.remove(&(group, slot));
    } else {
        counts.insert((group, slot), before);
    }
}

/// Whether some NoSchedule or NoExecute taint is not tolerated. PreferNoSchedule taints do not exclude a node from a
/// spread's count.
pub(crate) fn keeps_away(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .any(|taint| first_untolerated(std::slice::from_ref(taint), tolerations).is_some())
}

/// The terms that a node must match for a pod: the pod's node selector joined with each required affinity term.
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
