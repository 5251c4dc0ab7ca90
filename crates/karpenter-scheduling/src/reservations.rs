//! Reserved capacity: which planned nodes count on a slot of which reservations, and when no slot is left.
//!
//! A planned node may launch into any reservation it suits. Which one is decided when the plan is finished
//! ([`Ledger::assign`]); until then a matching keeps a slot free for every such node. What a node suits is worked out
//! again with every pod it gets. Nodes of pools with minValues hold a slot of everything they list instead, because they
//! may lose none of it. Nothing here chooses between nodes.
//! Upstream: reservationmanager.go and nodeclaim.go of pkg/controllers/provisioning/scheduling, which holds a slot of
//! every reservation of a node for the length of one round.

mod assign;
mod matching;

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::problem::{MinValuesPolicy, Mode, Options, Problem, ReservedMode};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ledger::{Claim, Ledger};
use crate::states::{StateId, StateType};
use matching::Matching;

/// Index into [`Table`].
pub(crate) type ReservationId = u32;

/// Reservations that one planned node may launch into, sorted.
pub(crate) type Held = SmallVec<[ReservationId; 2]>;

/// All reservations of the catalogs; empty for most problems, which then pay nothing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    reservations: Vec<Reservation>,
    /// By (catalog, type, offering).
    of_offering: FxHashMap<(usize, usize, u32), ReservationId>,
}

#[derive(Debug)]
struct Reservation {
    slots: u32,
    /// The label key and value that name it, where the offerings carry one.
    label: Option<(Arc<str>, Arc<str>)>,
}

/// Offerings of one reservation are known by its id; without one, by type and zone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Id { label: Arc<str>, id: Arc<str> },
    Place { instance_type: Arc<str>, zone: Option<Arc<str>> },
}

impl Name {
    fn of(instance_type: &InstanceType, offering: &Offering) -> Self {
        match offering.reservation() {
            Some((label, id)) => Self::Id { label: label.clone(), id: id.clone() },
            None => Self::Place { instance_type: instance_type.name.clone(), zone: offering.zone().cloned() },
        }
    }
}

impl Table {
    /// Offerings of one reservation that disagree about its room count as the smallest.
    pub(crate) fn of(problem: &Problem) -> Self {
        let mut rooms: BTreeMap<Name, u32> = BTreeMap::new();
        let mut members: Vec<((usize, usize, u32), Name)> = Vec::new();
        for (catalog, types) in problem.catalogs.iter().enumerate() {
            for (position, instance_type) in types.iter().enumerate() {
                for (offer, offering) in instance_type.offerings.iter().enumerate() {
                    if !offering.available || !offering.is_reserved() {
                        continue;
                    }
                    let room = offering.reservation_capacity.unwrap_or(0);
                    let known = rooms.entry(Name::of(instance_type, offering)).or_insert(room);
                    *known = (*known).min(room);
                    members.push(((catalog, position, offer as u32), Name::of(instance_type, offering)));
                }
            }
        }
        let names: Vec<&Name> = rooms.keys().collect();
        let number = |name: &Name| names.binary_search(&name).ok().map(|found| found as ReservationId);
        let of_offering =
            members.iter().filter_map(|(place, name)| number(name).map(|number| (*place, number))).collect();
        let reservations = rooms
            .iter()
            .map(|(name, slots)| match name {
                Name::Id { label, id } => {
                    Reservation { slots: *slots, label: Some((label.clone(), id.clone())) }
                }
                Name::Place { .. } => Reservation { slots: *slots, label: None },
            })
            .collect();
        Self { reservations, of_offering }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reservations.is_empty()
    }

    /// The reservation behind an offering; `None` if it needs none.
    pub(crate) fn of_offering(
        &self,
        catalog: usize,
        instance_type: usize,
        offering: u32,
    ) -> Option<ReservationId> {
        if self.is_empty() {
            return None;
        }
        self.of_offering.get(&(catalog, instance_type, offering)).copied()
    }
}

/// Whether any offering needs a reservation.
pub(crate) fn any(problem: &Problem) -> bool {
    let types = problem.catalogs.iter().flat_map(|catalog| catalog.iter());
    types.flat_map(|instance_type| &instance_type.offerings).any(Offering::is_reserved)
}

/// A reserved offering that is left in a state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedOffer {
    /// Index into `Template::types`.
    pub(crate) index: usize,
    pub(crate) offering: u32,
    pub(crate) price: f64,
    pub(crate) reservation: ReservationId,
    /// There was room before this round: what is taken now may come free again.
    pub(crate) has_room: bool,
}

