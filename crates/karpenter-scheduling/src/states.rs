//! Requirement states: which instance types and offerings remain for a planned node after its requirements were
//! narrowed. Equal states are stored once and have one id (interning).
//!
//! Pods, volumes and topology narrow the requirements of a NodeClaim step by step. Only few distinct results occur, so
//! each is evaluated against the catalog once and then shared. After that, adding a pod to a NodeClaim is a table
//! lookup.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::problem::Problem;
use karpenter_model::requirements::{Requirement, Requirements};
use rustc_hash::FxHashMap;

use crate::bits::Bits;
use crate::ledger::Prepared;
use crate::reservations::ReservedOffering;
use crate::templates::catalog;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StateId(pub(crate) u32);

/// The id of a set of requirements that is added to a node; equal sets have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReqId(pub(crate) u32);

impl ReqId {
    pub(crate) const NONE: Self = Self(0);
}

/// The number of requirement states and requirement sets at one time, so that those added later can be dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    pub(crate) states: StateId,
    pub(crate) added: ReqId,
}

#[derive(Debug)]
pub(crate) struct State {
    /// A permanent number of the requirement state. Its id may change after [`States::drop_since`]; this number does
    /// not.
    serial: u32,
    pub(crate) template: usize,
    pub(crate) requirements: Requirements,
    /// The instance types that remain, each with at least one available offering.
    pub(crate) types: Vec<StateType>,
    /// The instance types such that no other type in `types` has at least the same free amount of every resource.
    pub(crate) maximal: Vec<usize>,
    /// The reserved offerings that remain, in the order of `types`.
    pub(crate) reserved: Vec<ReservedOffering>,
    /// Like `maximal`, but only for instance types that need no reservation; filled only if some offering is reserved.
    pub(crate) maximal_unreserved: Vec<usize>,
    offers: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StateType {
    /// Index into `Template::types`.
    pub(crate) index: usize,
    /// The price of the cheapest remaining offering that needs no reservation; if every offering needs one, the price
    /// of the cheapest.
    pub(crate) price: f64,
    pub(crate) offering: u32,
    pub(crate) has_unreserved: bool,
    offers: (u32, u32),
}

#[derive(Debug, Clone)]
pub(crate) struct States {
    problem: Arc<Problem>,
    prepared: Arc<Prepared>,
    states: Vec<Arc<State>>,
    index: FxHashMap<(usize, Requirements), StateId>,
    added: Vec<Requirements>,
    added_index: FxHashMap<Requirements, ReqId>,
    steps: FxHashMap<(StateId, ReqId), Option<StateId>>,
    joins: FxHashMap<(ReqId, ReqId), ReqId>,
    base: Vec<Option<StateId>>,
    /// Results of evaluations against the catalog. They do not depend on a simulation, so they are kept when ids are
    /// dropped.
    evaluated: FxHashMap<(usize, Requirements), Option<Arc<State>>>,
    /// The domains of a topology key in which a node may launch, by (serial number of the requirement state, key).
    domains: FxHashMap<(u32, usize), Bits>,
}

impl States {
    pub(crate) fn new(problem: Arc<Problem>, prepared: Arc<Prepared>) -> Self {
        let count = prepared.templates.len();
        let mut states = Self {
            problem,
            prepared,
            states: Vec::new(),
            index: FxHashMap::default(),
            added: vec![Requirements::new()],
            added_index: FxHashMap::default(),
            steps: FxHashMap::default(),
            joins: FxHashMap::default(),
            base: Vec::new(),
            evaluated: FxHashMap::default(),
            domains: FxHashMap::default(),
        };
        states.added_index.insert(Requirements::new(), ReqId::NONE);
        for position in 0..count {
            let base = states.build_base(position);
            states.base.push(base);
        }
        states
    }

    /// The current number of requirement states and requirement sets, for [`States::drop_since`].
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint { states: StateId(self.states.len() as u32), added: ReqId(self.added.len() as u32) }
    }

