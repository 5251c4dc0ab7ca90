//! Changes of a ledger: a simulation removes nodes temporarily; a commit changes nodes and pods permanently.
//!
//! At the end of a simulation, all changes are undone except cached facts about labels and instance types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::{Node, Options};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Ledger;
use crate::bits::Bits;
use crate::classes;
use crate::reservations::{ReservationId, Slots};
use crate::states::Checkpoint;
use crate::topology::GroupId;

/// The saved state to which the end of a simulation returns, and the nodes that the running simulation removed.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    simulation: u64,
    is_simulating: bool,
    gone: Vec<usize>,
    limits_left: Vec<SmallVec<[i64; 2]>>,
    nodes_left: Vec<Option<i64>>,
    /// For each reservation: the number of slots that committed nodes hold.
    slots_taken: BTreeMap<ReservationId, u32>,
}

/// A node that a commit adds.
pub(crate) struct Arrival<'a> {
    /// The index in `Problem::nodes`.
    pub(crate) id: usize,
    /// Without `pods`.
    pub(crate) node: &'a Node,
    /// (class, count)
    pub(crate) pods: Vec<(usize, u32)>,
}

impl Changes {
    pub(super) fn start(ledger: &Ledger) -> Self {
        Self {
            limits_left: ledger.limits_left.clone(),
            nodes_left: ledger.nodes_left.clone(),
            ..Self::default()
        }
    }
}

impl Ledger {
    /// Whether a simulation is running.
    pub(crate) fn is_simulation(&self) -> bool {
        self.changes.is_simulating
    }

    /// Removes nodes until [`Ledger::end_simulation`] and prepares the classes of the queue for placement.
    pub(crate) fn begin_simulation(
        &mut self,
        gone: &[usize],
        options: Options,
        credits: &BTreeMap<Arc<str>, u32>,
    ) {
        self.changes.simulation += 1;
        self.changes.is_simulating = true;
        self.slots = Slots::new(&self.prepared.reservations, &options, credits);
        self.changes
            .slots_taken
            .iter()
            .for_each(|(reservation, count)| self.slots.take(*reservation, *count));
        self.options = options;
        self.topology.record();
        let simulation = self.changes.simulation;
        let mut stated: Vec<GroupId> = Vec::new();
        let mut wanted: BTreeSet<usize> = BTreeSet::new();
        for run in &self.classes.queue {
            if !wanted.insert(run.class) {
                continue;
            }
            for variant in &self.classes.variants[self.classes.classes[run.class].variants.clone()] {
                for owned in &variant.owned {
                    let group = self.topology.group_mut(owned.group);
                    if group.stated_in_simulation != simulation {
                        group.stated_in_simulation = simulation;
                        stated.push(owned.group);
                    }
                }
            }
        }
        for node in gone {
            self.remove_temporarily(*node);
            for group in &stated {
                if let Some(domain) = self.spread_domain(*group, *node) {
                    self.topology.remove_node_from_group(*group, domain);
                }
            }
        }
        self.changes.gone = gone.to_vec();
        let gone: Vec<_> = gone.iter().map(|node| &self.nodes[*node]).collect();
        classes::activate(&mut self.classes, &self.topology, &gone, wanted.into_iter(), |group| {
            let group = self.topology.group(group);
            group.stated_by_bound > 0 || group.stated_in_simulation == simulation
        });
    }

    /// Stops nodes from accepting moved pods, except the nodes in `open`. Nodes that did not accept them before stay
    /// closed. Returns the previous set of closed nodes.
    pub(crate) fn close_to_movers_except(&mut self, open: impl Iterator<Item = usize>) -> Bits {
        let mut closed = Bits::empty(self.nodes.len());
        (0..self.nodes.len()).for_each(|node| closed.insert(node));
        open.filter(|node| !self.closed_to_movers.contains(*node)).for_each(|node| closed.remove(node));
        std::mem::replace(&mut self.closed_to_movers, closed)
    }

    pub(crate) fn set_closed_to_movers(&mut self, closed: Bits) {
        self.closed_to_movers = closed;
    }

    /// Undoes the simulation.
    pub(crate) fn end_simulation(&mut self) {
        for node in std::mem::take(&mut self.touched) {
            for (variant, count) in std::mem::take(&mut self.nodes[node].content) {
                self.free_capacity.give_back(node, &self.classes.variants[variant].requests, count);
            }
        }
        self.topology.roll_back();
        for node in std::mem::take(&mut self.changes.gone) {
            self.present.insert(node);
            for (group, count) in &self.nodes[node].facts.stated {
                self.topology.group_mut(*group).stated_by_bound += count;
            }
        }
        self.claims.clear();
        self.log.clear();
        self.by_pod_count.clear();
        self.ranks_given = 0;
        self.label_definitions = 0;
        self.limits_left.clone_from(&self.changes.limits_left);
        self.nodes_left.clone_from(&self.changes.nodes_left);
        self.changes.is_simulating = false;
    }

