//! Existing and in-flight nodes: which pods they accept, and how a placement changes their free capacity and counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::pod::HostPort;
use karpenter_model::requirements::Requirements;
use karpenter_model::taints::{Taint, first_untolerated};
use smallvec::SmallVec;

use super::fit::{any_conflict, copies, holds};
use super::free_capacity::BLOCK;
use super::{Claim, Ledger};
use crate::bits::Bits;
use crate::sequence::{Event, Target};
use crate::states::ReqId;
use crate::templates::Amounts;
use crate::topology::{GroupId, Kind, Slot};

#[derive(Debug, Clone)]
pub(crate) struct NodeSlot {
    pub(crate) facts: Arc<NodeFacts>,
    /// The pods that this plan placed on the node, as (variant, count). A variant is a class of equal pods at one
    /// relaxation level.
    pub(crate) content: Vec<(usize, u32)>,
}

/// A node with its bound pods.
#[derive(Debug, Clone)]
pub(crate) struct NodeFacts {
    /// The index in `Problem::nodes`.
    pub(crate) id: usize,
    pub(crate) labels: Requirements,
    pub(crate) taints: Vec<Taint>,
    /// For each topology key: the node's domain; `None` if the node lacks the label.
    pub(crate) domains: Vec<Option<usize>>,
    pub(super) volume_limits: BTreeMap<Arc<str>, u32>,
    pub(super) ports: Vec<HostPort>,
    pub(super) attachments: BTreeSet<(Arc<str>, Arc<str>)>,
    /// For each topology group: the number of bound pods on this node that the group counts.
    pub(crate) matched: BTreeMap<GroupId, u32>,
    /// For each anti-affinity group: the number of bound pods on this node that state it as required.
    pub(super) owners: BTreeMap<GroupId, u32>,
    /// Like `owners`, but including terminating pods, which no longer exclude other pods but still state the
    /// constraint.
    pub(super) stated: BTreeMap<GroupId, u32>,
}

/// The domains of a key that a variant of a pod class may use, and whether it may use nodes without the label.
struct Allowed {
    key: usize,
    domains: Bits,
    without: bool,
}

impl Ledger {
    /// Counts anti-affinity over zone-like keys again, from the domains in which planned nodes may still launch.
    /// Placements only increase the counts, so a domain would stay excluded even when no node can launch there any
    /// more.
    pub(crate) fn recount_anti_affinity(&mut self) {
        let wanted: Vec<GroupId> = (0..self.topology.groups.len() as u32)
            .map(GroupId)
            .filter(|group| self.is_zonal_anti_affinity(*group))
            .collect();
        wanted.iter().for_each(|group| self.topology.reset_counts(*group));
        for node in self.present.clone().iter() {
            let facts = self.nodes[node].facts.clone();
            for (group, count) in
                facts.matched.iter().filter(|(group, _)| wanted.binary_search(group).is_ok())
            {
                self.count_on_node(*group, node, *count);
            }
            for (group, count) in facts.owners.iter().filter(|(group, _)| wanted.binary_search(group).is_ok())
            {
                self.own_on_node(*group, node, *count);
            }
            for (variant, count) in self.nodes[node].content.clone() {
                for group in self.anti_affinity_matching(variant) {
                    self.count_on_node(group, node, count);
                }
                for (group, _) in self.anti_affinity_stated(variant) {
                    self.own_on_node(group, node, count);
                }
            }
        }
        for claim in 0..self.claims.len() {
            let Claim { state, content, .. } = self.claims[claim].clone();
            for (variant, _, count) in content {
                for group in self.anti_affinity_matching(variant) {
                    let domains = self.domains(state, self.topology.group(group).id.key);
                    self.topology.count_domains(group, domains.iter(), count);
                }
                for (group, key) in self.anti_affinity_stated(variant) {
                    let domains = self.domains(state, key);
                    self.topology.own_domains(group, domains.iter(), count);
                }
            }
        }
    }

    fn is_zonal_anti_affinity(&self, group: GroupId) -> bool {
        let group = self.topology.group(group);
        !group.is_hostname && group.id.kind == Kind::AntiAffinity
    }

    fn anti_affinity_matching(&self, variant: usize) -> Vec<GroupId> {
        let class = &self.classes.classes[self.classes.variants[variant].class];
        class.matched.iter().copied().filter(|group| self.is_zonal_anti_affinity(*group)).collect()
    }

    fn anti_affinity_stated(&self, variant: usize) -> Vec<(GroupId, usize)> {
        let owned = self.classes.variants[variant].owned.iter();
        owned
            .filter(|owned| !owned.is_hostname && owned.is_required && owned.kind == Kind::AntiAffinity)
            .map(|owned| (owned.group, owned.key))
            .collect()
    }