    /// Drops ids that were assigned after a checkpoint, so that ids do not depend on earlier simulations.
    pub(crate) fn drop_since(&mut self, checkpoint: Checkpoint) {
        self.states.truncate(checkpoint.states.0 as usize);
        self.added.truncate(checkpoint.added.0 as usize);
        self.index.retain(|_, id| *id < checkpoint.states);
        self.added_index.retain(|_, id| *id < checkpoint.added);
        self.steps.retain(|(state, added), found| {
            *state < checkpoint.states
                && *added < checkpoint.added
                && found.is_none_or(|found| found < checkpoint.states)
        });
        self.joins.retain(|(a, b), joined| {
            *a < checkpoint.added && *b < checkpoint.added && *joined < checkpoint.added
        });
    }

    pub(crate) fn get(&self, id: StateId) -> &State {
        &self.states[id.0 as usize]
    }

    /// The state of a new node of a template; `None` if the requirements of the NodePool leave no instance
    /// type.
    pub(crate) fn base(&self, template: usize) -> Option<StateId> {
        self.base[template]
    }

    pub(crate) fn intern(&mut self, requirements: &Requirements) -> ReqId {
        if let Some(id) = self.added_index.get(requirements) {
            return *id;
        }
        let id = ReqId(self.added.len() as u32);
        self.added.push(requirements.clone());
        self.added_index.insert(requirements.clone(), id);
        id
    }

    pub(crate) fn added(&self, id: ReqId) -> &Requirements {
        &self.added[id.0 as usize]
    }

    /// The id of the union of two sets of requirements.
    pub(crate) fn join(&mut self, a: ReqId, b: ReqId) -> ReqId {
        if a == ReqId::NONE || a == b {
            return b;
        }
        if b == ReqId::NONE {
            return a;
        }
        if let Some(id) = self.joins.get(&(a, b)) {
            return *id;
        }
        let mut both = self.added(a).clone();
        both.extend(&self.added(b).clone());
        let id = self.intern(&both);
        self.joins.insert((a, b), id);
        id
    }

    /// The state after adding requirements, or `None` if no instance type is left.
    pub(crate) fn add(&mut self, state: StateId, added: ReqId) -> Option<StateId> {
        if added == ReqId::NONE {
            return Some(state);
        }
        if let Some(result) = self.steps.get(&(state, added)) {
            return *result;
        }
        let result = self.derive(state, added);
        self.steps.insert((state, added), result);
        result
    }

    /// Restricts one label key to the given values; returns the resulting state, or `None` if no instance type is left.
    pub(crate) fn narrow<'a>(
        &mut self,
        state: StateId,
        key: &Arc<str>,
        values: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> Option<StateId> {
        let requirement = Requirement::in_values(key.clone(), values.into_iter().cloned());
        let added = self.intern(&[requirement].into_iter().collect());
        self.add(state, added)
    }

    /// The offerings of an instance type that remain in a requirement state, as indexes into the type's offerings.
    pub(crate) fn offers(&self, state: StateId, entry: &StateType) -> &[u32] {
        &self.get(state).offers[entry.offers.0 as usize..entry.offers.1 as usize]
    }

    pub(crate) fn instance_type(&self, template: usize, index: usize) -> &InstanceType {
        let template = &self.prepared.templates[template];
        &catalog(&self.problem, &self.problem.pools[template.pool])[template.types[index].index]
    }

    /// Those domains in `universe` (the values of a topology key) in which a node of this requirement state may launch.
    pub(crate) fn domains(&mut self, state: StateId, key: usize, name: &str, universe: &[Arc<str>]) -> &Bits {
        let serial = self.get(state).serial;
        if !self.domains.contains_key(&(serial, key)) {
            let bits = self.compute_domains(state, name, universe);
            self.domains.insert((serial, key), bits);
        }
        &self.domains[&(serial, key)]
    }

