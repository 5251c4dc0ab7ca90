//! Existing and in-flight nodes: what they have left, which pods they may take, and the topology counts they bring.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::problem::{Node, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::first_untolerated;

use super::Ledger;
use super::fit::{any_conflict, copies, holds};
use crate::bits::Bits;
use crate::sequence::{Event, Target};
use crate::templates::{Amounts, Template, catalog};
use crate::topology::{Group, GroupId, Kind, Slot, keeps_away};

#[derive(Debug)]
pub(crate) struct NodeSlot {
    pub(crate) free: Amounts,
    pub(crate) labels: Requirements,
    /// Domain per topology key, where the node carries the key.
    pub(crate) domains: Vec<Option<usize>>,
    /// (variant, count) placed by this plan.
    pub(crate) content: Vec<(usize, u32)>,
}

/// What a node has left for pods, daemons that are yet to come deducted.
pub(crate) fn free_room(problem: &Problem, node: &Node) -> ResourceList {
    free_with(problem, node, &labels_of(node))
}

fn labels_of(node: &Node) -> Requirements {
    let mut labels = Requirements::from_labels(&node.labels);
    labels.replace(Requirement::in_values(labels::HOSTNAME, [node.hostname().clone()]));
    labels
}

fn free_with(problem: &Problem, node: &Node, labels: &Requirements) -> ResourceList {
    let mut free = node.allocatable.clone();
    let mut daemons_here = ResourceList::new();
    for pod in &node.pods {
        free.subtract(&pod.spec.requests);
        if pod.is_daemon {
            daemons_here.add(&pod.spec.requests);
        }
    }
    let mut expected = ResourceList::new();
    for daemon in &problem.daemons {
        let tolerates = first_untolerated(&node.taints, &daemon.spec.tolerations).is_none();
        let strict = daemon.spec.strict_requirements();
        if tolerates && labels.compatible(&strict, &BTreeSet::new()).is_ok() {
            expected.add(&daemon.spec.requests);
        }
    }
    for (name, amount) in expected.iter() {
        let outstanding = (amount - daemons_here.get(name)).max(0);
        free.set(name.clone(), free.get(name).saturating_sub(outstanding));
    }
    free
}

