//! The state of a planning run: existing nodes, planned nodes, and the counters that every placement changes.
//!
//! The ledger answers whether a pod fits on a node and how many copies fit, and it records placements. It does not
//! choose between nodes.
//!
//! Upstream: pkg/controllers/provisioning/scheduling/nodeclaim.go, existingnode.go.

mod changes;
pub(crate) mod filters;
pub(crate) mod fit;
mod free_capacity;
mod min_values;
mod nodes;
mod prepare;

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{MinValuesPolicy, Options, Problem};
use karpenter_model::taints::Toleration;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bits::Bits;
use crate::classes::Classes;
use crate::reservations::{ReservationSet, ReservationTable, Slots};
use crate::sequence::{Event, Target};
use crate::states::{ReqId, StateId, States};
use crate::templates::{self, Amounts, Dimensions, Template};
use crate::topology::{GroupId, Kind, Slot, Topology};

pub(crate) use changes::Arrival;
use filters::Eligibility;
use free_capacity::FreeCapacity;
pub(crate) use nodes::NodeSlot;
pub(crate) use prepare::free_capacity_of;

/// The parts of a problem that do not change during a planning run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) dimensions: Dimensions,
    pub(crate) templates: Vec<Template>,
    pub(crate) reservations: ReservationTable,
}

impl Prepared {
    fn new(problem: &Problem, movers: &[Arc<PodSpec>]) -> Self {
        let dimensions = Dimensions::of(problem, movers);
        let templates = templates::build(problem, &dimensions);
        Self { dimensions, templates, reservations: ReservationTable::of(problem) }
    }
}

/// A planned node.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) state: StateId,
    pub(crate) used: Amounts,
    pub(crate) pod_count: u32,
    /// The pods on the node, as (variant, volume alternative, count). A variant is a class of equal pods at one
    /// relaxation level.
    pub(crate) content: Vec<(usize, u8, u32)>,
    /// The index of an instance type that is known to fit all pods of the node.
    witness: usize,
    /// The node may use only instance types whose capacity, in each limited resource, is at most this; `None` if the
    /// NodePool's limits leave enough for any type.
    pub(crate) limit: Option<SmallVec<[i64; 2]>>,
    pub(crate) min_values_relaxed: bool,
    /// `minValues` that were lowered when the node's first pod was placed, because the instance types had too few
    /// values. Later pods must not lower them further.
    lowered_min_values: Vec<(Arc<str>, u32)>,
    /// The capacity reservations that the node may launch into.
    pub(crate) reservations: ReservationSet,
    /// Orders planned nodes with the same number of pods: nodes with a smaller rank are tried first.
    rank: i64,
}

impl Claim {
    /// Creates a planned node whose pods are all known, as the packer of cost mode produces it.
    pub(crate) fn packed(
        state: StateId,
        used: Amounts,
        pod_count: u32,
        content: Vec<(usize, u8, u32)>,
        witness: usize,
    ) -> Self {
        Self {
            state,
            used,
            pod_count,
            content,
            witness,
            limit: None,
            min_values_relaxed: false,
            lowered_min_values: Vec::new(),
            reservations: ReservationSet::new(),
            rank: 0,
        }
    }
}

/// The result of checking that one more pod fits on a node, and what the pod would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) state: StateId,
    pub(crate) alternative: u8,
    witness: usize,
    pub(crate) relaxed_min_values: bool,
}