    fn compute_domains(&self, id: StateId, key: &str, universe: &[Arc<str>]) -> Bits {
        let state = self.get(id);
        let wanted = state.requirements.get(key);
        let mut bits = Bits::empty(universe.len());
        let mut insert = |value: &str| {
            if let Ok(position) = universe.binary_search_by(|candidate| (**candidate).cmp(value))
                && wanted.is_none_or(|requirement| requirement.has(value))
            {
                bits.insert(position);
            }
        };
        for entry in &state.types {
            let instance_type = self.instance_type(state.template, entry.index);
            let of_type = instance_type.requirements.get(key);
            for offering in self.offers(id, entry) {
                let of_offering = instance_type.offerings[*offering as usize].requirements.get(key);
                let requirement = match (of_type, of_offering) {
                    (Some(a), Some(b)) => Some(a.intersection(b)),
                    (a, b) => a.or(b).cloned(),
                };
                match requirement {
                    Some(requirement) if !requirement.complement => {
                        requirement.values.iter().for_each(|value| insert(value));
                    }
                    Some(requirement) => {
                        universe
                            .iter()
                            .filter(|value| requirement.has(value))
                            .for_each(|value| insert(value));
                    }
                    // If neither the instance type nor its offerings define the key, the NodePool's label determines
                    // the domain.
                    None if wanted.is_some() => universe.iter().for_each(|value| insert(value)),
                    None => {}
                }
            }
        }
        bits
    }