    pub(super) fn count_on_node(&mut self, group: GroupId, node: usize, count: u32) -> bool {
        if !self.topology.is_eligible(group, node) {
            return false;
        }
        let data = self.topology.group(group);
        if data.is_hostname {
            self.topology.count_host(group, Slot(node as u32), count);
        } else if let Some(domain) = self.nodes[node].facts.domains[data.id.key] {
            self.topology.count_domains(group, [domain], count);
        } else {
            return false;
        }
        true
    }

    pub(super) fn own_on_node(&mut self, group: GroupId, node: usize, count: u32) {
        let data = self.topology.group(group);
        if data.is_hostname {
            self.topology.own_host(group, Slot(node as u32), count);
        } else if let Some(domain) = self.nodes[node].facts.domains[data.id.key] {
            self.topology.own_domains(group, [domain], count);
        }
    }

    /// The first existing node, from index `from` on, that accepts the variant, and how many copies it accepts: 1, or
    /// more for bulk variants.
    pub(crate) fn find_node(&mut self, variant: usize, from: usize) -> Option<(usize, u32)> {
        if from >= self.nodes.len() {
            return None;
        }
        let matches = self.matching_nodes(variant);
        let allowed = self.allowed_on_nodes(variant);
        let data = &self.classes.variants[variant];
        let is_mover = self.classes.classes[data.class].is_mover;
        for block in from / BLOCK..self.nodes.len().div_ceil(BLOCK) {
            let mut open = matches.word(block) & self.present.word(block);
            if is_mover {
                open &= !self.closed_to_movers.word(block);
            }
            if block == from / BLOCK {
                open &= u64::MAX << (from % BLOCK);
            }
            if open == 0 || !self.free_capacity.block_may_hold(block, &data.requests) {
                continue;
            }
            while open != 0 {
                let node = block * BLOCK + open.trailing_zeros() as usize;
                open &= open - 1;
                let copies = self.fit_node(variant, node, &allowed);
                if copies > 0 {
                    return Some((node, copies));
                }
            }
        }
        None
    }

    /// Places one pod of the queue on an existing node, if the node accepts it now.
    pub(crate) fn place_target(&mut self, class: usize, node: usize) {
        let is_closed = self.classes.classes[class].is_mover && self.closed_to_movers.contains(node);
        let Some(run) = self.classes.queue.iter().position(|run| run.class == class && run.count > 0) else {
            return;
        };
        if is_closed || !self.present.contains(node) {
            return;
        }
        for variant in self.classes.classes[class].variants.clone() {
            let matches = self.matching_nodes(variant).contains(node);
            if matches && self.fit_node(variant, node, &self.allowed_on_nodes(variant)) > 0 {
                self.place_on_node(variant, node, 1);
                self.classes.queue[run].count -= 1;
                return;
            }
        }
    }

    pub(crate) fn is_closed_to_movers(&self, node: usize) -> bool {
        self.closed_to_movers.contains(node)
    }

    fn fit_node(&self, variant: usize, node: usize, allowed: &[Allowed]) -> u32 {
        let data = &self.classes.variants[variant];
        let free = self.free_capacity.of(node);
        if !holds(free, &data.requests) {
            return 0;
        }
        let slot = &self.nodes[node];
        let is_allowed = allowed.iter().all(|allowed| match slot.facts.domains[allowed.key] {
            Some(domain) => allowed.domains.contains(domain),
            None => allowed.without,
        });
        if !is_allowed {
            return 0;
        }
        let by_host = self.host_copies(variant, Slot(node as u32));
        if by_host == 0 || !self.node_ports_allow(variant, node) || !self.node_volumes_allow(variant, node) {
            return 0;
        }
        if !data.is_bulk {
            return 1;
        }
        let nothing: Amounts = SmallVec::from_elem(0, data.requests.len());
        copies(free, &nothing, &data.requests).min(by_host)
    }

