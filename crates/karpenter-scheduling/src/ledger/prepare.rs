//! Builds a ledger from a problem: compiles pods, computes the free capacity of nodes, collects domains and
//! counts bound pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Node, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::first_untolerated;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::changes::Changes;
use super::free_capacity::FreeCapacity;
use super::nodes::NodeFacts;
use super::{Ledger, NodeSlot, Prepared};
use crate::bits::Bits;
use crate::classes;
use crate::reservations::Slots;
use crate::states::States;
use crate::templates::{Amounts, Template, catalog};
use crate::topology::{GroupId, Kind, NodeFilter, Topology, keeps_away, node_terms};

/// The free capacity of a node after its pods and the DaemonSet pods that are still expected on it.
pub(crate) fn free_capacity_of(problem: &Problem, node: &Node) -> ResourceList {
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
    for daemon in problem.daemons.iter().filter(|daemon| daemon.reserves_capacity()) {
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

/// The topology groups that count a bound pod, and the anti-affinity groups that the pod states.
struct Links {
    matched: Vec<GroupId>,
    keeps_away: Vec<GroupId>,
}

impl Ledger {
    /// Compiles a problem. `movers` are bound pods that a simulation may have to place; the second result is the class
    /// of each. Pending pods are put into the queue. Before they are placed, [`Ledger::activate_all`] or
    /// [`Ledger::begin_simulation`] must be called.
    pub(crate) fn compile(problem: &Problem, movers: &[Arc<PodSpec>]) -> (Self, Vec<usize>) {
        let prepared = Arc::new(Prepared::new(problem, movers));
        let constant = Arc::new(Problem {
            catalogs: problem.catalogs.clone(),
            pools: problem.pools.clone(),
            nodes: Vec::new(),
            pods: Vec::new(),
            daemons: problem.daemons.clone(),
            well_known: problem.well_known.clone(),
            options: problem.options.clone(),
        });
        let mut states = States::new(constant.clone(), prepared.clone());
        let mut topology = Topology::default();
        let (mut classes, class_of_mover) = classes::group(problem, movers);
        classes::compile(&constant, &prepared, &mut states, &mut topology, &mut classes);
        intern_bound_anti_affinity(problem, &mut topology);
        let (new_key, new_group) = topology.sort();
        classes::renumber(&mut classes, &new_key, &new_group);
        let limits_left =
            prepared.templates.iter().map(|t| t.limited.iter().map(|(_, left)| *left).collect()).collect();
        let variants = classes.variants.len();
        let mut ledger = Self {
            options: problem.options.clone(),
            free_capacity: FreeCapacity::new(prepared.dimensions.len()),
            limits_left,
            nodes_left: prepared.templates.iter().map(|template| template.nodes_left).collect(),
            slots: Slots::new(&prepared.reservations, &problem.options, &BTreeMap::new()),
            changes: Changes::default(),
            prefers_vacated_domains: false,
            only_vacated_domains: false,
            problem: constant,
            prepared,
            states,
            topology,
            classes,
            nodes: Vec::new(),
            present: Bits::empty(problem.nodes.len()),
            closed_to_movers: Bits::empty(problem.nodes.len()),
            touched: Vec::new(),
            claims: Vec::new(),
            log: Vec::new(),
            by_pod_count: BTreeSet::new(),
            ranks_given: 0,
            label_definitions: 0,
            filters: Default::default(),
            node_matches: Default::default(),
            matches_of_variant: vec![None; variants],
            toleration_sets: Vec::new(),
        };
        ledger.changes = Changes::start(&ledger);
        ledger.collect_domains(problem, movers);
        ledger.collect_nodes(problem);
        ledger.collect_universes();
        ledger.count_bound_pods(problem);
        classes::link(&mut ledger.classes, &mut ledger.topology, &ledger.nodes);
        (ledger, class_of_mover)
    }

    /// Prepares every class for placement, with every topology group active, as all pods of the queue are to be placed.
    pub(super) fn activate_all(&mut self) {
        let all = 0..self.classes.classes.len();
        classes::activate(&mut self.classes, &self.topology, &[], all, |_| true);
    }

    /// Collects the domains (values) of every topology key: those that a NodePool could launch, that a node has, or
    /// that a mover requires, because a mover may be placed on a new node with a value that no node has yet.
    fn collect_domains(&mut self, problem: &Problem, movers: &[Arc<PodSpec>]) {
        let mut all = Vec::new();
        for key in 0..self.topology.keys.len() {
            if self.topology.is_hostname(key) {
                all.push((Vec::new(), Bits::default()));
                continue;
            }
            let name = self.topology.keys[key].clone();
            let mut offered: BTreeSet<Arc<str>> = BTreeSet::new();
            for template in &self.prepared.templates {
                insert_values(&mut offered, template.requirements.get(&name));
                for entry in &template.types {
                    let pool = &self.problem.pools[template.pool];
                    let instance_type = &catalog(&self.problem, pool)[entry.index];
                    insert_values(&mut offered, instance_type.requirements.get(&name));
                    for offering in &instance_type.offerings {
                        insert_values(&mut offered, offering.requirements.get(&name));
                    }
                }
            }
            let mut values = offered.clone();
            values.extend(problem.nodes.iter().filter_map(|node| node.labels.get(&name)).cloned());
            for spec in movers {
                for term in node_terms(spec).iter().chain(&spec.volumes.alternatives) {
                    insert_values(&mut values, term.get(&name));
                }
                spec.preferred_terms.iter().for_each(|(_, term)| insert_values(&mut values, term.get(&name)));
            }
            let names: Vec<Arc<str>> = values.into_iter().collect();
            let mut bits = Bits::empty(names.len());
            let is_offered = |position: &usize| offered.contains(&names[*position]);
            (0..names.len()).filter(is_offered).for_each(|position| bits.insert(position));
            all.push((names, bits));
        }
        self.topology.start_counting(all);
    }

    fn collect_nodes(&mut self, problem: &Problem) {
        let mut order: Vec<usize> = (0..problem.nodes.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&problem.nodes[*a], &problem.nodes[*b]);
            b.initialized.cmp(&a.initialized).then_with(|| a.name.cmp(&b.name))
        });
        for id in order {
            self.push_node(id, &problem.nodes[id]);
        }
        self.topology.update_present_domains();
    }

    /// Appends a node. The requests of its pods reduce its free capacity, but topology groups do not count them yet.
    pub(super) fn push_node(&mut self, id: usize, node: &Node) {
        let labels = labels_of(node);
        let free = free_with(&self.problem, node, &labels);
        let domains: Vec<Option<usize>> = self
            .topology
            .keys
            .iter()
            .enumerate()
            .map(|(key, name)| {
                let value = node.labels.get(name)?;
                self.topology.domains[key].binary_search(value).ok()
            })
            .collect();
        // A node whose free amount of any resource is negative accepts no pods.
        let amounts: Amounts = if free.iter().any(|(_, amount)| amount < 0) {
            SmallVec::from_elem(-1, self.prepared.dimensions.len())
        } else {
            self.prepared.dimensions.amounts(&free)
        };
        let position = self.nodes.len();
        self.free_capacity.push(&amounts);
        self.present.extend_to(position);
        if node.is_settling {
            self.closed_to_movers.extend_to(position);
        }
        self.topology.add_node(&domains);
        self.nodes.push(NodeSlot {
            facts: Arc::new(NodeFacts {
                id,
                labels,
                taints: node.taints.clone(),
                domains,
                volume_limits: node.volume_limits.clone(),
                ports: node.pods.iter().flat_map(|pod| pod.spec.host_ports.iter().cloned()).collect(),
                attachments: node
                    .pods
                    .iter()
                    .flat_map(|pod| pod.spec.volumes.attachments.iter().cloned())
                    .collect(),
                matched: BTreeMap::new(),
                owners: BTreeMap::new(),
                stated: BTreeMap::new(),
            }),
            content: Vec::new(),
        });
    }

    fn collect_universes(&mut self) {
        let mut by_filter: BTreeMap<NodeFilter, Bits> = BTreeMap::new();
        for position in 0..self.topology.groups.len() {
            let id = GroupId(position as u32);
            let filter = self.topology.group(id).id.filter.clone();
            if !filter.is_all() {
                let eligible = by_filter.entry(filter).or_insert_with_key(|filter| {
                    let mut bits = Bits::empty(self.nodes.len());
                    let accepts = |node: &usize| {
                        let facts = &self.nodes[*node].facts;
                        filter.accepts(&facts.labels, &facts.taints)
                    };
                    (0..self.nodes.len()).filter(accepts).for_each(|node| bits.insert(node));
                    bits
                });
                self.topology.group_mut(id).eligible = Some(eligible.clone());
            }
            let group = self.topology.group(id);
            if group.is_hostname {
                continue;
            }
            let key = group.id.key;
            let tolerations = group.id.tolerations.clone();
            let mut offered = Bits::empty(self.topology.domains[key].len());
            let prepared = self.prepared.clone();
            for (position, template) in prepared.templates.iter().enumerate() {
                let tolerated = |template: &Template| {
                    let taints = &self.problem.pools[template.pool].taints;
                    tolerations.as_ref().is_none_or(|tolerations| !keeps_away(taints, tolerations))
                };
                if !tolerated(template) {
                    continue;
                }
                if let Some(base) = self.states.base(position) {
                    let names = (&self.topology.keys[key], &self.topology.domains[key]);
                    let domains = self.states.domains(base, key, names.0, names.1);
                    domains.iter().for_each(|domain| offered.insert(domain));
                }
            }
            let group = self.topology.group_mut(id);
            group.universe = offered.clone();
            group.offered = offered;
        }
        for node in 0..self.nodes.len() {
            self.add_node_to_spreads(node);
        }
    }

    /// Adds a node to the domains of every spread that counts it.
    pub(super) fn add_node_to_spreads(&mut self, node: usize) {
        for position in 0..self.topology.groups.len() {
            let id = GroupId(position as u32);
            if let Some(domain) = self.spread_domain(id, node) {
                self.topology.add_node_to_group(id, domain);
            }
        }
    }

    /// The domain in which a zonal spread counts the node; `None` if the spread does not count the node.
    pub(super) fn spread_domain(&self, id: GroupId, node: usize) -> Option<usize> {
        let group = self.topology.group(id);
        let is_zonal_spread = !group.is_hostname && matches!(group.id.kind, Kind::Spread { .. });
        if !is_zonal_spread || !self.topology.is_eligible(id, node) {
            return None;
        }
        self.nodes[node].facts.domains[group.id.key]
    }

    fn count_bound_pods(&mut self, problem: &Problem) {
        if self.topology.groups.is_empty() {
            return;
        }
        let mut known: FxHashMap<*const PodSpec, Links> = FxHashMap::default();
        for node in 0..self.nodes.len() {
            for pod in &problem.nodes[self.nodes[node].facts.id].pods {
                let links = known.entry(Arc::as_ptr(&pod.spec)).or_insert_with(|| Links {
                    matched: self.topology.matching(&pod.spec.namespace, &pod.spec.labels),
                    keeps_away: (pod.spec.anti_affinity.iter())
                        .map(|term| self.topology.affinity_group(&pod.spec, term, true))
                        .collect(),
                });
                let matched = links.matched.clone();
                let keeps_away = links.keeps_away.clone();
                self.count_bound(node, &matched, &keeps_away, 1, pod.is_terminating);
            }
        }
    }

    /// Adds the pods that are bound to a node to the counters of topology groups.
    pub(super) fn count_bound(
        &mut self,
        node: usize,
        matched: &[GroupId],
        keeps_away: &[GroupId],
        count: u32,
        is_terminating: bool,
    ) {
        for group in keeps_away {
            self.topology.group_mut(*group).stated_by_bound += count;
            *Arc::make_mut(&mut self.nodes[node].facts).stated.entry(*group).or_insert(0) += count;
            if !is_terminating {
                self.own_on_node(*group, node, count);
                *Arc::make_mut(&mut self.nodes[node].facts).owners.entry(*group).or_insert(0) += count;
            }
        }
        for group in matched.iter().filter(|_| !is_terminating) {
            if self.count_on_node(*group, node, count) {
                *Arc::make_mut(&mut self.nodes[node].facts).matched.entry(*group).or_insert(0) += count;
            }
        }
    }
}

fn insert_values(values: &mut BTreeSet<Arc<str>>, requirement: Option<&Requirement>) {
    if let Some(requirement) = requirement.filter(|requirement| !requirement.complement) {
        for value in &requirement.values {
            if !values.contains(value) {
                values.insert(value.clone());
            }
        }
    }
}

fn intern_bound_anti_affinity(problem: &Problem, topology: &mut Topology) {
    let mut seen: FxHashMap<*const PodSpec, ()> = FxHashMap::default();
    for pod in problem.nodes.iter().flat_map(|node| &node.pods) {
        if !pod.spec.anti_affinity.is_empty() && seen.insert(Arc::as_ptr(&pod.spec), ()).is_none() {
            for term in &pod.spec.anti_affinity {
                topology.affinity_group(&pod.spec, term, true);
            }
        }
    }
}