impl Ledger<'_> {
    pub(super) fn prepare_nodes(&mut self) {
        let problem = self.problem;
        let bound_anti_affinity = problem
            .nodes
            .iter()
            .flat_map(|node| &node.pods)
            .flat_map(|pod| pod.spec.anti_affinity.iter().map(move |term| (&pod.spec, term)));
        for (spec, term) in bound_anti_affinity {
            self.topology.affinity_group(spec, term, true);
        }
        self.collect_domains();
        self.topology.start_counting();
        self.nodes = problem.nodes.iter().map(|node| self.node_slot(node)).collect();
        self.topology.with_nodes = (0..self.topology.keys.len())
            .map(|key| {
                let mut bits = Bits::empty(self.topology.domains[key].len());
                self.nodes.iter().filter_map(|slot| slot.domains[key]).for_each(|domain| bits.insert(domain));
                bits
            })
            .collect();
        self.collect_universes();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&problem.nodes[*a], &problem.nodes[*b]);
            b.initialized.cmp(&a.initialized).then_with(|| a.name.cmp(&b.name))
        });
        self.node_order = order;
        self.count_bound_pods();
    }

    fn node_slot(&self, node: &Node) -> NodeSlot {
        let labels = labels_of(node);
        let free = free_with(self.problem, node, &labels);
        let domains = self
            .topology
            .keys
            .iter()
            .enumerate()
            .map(|(key, name)| {
                let value = node.labels.get(name)?;
                self.topology.domains[key].binary_search(value).ok()
            })
            .collect();
        NodeSlot { free: self.prepared.dimensions.amounts(&free), labels, domains, content: Vec::new() }
    }

    /// Every value of every topology key that a pool could launch or a node carries.
    fn collect_domains(&mut self) {
        for key in 0..self.topology.keys.len() {
            if self.topology.is_hostname(key) {
                continue;
            }
            let name = self.topology.keys[key].clone();
            let mut values: BTreeSet<Arc<str>> = BTreeSet::new();
            let mut insert = |requirement: Option<&Requirement>| {
                if let Some(requirement) = requirement.filter(|requirement| !requirement.complement) {
                    for value in &requirement.values {
                        if !values.contains(value) {
                            values.insert(value.clone());
                        }
                    }
                }
            };
            for template in &self.prepared.templates {
                insert(template.requirements.get(&name));
                for entry in &template.types {
                    let pool = &self.problem.pools[template.pool];
                    let instance_type = &catalog(self.problem, pool)[entry.index];
                    insert(instance_type.requirements.get(&name));
                    for offering in &instance_type.offerings {
                        insert(offering.requirements.get(&name));
                    }
                }
            }
            values.extend(self.problem.nodes.iter().filter_map(|node| node.labels.get(&name)).cloned());
            self.topology.set_domains(key, values.into_iter().collect());
        }
    }

    fn collect_universes(&mut self) {
        for position in 0..self.topology.groups.len() {
            let id = GroupId(position as u32);
            let group = self.topology.group(id);
            if group.is_hostname {
                continue;
            }
            let key = group.id.key;
            let tolerations = group.id.tolerations.clone();
            let mut universe = Bits::empty(self.topology.domains[key].len());
            let prepared = self.prepared;
            for (position, template) in prepared.templates.iter().enumerate() {
                let tolerated = |template: &Template| {
                    let taints = &self.problem.pools[template.pool].taints;
                    tolerations.as_ref().is_none_or(|tolerations| !keeps_away(taints, tolerations))
                };
                if !tolerated(template) {
                    continue;
                }
                if let Some(base) = self.states.base(position) {
                    self.domains(base, key).iter().for_each(|domain| universe.insert(domain));
                }
            }
            for (node, slot) in self.problem.nodes.iter().zip(&self.nodes) {
                let filter = &self.topology.group(id).id.filter;
                if let Some(domain) = slot.domains[key]
                    && filter.accepts(&slot.labels, &node.taints, &BTreeSet::new())
                {
                    universe.insert(domain);
                }
            }
            self.topology.group_mut(id).universe = universe;
        }
    }

    fn count_bound_pods(&mut self) {
        self.count_bound_pods_of(|_| true);
    }

    fn count_bound_pods_of(&mut self, wanted: impl Fn(&Group) -> bool) {
        if self.topology.groups.is_empty() {
            return;
        }
        for (position, node) in self.problem.nodes.iter().enumerate() {
            for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
                for group in self.topology.matching(&pod.spec.namespace, &pod.spec.labels) {
                    if wanted(self.topology.group(group)) {
                        self.count_on_node(group, position, 1);
                    }
                }
                for term in &pod.spec.anti_affinity {
                    let group = self.topology.affinity_group(&pod.spec, term, true);
                    if wanted(self.topology.group(group)) {
                        self.own_on_node(group, position, 1);
                    }
                }
            }
        }
    }

    /// Counts zone-like anti-affinity anew from what the planned nodes may still become. Placing only ever adds, so
    /// domains that a node has lost since would stay blocked.
    pub(crate) fn recount_anti_affinity(&mut self) {
        let is_wanted = |group: &Group| !group.is_hostname && group.id.kind == Kind::AntiAffinity;
        for group in self.topology.groups.iter_mut().filter(|group| is_wanted(group)) {
            group.matched.iter_mut().chain(&mut group.owners).for_each(|count| *count = 0);
            group.matched_total = 0;
            group.version += 1;
        }
        self.count_bound_pods_of(is_wanted);
        for node in 0..self.nodes.len() {
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
            let state = self.claims[claim].state;
            for (variant, _, count) in self.claims[claim].content.clone() {
                for group in self.anti_affinity_matching(variant) {
                    let domains = self.domains(state, self.topology.group(group).id.key).clone();
                    self.topology.count_domains(group, domains.iter(), count);
                }
                for (group, key) in self.anti_affinity_stated(variant) {
                    let domains = self.domains(state, key).clone();
                    self.topology.own_domains(group, domains.iter(), count);
                }
            }
        }
    }

    fn anti_affinity_matching(&self, variant: usize) -> Vec<GroupId> {
        let class = &self.classes.classes[self.classes.variants[variant].class];
        let is_wanted = |group: &&GroupId| {
            let group = self.topology.group(**group);
            !group.is_hostname && group.id.kind == Kind::AntiAffinity
        };
        class.matched.iter().filter(is_wanted).copied().collect()
    }

    fn anti_affinity_stated(&self, variant: usize) -> Vec<(GroupId, usize)> {
        let owned = self.classes.variants[variant].owned.iter();
        owned
            .filter(|owned| !owned.is_hostname && owned.is_required && owned.kind == Kind::AntiAffinity)
            .map(|owned| (owned.group, owned.key))
            .collect()
    }

    /// Whether a constraint counts an existing node among its domains.
    pub(crate) fn node_is_eligible(&self, group: GroupId, node: usize) -> bool {
        let filter = &self.topology.group(group).id.filter;
        filter.is_all()
            || filter.accepts(&self.nodes[node].labels, &self.problem.nodes[node].taints, &BTreeSet::new())
    }

    fn count_on_node(&mut self, group: GroupId, node: usize, count: u32) {
        let data = self.topology.group(group);
        let accepted = data.id.filter.is_all()
            || data.id.filter.accepts(
                &self.nodes[node].labels,
                &self.problem.nodes[node].taints,
                &BTreeSet::new(),
            );
        if !accepted {
            return;
        }
        if data.is_hostname {
            self.topology.count_host(group, Slot(node as u32), count);
        } else if let Some(domain) = self.nodes[node].domains[data.id.key] {
            self.topology.count_domains(group, [domain], count);
        }
    }

    fn own_on_node(&mut self, group: GroupId, node: usize, count: u32) {
        let data = self.topology.group(group);
        if data.is_hostname {
            self.topology.own_host(group, Slot(node as u32), count);
        } else if let Some(domain) = self.nodes[node].domains[data.id.key] {
            self.topology.own_domains(group, [domain], count);
        }
    }

    /// How many copies of a variant an existing node takes now: 0, 1, or more for bulk variants.
    pub(crate) fn fit_node(&mut self, variant: usize, node: usize) -> u32 {
        let matches = self.matching_nodes(variant);
        if !matches.contains(node) {
            return 0;
        }
        let data = &self.classes.variants[variant];
        let slot = &self.nodes[node];
        if !holds(&slot.free, &data.requests) {
            return 0;
        }
        let by_host = self.host_copies(variant, Slot(node as u32));
        if by_host == 0 || !self.node_ports_allow(variant, node) || !self.node_volumes_allow(variant, node) {
            return 0;
        }
        if !self.node_domains_allow(variant, node) {
            return 0;
        }
        let nothing: Amounts = std::iter::repeat_n(0, data.requests.len()).collect();
        if data.is_bulk { copies(&slot.free, &nothing, &data.requests).min(by_host) } else { 1 }
    }

    fn node_domains_allow(&self, variant: usize, node: usize) -> bool {
        let data = &self.classes.variants[variant];
        let repelled = data.repelled_by.iter().map(|group| self.topology.group(*group).id.key);
        let keys: BTreeSet<usize> = data
            .owned
            .iter()
            .filter(|owned| !owned.is_hostname)
            .map(|owned| owned.key)
            .chain(repelled)
            .collect();
        keys.into_iter().all(|key| match self.nodes[node].domains[key] {
            Some(domain) => {
                let mut here = Bits::empty(self.topology.domains[key].len());
                here.insert(domain);
                self.allowed_domains(variant, key, &here).contains(domain)
            }
            // Without the label the node is in no domain: only constraints that push away are satisfied.
            None => !data.owned.iter().any(|owned| owned.key == key && owned.kind != Kind::AntiAffinity),
        })
    }

    fn node_ports_allow(&self, variant: usize, node: usize) -> bool {
        let wanted = &self.classes.variants[variant].spec.host_ports;
        wanted.is_empty()
            || (self.problem.nodes[node]
                .pods
                .iter()
                .all(|pod| !any_conflict(wanted.iter(), pod.spec.host_ports.iter()))
                && self.nodes[node].content.iter().all(|(other, _)| {
                    !any_conflict(wanted.iter(), self.classes.variants[*other].spec.host_ports.iter())
                }))
    }

    fn node_volumes_allow(&self, variant: usize, node: usize) -> bool {
        let data = &self.classes.variants[variant];
        let wanted = &data.spec.volumes.attachments;
        let limits = &self.problem.nodes[node].volume_limits;
        if wanted.is_empty() || limits.is_empty() {
            return true;
        }
        let mut all: BTreeSet<_> = wanted.iter().collect();
        all.extend(self.problem.nodes[node].pods.iter().flat_map(|pod| &pod.spec.volumes.attachments));
        let placed = self.nodes[node].content.iter();
        all.extend(placed.flat_map(|(other, _)| &self.classes.variants[*other].spec.volumes.attachments));
        limits.iter().all(|(driver, limit)| all.iter().filter(|(d, _)| d == driver).count() as u32 <= *limit)
    }

    /// Nodes whose taints and labels suit a variant; shared by all variants with the same demands.
    pub(crate) fn matching_nodes(&mut self, variant: usize) -> Arc<Bits> {
        let data = &self.classes.variants[variant];
        let next = self.toleration_sets.len() as u32;
        let tolerations = match self.toleration_sets.get(&data.spec.tolerations) {
            Some(id) => *id,
            None => *self.toleration_sets.entry(data.spec.tolerations.clone()).or_insert(next),
        };
        let mut matches: Option<Bits> = None;
        for alternative in data.alternatives.clone() {
            let added = self.states.join(self.classes.variants[variant].added, alternative);
            let found = match self.node_matches.get(&(added, tolerations)) {
                Some(known) => known.clone(),
                None => {
                    let computed = Arc::new(self.compute_matching_nodes(variant, added));
                    self.node_matches.insert((added, tolerations), computed.clone());
                    computed
                }
            };
            if self.classes.variants[variant].alternatives.len() == 1 {
                return found;
            }
            let all = matches.get_or_insert_with(|| Bits::empty(self.nodes.len()));
            found.iter().for_each(|node| all.insert(node));
        }
        Arc::new(matches.unwrap_or_default())
    }

    fn compute_matching_nodes(&self, variant: usize, added: crate::states::ReqId) -> Bits {
        let wanted = self.states.added(added);
        let tolerations = &self.classes.variants[variant].spec.tolerations;
        let mut bits = Bits::empty(self.nodes.len());
        for (position, (node, slot)) in self.problem.nodes.iter().zip(&self.nodes).enumerate() {
            if first_untolerated(&node.taints, tolerations).is_none()
                && slot.labels.compatible(wanted, &BTreeSet::new()).is_ok()
            {
                bits.insert(position);
            }
        }
        bits
    }

    /// Records `count` pods of a variant on an existing node.
    pub(crate) fn place_on_node(&mut self, variant: usize, node: usize, count: u32) {
        let target = Target::Node(node);
        self.log.push(Event { variant, alternative: 0, target, count, is_deferred: false });
        let data = &self.classes.variants[variant];
        for (free, request) in self.nodes[node].free.iter_mut().zip(&data.requests) {
            *free -= request.saturating_mul(i64::from(count));
        }
        match self.nodes[node].content.iter_mut().find(|(known, _)| *known == variant) {
            Some((_, present)) => *present += count,
            None => self.nodes[node].content.push((variant, count)),
        }
        let class = data.class;
        let owned: Vec<GroupId> = data
            .owned
            .iter()
            .filter(|owned| owned.kind == Kind::AntiAffinity && owned.is_required)
            .map(|owned| owned.group)
            .collect();
        for group in self.classes.classes[class].matched.clone() {
            self.count_on_node(group, node, count);
        }
        for group in owned {
            self.own_on_node(group, node, count);
        }
    }
}