    /// Drops what simulations cached after the checkpoint was taken.
    pub(crate) fn drop_since(&mut self, checkpoint: Checkpoint) {
        self.states.drop_since(checkpoint);
        self.filters.retain(|(_, state), _| *state < checkpoint.states);
        self.node_matches.retain(|(added, _), _| *added < checkpoint.added);
    }

    /// Removes a node and subtracts its pods from the counters. The caller updates the domains of spreads.
    fn remove_temporarily(&mut self, node: usize) {
        self.present.remove(node);
        let facts = self.nodes[node].facts.clone();
        self.topology.remove_node(&facts.domains);
        for (group, count) in &facts.matched {
            let data = self.topology.group(*group);
            let domain = if data.is_hostname { None } else { facts.domains[data.id.key] };
            self.topology.remove_matched(*group, domain, *count);
        }
        for (group, count) in &facts.owners {
            let data = self.topology.group(*group);
            if let Some(domain) = facts.domains[data.id.key].filter(|_| !data.is_hostname) {
                self.topology.remove_owners(*group, domain, *count);
            }
        }
        for (group, count) in &facts.stated {
            self.topology.group_mut(*group).stated_by_bound -= count;
        }
    }

    /// Applies a result permanently: removes nodes, binds pods to nodes, and adds nodes.
    pub(crate) fn commit(
        &mut self,
        gone: &[usize],
        placed: &[(usize, usize, u32)],
        arrivals: &[Arrival<'_>],
    ) {
        for node in gone {
            for group in 0..self.topology.groups.len() as u32 {
                if let Some(domain) = self.spread_domain(GroupId(group), *node) {
                    self.topology.remove_node_from_group(GroupId(group), domain);
                }
            }
            self.remove_temporarily(*node);
            classes::remove_node(&mut self.classes, &self.nodes[*node]);
        }
        for (node, class, count) in placed {
            self.bind(*node, *class, *count);
        }
        let first = self.nodes.len();
        for arrival in arrivals {
            self.push_node(arrival.id, arrival.node);
        }
        self.topology.update_present_domains();
        self.extend_matches(first);
        for (node, arrival) in (first..).zip(arrivals) {
            self.add_node_to_spreads(node);
            classes::add_node(&mut self.classes, &self.nodes[node]);
            for (class, count) in &arrival.pods {
                self.bind(node, *class, *count);
            }
        }
    }

    /// Subtracts amounts of the limited resources, and a number of nodes, from what remains of a NodePool's limits.
    pub(crate) fn charge(&mut self, template: usize, amounts: &[i64], nodes: i64) {
        let limits = &mut self.changes.limits_left[template];
        limits.iter_mut().zip(amounts).for_each(|(left, amount)| *left -= amount);
        if let Some(left) = &mut self.changes.nodes_left[template] {
            *left -= nodes;
        }
        self.limits_left.clone_from(&self.changes.limits_left);
        self.nodes_left.clone_from(&self.changes.nodes_left);
    }

    /// Records that a committed node uses a slot of a reservation.
    pub(crate) fn take_slot(&mut self, reservation: ReservationId) {
        *self.changes.slots_taken.entry(reservation).or_insert(0) += 1;
    }

    fn bind(&mut self, node: usize, class: usize, count: u32) {
        let data = &self.classes.classes[class];
        let requests = &self.classes.variants[data.variants.start].requests;
        self.free_capacity.take(node, requests, count);
        let facts = Arc::make_mut(&mut self.nodes[node].facts);
        facts.ports.extend(data.spec.host_ports.iter().cloned());
        facts.attachments.extend(data.spec.volumes.attachments.iter().cloned());
        let (matched, keeps_away) = (data.matched_by_any.clone(), data.keeps_away.clone());
        self.count_bound(node, &matched, &keeps_away, count, false);
    }

    /// Adds the nodes with index `first` and above to the cached sets of matching nodes.
    fn extend_matches(&mut self, first: usize) {
        let mut known = std::mem::take(&mut self.node_matches);
        for ((added, tolerations), bits) in &mut known {
            for node in first..self.nodes.len() {
                if self.node_matches_demand(node, *added, *tolerations) {
                    Arc::make_mut(bits).extend_to(node);
                }
            }
        }
        self.node_matches = known;
        self.matches_of_variant.iter_mut().for_each(|known| *known = None);
        let mut by_filter: FxHashMap<crate::topology::NodeFilter, Vec<usize>> = FxHashMap::default();
        for group in 0..self.topology.groups.len() {
            let filter = self.topology.groups[group].id.filter.clone();
            if filter.is_all() {
                continue;
            }
            let accepted = by_filter.entry(filter).or_insert_with_key(|filter| {
                let accepts = |node: &usize| {
                    let facts = &self.nodes[*node].facts;
                    filter.accepts(&facts.labels, &facts.taints)
                };
                (first..self.nodes.len()).filter(accepts).collect()
            });
            let eligible = self.topology.groups[group].eligible.get_or_insert_with(Bits::default);
            accepted.iter().for_each(|node| eligible.extend_to(*node));
        }
    }
}