#[derive(Clone)]
pub(crate) struct Ledger {
    /// The problem without its nodes and pods, which are compiled into `nodes` and `classes`.
    pub(crate) problem: Arc<Problem>,
    pub(crate) options: Options,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) states: States,
    pub(crate) topology: Topology,
    pub(crate) classes: Classes,
    /// Existing nodes in the order in which they are tried. A removed node stays in the list, but is not in `present`.
    pub(crate) nodes: Vec<NodeSlot>,
    pub(crate) present: Bits,
    closed_to_movers: Bits,
    free_capacity: FreeCapacity,
    /// Indexes of existing nodes on which this plan placed pods.
    touched: Vec<usize>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) log: Vec<Event>,
    /// Planned nodes in the order in which they are tried: (number of pods, rank, claim).
    pub(crate) by_pod_count: BTreeSet<(u32, i64, u32)>,
    ranks_given: i64,
    /// Counts how often a planned node gained a label key that its NodePool does not define. After that, pods that
    /// require the key may fit.
    pub(crate) label_definitions: u64,
    /// For each NodePool template: the remaining amount of its limited resources, and its remaining number of nodes.
    pub(crate) limits_left: Vec<SmallVec<[i64; 2]>>,
    pub(crate) nodes_left: Vec<Option<i64>>,
    pub(crate) slots: Slots,
    filters: FxHashMap<(GroupId, StateId), Arc<filters::FilterResult>>,
    node_matches: FxHashMap<(ReqId, u32), Arc<Bits>>,
    matches_of_variant: Vec<Option<Arc<Bits>>>,
    toleration_sets: Vec<Vec<Toleration>>,
    changes: changes::Changes,
    /// Whether pods with a zonal spread prefer domains (zones) from which the simulation removed pods of the same
    /// spread.
    pub(crate) prefers_vacated_domains: bool,
    /// Whether, at this moment, pods with a zonal spread may go only to domains from which the simulation removed pods
    /// of the same spread.
    pub(crate) only_vacated_domains: bool,
}

impl Ledger {
    pub(crate) fn new(problem: &Problem) -> Self {
        let (mut ledger, _) = Self::compile(problem, &[]);
        ledger.activate_all();
        ledger
    }

    pub(crate) fn claim_slot(&self, claim: usize) -> Slot {
        Slot((self.nodes.len() + claim) as u32)
    }

    /// Opens a planned node without pods.
    pub(crate) fn open(&mut self, state: StateId, limit: Option<SmallVec<[i64; 2]>>) -> usize {
        let claim = self.claims.len();
        let template = self.states.get(state).template;
        self.claims.push(Claim {
            state,
            used: SmallVec::from_elem(0, self.prepared.dimensions.len()),
            pod_count: 0,
            content: Vec::new(),
            witness: self.states.get(state).maximal[0],
            limit,
            min_values_relaxed: false,
            lowered_min_values: Vec::new(),
            reservations: ReservationSet::new(),
            rank: 0,
        });
        self.by_pod_count.insert((0, 0, claim as u32));
        if let Some(left) = &mut self.nodes_left[template] {
            *left -= 1;
        }
        claim
    }

    /// Records `count` pods of a variant of a pod class on a planned node.
    pub(crate) fn place_on_claim(&mut self, variant: usize, claim: usize, fit: Fit, count: u32) {
        let slot = self.claim_slot(claim);
        let before = self.claims[claim].state;
        if fit.relaxed_min_values && self.claims[claim].pod_count == 0 {
            self.claims[claim].lowered_min_values = self.lowered_min_values(variant, fit.state);
        }
        self.ranks_given += 1;
        let entry = &mut self.claims[claim];
        self.by_pod_count.remove(&(entry.pod_count, entry.rank, claim as u32));
        // Upstream sorts its list of nodes by pod count before every pod, with a sort that is stable for short lists.
        // To get the same order here, a new node ranks after other nodes with the same number of pods, and a node that
        // received a further pod ranks before them.
        entry.rank = if entry.pod_count == 0 && count == 1 { self.ranks_given } else { -self.ranks_given };
        entry.pod_count += count;
        self.by_pod_count.insert((entry.pod_count, entry.rank, claim as u32));
        entry.state = fit.state;
        entry.witness = fit.witness;
        entry.min_values_relaxed |= fit.relaxed_min_values;
        for (used, request) in entry.used.iter_mut().zip(&self.classes.variants[variant].requests) {
            *used = used.saturating_add(request.saturating_mul(i64::from(count)));
        }
        if before != fit.state {
            self.count_newly_pinned(claim, before, fit.state);
            let (known, now) =
                (&self.states.get(before).requirements, &self.states.get(fit.state).requirements);
            let is_new = |key: &Arc<str>| !known.has_key(key) && !self.problem.well_known.contains(key);
            if now.keys().any(is_new) {
                self.label_definitions += 1;
            }
        }
        match self.claims[claim].content.iter_mut().find(|(v, a, _)| *v == variant && *a == fit.alternative) {
            Some((_, _, present)) => *present += count,
            None => self.claims[claim].content.push((variant, fit.alternative, count)),
        }
        self.update_reservations(claim);
        self.count_on_claim(variant, slot, fit.state, count);
        // The node is pinned to one domain immediately; otherwise its pods may satisfy all constraints in no order of
        // binding.
        crate::pin::pin_claim(self, claim);
        let is_deferred = self.awaits_domain(variant, self.claims[claim].state);
        let (alternative, target) = (fit.alternative, Target::Claim(claim));
        self.log.push(Event { variant, alternative, target, count, is_deferred });
    }