    fn build_base(&mut self, position: usize) -> Option<StateId> {
        let template = &self.prepared.templates[position];
        let all: Vec<(usize, Vec<u32>)> = template
            .types
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.free.iter().all(|amount| *amount >= 0))
            .map(|(index, entry)| {
                let offerings = &self.instance_type(position, index).offerings;
                let is_available = |offer: &u32| offerings[*offer as usize].available;
                let available = match &entry.offerings {
                    Some(own) => own.iter().copied().filter(is_available).collect(),
                    None => (0..offerings.len() as u32).filter(is_available).collect(),
                };
                (index, available)
            })
            .collect();
        let requirements = template.requirements.clone();
        let state = self.evaluate(position, requirements, None, all.iter().map(|(i, o)| (*i, o.as_slice())));
        Some(self.admit(state?))
    }

    fn derive(&mut self, parent: StateId, added: ReqId) -> Option<StateId> {
        let template = self.get(parent).template;
        let mut requirements = self.get(parent).requirements.clone();
        if requirements.compatible(self.added(added), &self.problem.well_known).is_err() {
            return None;
        }
        requirements.extend(&self.added(added).clone());
        let named = (template, requirements);
        if let Some(id) = self.index.get(&named) {
            return Some(*id);
        }
        if let Some(known) = self.evaluated.get(&named) {
            let known = known.clone()?;
            return Some(self.admit(known));
        }
        let requirements = named.1;
        let changed: BTreeSet<Arc<str>> = self.added(added).keys().cloned().collect();
        let previous = self.get(parent);
        let survivors: Vec<(usize, Vec<u32>)> =
            previous.types.iter().map(|entry| (entry.index, self.offers(parent, entry).to_vec())).collect();
        let survivors = survivors.iter().map(|(i, o)| (*i, o.as_slice()));
        let state = self.evaluate(template, requirements, Some(&changed), survivors);
        Some(self.admit(state?))
    }

    /// Stores a requirement state and returns its id.
    fn admit(&mut self, state: Arc<State>) -> StateId {
        let id = StateId(self.states.len() as u32);
        self.index.insert((state.template, state.requirements.clone()), id);
        self.states.push(state);
        id
    }

    /// Filters instance types and offerings by `requirements`; if `changed` is given, checks only those keys.
    fn evaluate<'a>(
        &mut self,
        position: usize,
        requirements: Requirements,
        changed: Option<&BTreeSet<Arc<str>>>,
        candidates: impl Iterator<Item = (usize, &'a [u32])>,
    ) -> Option<Arc<State>> {
        let look_at: Requirements = match changed {
            Some(keys) => keys.iter().filter_map(|key| requirements.get(key).cloned()).collect(),
            None => requirements.clone(),
        };
        let mut types = Vec::new();
        let mut offers = Vec::new();
        let mut reserved: Vec<ReservedOffering> = Vec::new();
        let catalog_index = self.problem.pools[self.prepared.templates[position].pool].catalog;
        for (index, candidate_offers) in candidates {
            let instance_type = self.instance_type(position, index);
            if !instance_type.requirements.intersects(&look_at) {
                continue;
            }
            let start = offers.len() as u32;
            let mut best: Option<(bool, f64, u32)> = None;
            for offer in candidate_offers {
                let offering = &instance_type.offerings[*offer as usize];
                if !self.offering_matches(&requirements, &look_at, changed.is_some(), offering) {
                    continue;
                }
                offers.push(*offer);
                let in_catalog = self.prepared.templates[position].types[index].index;
                let reservation = self.prepared.reservations.of_offering(catalog_index, in_catalog, *offer);
                if let Some(reservation) = reservation {
                    let (price, has_capacity) = (offering.price_per_hour, offering.is_launchable());
                    reserved.push(ReservedOffering {
                        index,
                        offering: *offer,
                        price,
                        reservation,
                        has_capacity,
                    });
                }
                let rank = (reservation.is_some(), offering.price_per_hour, *offer);
                let is_better = best.is_none_or(|best: (bool, f64, u32)| {
                    let incumbent = &instance_type.offerings[best.2 as usize];
                    let by_price = (rank.0, rank.1).partial_cmp(&(best.0, best.1));
                    // Equal prices are ordered by labels, so that the order does not depend on the catalog.
                    by_price
                        .unwrap_or(Ordering::Equal)
                        .then_with(|| offering.requirements.cmp(&incumbent.requirements))
                        == Ordering::Less
                });
                if is_better {
                    best = Some(rank);
                }
            }
            if let Some((is_reserved, price, offering)) = best {
                let (has_unreserved, offers) = (!is_reserved, (start, offers.len() as u32));
                types.push(StateType { index, price, offering, has_unreserved, offers });
            }
        }
        if types.is_empty() {
            self.evaluated.insert((position, requirements), None);
            return None;
        }
        let maximal = self.maximal(position, types.iter());
        let maximal_unreserved = if reserved.is_empty() {
            Vec::new()
        } else {
            self.maximal(position, types.iter().filter(|entry| entry.has_unreserved))
        };
        let state = Arc::new(State {
            serial: self.evaluated.len() as u32,
            template: position,
            requirements: requirements.clone(),
            types,
            maximal,
            reserved,
            maximal_unreserved,
            offers,
        });
        self.evaluated.insert((position, requirements), Some(state.clone()));
        Some(state)
    }

    fn offering_matches(
        &self,
        requirements: &Requirements,
        look_at: &Requirements,
        only_changed: bool,
        offering: &Offering,
    ) -> bool {
        if only_changed {
            look_at.first_conflict(&offering.requirements).is_none()
        } else {
            requirements.compatible(&offering.requirements, &self.problem.well_known).is_ok()
        }
    }

    fn maximal<'a>(&self, position: usize, types: impl Iterator<Item = &'a StateType>) -> Vec<usize> {
        let all = &self.prepared.templates[position].types;
        let mut order: Vec<usize> = types.map(|entry| entry.index).collect();
        // Large instance types are compared first, because a larger type dominates most others.
        order.sort_by(|a, b| all[*b].free.cmp(&all[*a].free).then(a.cmp(b)));
        let mut maximal: Vec<usize> = Vec::new();
        for candidate in order {
            let dominated = maximal.iter().any(|kept| {
                all[*kept].free.iter().zip(&all[candidate].free).all(|(kept, other)| kept >= other)
            });
            if !dominated {
                maximal.push(candidate);
            }
        }
        maximal
    }
}