    /// The domains that the zonal constraints of a variant of a pod class allow, given the pods placed so far.
    fn allowed_on_nodes(&self, variant: usize) -> SmallVec<[Allowed; 2]> {
        let data = &self.classes.variants[variant];
        let mut keys: SmallVec<[usize; 4]> = data
            .owned
            .iter()
            .filter(|owned| !owned.is_hostname)
            .map(|owned| owned.key)
            .chain(data.repelled_by.iter().map(|group| self.topology.group(*group).id.key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
            .map(|key| {
                let size = self.topology.domains[key].len();
                let mut all = Bits::empty(size);
                (0..size).for_each(|domain| all.insert(domain));
                Allowed {
                    key,
                    domains: self.allowed_domains(variant, key, &all),
                    // A node without the label belongs to no domain, so only anti-affinity allows it.
                    without: !data
                        .owned
                        .iter()
                        .any(|owned| owned.key == key && owned.kind != Kind::AntiAffinity),
                }
            })
            .collect()
    }

    fn node_ports_allow(&self, variant: usize, node: usize) -> bool {
        let wanted = &self.classes.variants[variant].spec.host_ports;
        wanted.is_empty()
            || (!any_conflict(wanted.iter(), self.nodes[node].facts.ports.iter())
                && self.nodes[node].content.iter().all(|(other, _)| {
                    !any_conflict(wanted.iter(), self.classes.variants[*other].spec.host_ports.iter())
                }))
    }

    fn node_volumes_allow(&self, variant: usize, node: usize) -> bool {
        let wanted = &self.classes.variants[variant].spec.volumes.attachments;
        let NodeSlot { facts, content } = &self.nodes[node];
        if wanted.is_empty() || facts.volume_limits.is_empty() {
            return true;
        }
        let mut all: BTreeSet<_> = wanted.iter().chain(&facts.attachments).collect();
        all.extend(
            content.iter().flat_map(|(other, _)| &self.classes.variants[*other].spec.volumes.attachments),
        );
        facts
            .volume_limits
            .iter()
            .all(|(driver, limit)| all.iter().filter(|(d, _)| d == driver).count() as u32 <= *limit)
    }

    /// Nodes whose taints and labels match a variant of a pod class; the result is cached and shared by variants with
    /// the same requirements and tolerations.
    pub(crate) fn matching_nodes(&mut self, variant: usize) -> Arc<Bits> {
        if let Some(known) = &self.matches_of_variant[variant] {
            return known.clone();
        }
        let tolerations = self.toleration_set(variant);
        let mut found: Option<Arc<Bits>> = None;
        for alternative in self.classes.variants[variant].alternatives.clone() {
            let added = self.states.join(self.classes.variants[variant].added, alternative);
            let here = match self.node_matches.get(&(added, tolerations)) {
                Some(known) => known.clone(),
                None => {
                    let mut bits = Bits::empty(self.nodes.len());
                    (0..self.nodes.len())
                        .filter(|node| self.node_matches_demand(*node, added, tolerations))
                        .for_each(|node| bits.insert(node));
                    let computed = Arc::new(bits);
                    self.node_matches.insert((added, tolerations), computed.clone());
                    computed
                }
            };
            match &mut found {
                Some(all) => {
                    let all = Arc::make_mut(all);
                    here.iter().for_each(|node| all.insert(node));
                }
                None => found = Some(here),
            }
        }
        let found = found.unwrap_or_default();
        self.matches_of_variant[variant] = Some(found.clone());
        found
    }

    fn toleration_set(&mut self, variant: usize) -> u32 {
        let wanted = &self.classes.variants[variant].spec.tolerations;
        let known = self.toleration_sets.iter().position(|known| known == wanted);
        known.unwrap_or_else(|| {
            self.toleration_sets.push(wanted.clone());
            self.toleration_sets.len() - 1
        }) as u32
    }

    pub(super) fn node_matches_demand(&self, node: usize, added: ReqId, tolerations: u32) -> bool {
        let facts = &self.nodes[node].facts;
        let tolerations = &self.toleration_sets[tolerations as usize];
        first_untolerated(&facts.taints, tolerations).is_none()
            && facts.labels.compatible(self.states.added(added), &BTreeSet::new()).is_ok()
    }

    /// Records `count` pods of a variant of a pod class on an existing node.
    pub(crate) fn place_on_node(&mut self, variant: usize, node: usize, count: u32) {
        let target = Target::Node(node);
        self.log.push(Event { variant, alternative: 0, target, count, is_deferred: false });
        let data = &self.classes.variants[variant];
        self.free_capacity.take(node, &data.requests, count);
        let content = &mut self.nodes[node].content;
        if content.is_empty() {
            self.touched.push(node);
        }
        match content.iter_mut().find(|(known, _)| *known == variant) {
            Some((_, present)) => *present += count,
            None => content.push((variant, count)),
        }
        let class = data.class;
        let owned: SmallVec<[GroupId; 4]> = data
            .owned
            .iter()
            .filter(|owned| owned.kind == Kind::AntiAffinity && owned.is_required)
            .map(|owned| owned.group)
            .collect();
        for position in 0..self.classes.classes[class].matched.len() {
            let group = self.classes.classes[class].matched[position];
            self.count_on_node(group, node, count);
        }
        for group in owned {
            self.own_on_node(group, node, count);
        }
    }

    /// The free capacity of a node without the pods that this plan placed on it.
    pub(crate) fn free_before_plan(&self, node: usize) -> Amounts {
        let mut free: Amounts = self.free_capacity.of(node).iter().copied().collect();
        for (variant, count) in &self.nodes[node].content {
            for (free, request) in free.iter_mut().zip(&self.classes.variants[*variant].requests) {
                *free += request * i64::from(*count);
            }
        }
        free
    }
}