/// Slots that are left.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    matching: Matching,
    /// Reservations that gain slots by what the question assumes, and so have room whatever the catalog says.
    is_credited: Vec<bool>,
    /// How often slots were given back: a pod that waits for one may fit then.
    pub(crate) releases: u64,
    /// How often anything changed.
    pub(crate) changes: u64,
    /// Whether pods that could use a reservation wait for a slot of it now.
    is_strict: bool,
    /// Whether those that wait in vain use other capacity in the end.
    falls_back: bool,
    /// Whether a node may give up its last reservation for one more pod.
    pub(crate) may_lose: bool,
    /// The last question about a fresh node was answered "no" only because reservations are full.
    pub(crate) was_full: bool,
    /// The last pod looked for a fresh node in vain and must wait for a reservation.
    pub(crate) awaited: bool,
}

impl Slots {
    /// `credits` are further slots by reservation id; unknown ids do not matter.
    pub(crate) fn new(table: &Table, options: &Options, credits: &BTreeMap<Arc<str>, u32>) -> Self {
        let credit =
            |of: &Reservation| of.label.as_ref().and_then(|(_, id)| credits.get(id)).copied().unwrap_or(0);
        let slots = table.reservations.iter().map(|one| one.slots.saturating_add(credit(one))).collect();
        let mode = options.reserved_mode;
        // Upstream's simulations give reservations up; for the price of a fleet that is the wrong way round.
        let may_lose = mode == ReservedMode::Fallback && options.mode == Mode::Compat;
        Self {
            matching: Matching::new(slots),
            is_credited: table.reservations.iter().map(|one| credit(one) > 0).collect(),
            releases: 0,
            changes: 0,
            is_strict: !may_lose,
            falls_back: mode != ReservedMode::Strict,
            may_lose,
            was_full: false,
            awaited: false,
        }
    }

    /// Slots that are held by others.
    pub(crate) fn take(&mut self, reservation: ReservationId, count: u32) {
        self.matching.lose(reservation, count);
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Lets pods that waited for a slot use other capacity; says whether that makes a difference.
    pub(crate) fn start_to_fall_back(&mut self) -> bool {
        let has_waited = self.is_strict && self.falls_back && !self.matching.is_empty();
        self.is_strict &= !self.falls_back;
        has_waited
    }

    /// Whether trying planned nodes once more can help a pod that found no place.
    pub(crate) fn may_fall_back_later(&self) -> bool {
        !self.matching.is_empty() && !self.is_strict && !self.may_lose
    }

    /// Whether an offering had room before this round.
    pub(crate) fn has_room(&self, offer: &ReservedOffer) -> bool {
        offer.has_room || self.is_credited[offer.reservation as usize]
    }
}

/// Reservations stand in the way of one more pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Ledger {
    /// Whether a node in this state that holds nothing stays without reservation whatever it becomes, so that only
    /// its other offerings matter.
    pub(crate) fn is_beyond_reservations(&self, held: &[ReservationId]) -> bool {
        held.is_empty() && !self.slots.is_strict() && self.slots.matching.is_used_up()
    }

    /// The reservations that a node may launch into if these are the types it may become.
    fn suited(&self, state: StateId, types: &[StateType]) -> Held {
        let mut suited = Held::new();
        for offer in &self.states.get(state).reserved {
            if self.slots.has_room(offer)
                && types.binary_search_by_key(&offer.index, |entry| entry.index).is_ok()
            {
                suited.push(offer.reservation);
            }
        }
        suited.sort_unstable();
        suited.dedup();
        suited
    }

    /// Whether nodes of a template hold a slot of every reservation they list.
    fn holds_all(&self, template: usize) -> bool {
        self.prepared.templates[template].has_min_values
            && self.options.min_values_policy == MinValuesPolicy::Strict
    }

    /// What a node holds if these are the types it may become.
    pub(crate) fn book(
        &self,
        state: StateId,
        types: &[StateType],
        held: &[ReservationId],
    ) -> Result<Held, Full> {
        let template = self.states.get(state).template;
        let mut possible = self.suited(state, types);
        let mut any_with_room = !possible.is_empty();
        if self.holds_all(template) {
            let matching = &self.slots.matching;
            possible.retain(|one| held.contains(one) || matching.spare(*one) > 0);
            // A node with too few reserved types for its pool's minValues cannot be launched into a reservation.
            if !possible.is_empty()
                && self.unmet_min_values(state, &self.usable(state, types, &possible)).is_some()
            {
                possible.clear();
                any_with_room = false;
            }
        } else if possible[..] != *held && !self.slots.matching.has_place(&possible, held) {
            possible.clear();
        }
        let is_kept = held.is_empty() || self.slots.may_lose;
        let waits = self.slots.is_strict() && any_with_room;
        if possible.is_empty() && (waits || !is_kept || !types.iter().any(|entry| entry.has_unreserved)) {
            return Err(Full);
        }
        Ok(possible)
    }