    /// After a planned node was pinned to one domain, counts its earlier pods in that domain. If it was undecided
    /// whether a spread counts some of its pods, those are counted now as well.
    pub(crate) fn count_newly_pinned(&mut self, claim: usize, before: StateId, after: StateId) {
        for key in 0..self.topology.keys.len() {
            if self.topology.is_hostname(key) {
                continue;
            }
            let was_single = self.domains(before, key).single().is_some();
            let Some(domain) = self.domains(after, key).single() else { continue };
            for (variant, _, count) in self.claims[claim].content.clone() {
                let class = self.classes.variants[variant].class;
                for group in self.classes.classes[class].matched.clone() {
                    let counted = &self.topology.group(group).id;
                    if counted.key != key
                        || counted.kind == Kind::AntiAffinity
                        || (was_single && counted.filter.is_all())
                    {
                        continue;
                    }
                    let was_counted = was_single && self.filter_accepts(group, before);
                    if !was_counted && self.filter_accepts(group, after) {
                        self.topology.count_domains(group, [domain], count);
                    }
                }
            }
        }
    }

    fn count_on_claim(&mut self, variant: usize, slot: Slot, state: StateId, count: u32) {
        let class = self.classes.variants[variant].class;
        for position in 0..self.classes.classes[class].matched.len() {
            let group = self.classes.classes[class].matched[position];
            if !self.filter_accepts(group, state) {
                continue;
            }
            if self.topology.group(group).is_hostname {
                self.topology.count_host(group, slot, count);
                continue;
            }
            let key = self.topology.group(group).id.key;
            let domains = self.domains(state, key);
            if self.topology.group(group).id.kind == Kind::AntiAffinity {
                self.topology.count_domains(group, domains.iter(), count);
            } else if let Some(domain) = domains.single() {
                self.topology.count_domains(group, [domain], count);
            }
        }
        for position in 0..self.classes.variants[variant].owned.len() {
            let owned = &self.classes.variants[variant].owned[position];
            if owned.kind != Kind::AntiAffinity || !owned.is_required {
                continue;
            }
            let (group, key, is_hostname) = (owned.group, owned.key, owned.is_hostname);
            if is_hostname {
                self.topology.own_host(group, slot, count);
            } else {
                let domains = self.domains(state, key);
                self.topology.own_domains(group, domains.iter(), count);
            }
        }
    }

    /// Whether some constraint that selects the pod cannot count it yet, because its node may still launch in several
    /// domains.
    fn awaits_domain(&mut self, variant: usize, state: StateId) -> bool {
        let class = self.classes.variants[variant].class;
        (0..self.classes.classes[class].matched.len()).any(|position| {
            let id = self.classes.classes[class].matched[position];
            let group = self.topology.group(id);
            let (key, kind, sees_all) = (group.id.key, group.id.kind, group.id.filter.is_all());
            !group.is_hostname
                && kind != Kind::AntiAffinity
                && (self.domains(state, key).single().is_none()
                    || (!sees_all && self.filter_result(id, state).eligibility == Eligibility::Undecided))
        })
    }

    /// The domains (values) of a zone-like key in which a planned node with these requirements may launch.
    pub(crate) fn domains(&mut self, state: StateId, key: usize) -> Bits {
        let names = (&self.topology.keys[key], &self.topology.domains[key]);
        let mut domains = self.states.domains(state, key, names.0, names.1).clone();
        if let Some(present_domains) = self.topology.present_domains(key) {
            domains.retain(present_domains);
        }
        domains
    }

    pub(crate) fn may_relax_min_values(&self) -> bool {
        self.options.min_values_policy == MinValuesPolicy::BestEffort
    }
}