    /// The types that can be launched with these reservations, each at its price there; without any, those that need
    /// none. `types` must be in the order of the state.
    pub(crate) fn usable(
        &self,
        state: StateId,
        types: &[StateType],
        held: &[ReservationId],
    ) -> Vec<StateType> {
        let data = self.states.get(state);
        if data.reserved.is_empty() {
            return types.to_vec();
        }
        if held.is_empty() {
            return types.iter().filter(|entry| entry.has_unreserved).copied().collect();
        }
        let offer_of = |entry: &StateType| {
            let first = data.reserved.partition_point(|offer| offer.index < entry.index);
            data.reserved[first..]
                .iter()
                .take_while(|offer| offer.index == entry.index)
                .filter(|offer| self.slots.has_room(offer) && held.binary_search(&offer.reservation).is_ok())
                .min_by(|a, b| {
                    let of_type = self.states.instance_type(data.template, entry.index);
                    let labels =
                        |offer: &ReservedOffer| &of_type.offerings[offer.offering as usize].requirements;
                    a.price.total_cmp(&b.price).then_with(|| labels(a).cmp(labels(b)))
                })
        };
        types
            .iter()
            .filter_map(|entry| {
                let offer = offer_of(entry)?;
                let mut launched = *entry;
                (launched.price, launched.offering) = (offer.price, offer.offering);
                Some(launched)
            })
            .collect()
    }

    /// Works out again what a planned node holds.
    pub(crate) fn rebook(&mut self, claim: usize) {
        let state = self.claims[claim].state;
        if self.states.get(state).reserved.is_empty() && self.claims[claim].reservations.is_empty() {
            return;
        }
        let types = self.holding_of(&self.claims[claim]);
        let before = std::mem::take(&mut self.claims[claim].reservations);
        let after = self.book(state, &types, &before).unwrap_or_default();
        if before != after {
            self.slots.changes += 1;
            let holds_all = self.holds_all(self.states.get(state).template);
            self.exchange(holds_all, &before, &after);
        }
        self.claims[claim].reservations = after;
    }

    fn exchange(&mut self, holds_all: bool, before: &[ReservationId], after: &[ReservationId]) {
        let Slots { matching, releases, .. } = &mut self.slots;
        if holds_all {
            for one in before.iter().filter(|one| !after.contains(one)) {
                matching.let_go(*one);
                *releases += 1;
            }
            after.iter().filter(|one| !before.contains(one)).for_each(|one| matching.hold(*one));
            return;
        }
        matching.remove(before);
        // Fewer reservations to choose from leave no more room for others; none at all do.
        *releases += u64::from(after.is_empty());
        if !after.is_empty() {
            let added = matching.add(after);
            debug_assert!(added.is_some(), "a place was found for it");
        }
    }

    /// What the claim of a planned node asks for: a node that holds reservations uses them, any other stays out of
    /// them, so that no launch takes a slot that was counted for somebody else.
    pub(crate) fn final_requirements(&self, claim: &Claim) -> Requirements {
        let state = self.states.get(claim.state);
        let mut requirements = state.requirements.clone();
        if state.reserved.is_empty() {
            return requirements;
        }
        let reserved = [labels::CAPACITY_TYPE_RESERVED];
        if claim.reservations.is_empty() {
            requirements.add(Requirement::new(labels::CAPACITY_TYPE, Operator::NotIn, reserved));
            return requirements;
        }
        requirements.add(Requirement::in_values(labels::CAPACITY_TYPE, reserved));
        let known = &self.prepared.reservations.reservations;
        let labels: Option<Vec<_>> =
            claim.reservations.iter().map(|held| known[*held as usize].label.as_ref()).collect();
        let mut ids: BTreeMap<&Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for (label, id) in labels.into_iter().flatten() {
            ids.entry(label).or_default().push(id.clone());
        }
        for (label, ids) in ids {
            requirements.add(Requirement::in_values(label.clone(), ids));
        }
        requirements
    }
}
