//! Reserved capacity: which planned nodes hold a slot of which reservation, and when a reservation is full.
//!
//! A planned node holds one slot of every reservation it could still launch into, because nobody knows yet which one
//! the launch will take. What it holds is worked out again with every pod it gets: slots it can use now are taken,
//! slots it can use no more are given back. Nothing here chooses between nodes.
//! Upstream: reservationmanager.go and nodeclaim.go of pkg/controllers/provisioning/scheduling.

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

/// Index into [`Table`].
pub(crate) type ReservationId = u32;

/// Reservations of one planned node, sorted.
pub(crate) type Held = SmallVec<[ReservationId; 2]>;

/// All reservations of the catalogs; empty for most problems, which then pay nothing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Slots, and the value of the id label where the offerings carry one.
    reservations: Vec<(u32, Option<Arc<str>>)>,
    /// By (catalog, type, offering).
    of_offering: FxHashMap<(usize, usize, u32), ReservationId>,
}

/// Offerings of one reservation are known by its id; without one, by type and zone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Id(Arc<str>),
    Place { instance_type: Arc<str>, zone: Option<Arc<str>> },
}

impl Name {
    fn of(instance_type: &InstanceType, offering: &Offering) -> Self {
        let id = offering.requirements.get(labels::AWS_CAPACITY_RESERVATION_ID);
        match id.and_then(Requirement::single_value) {
            Some(id) => Self::Id(id.clone()),
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
            .map(|(name, room)| match name {
                Name::Id(id) => (*room, Some(id.clone())),
                Name::Place { .. } => (*room, None),
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
    free: Vec<u32>,
    /// Reservations that gain slots by what the question assumes, and so have room whatever the catalog says.
    is_credited: Vec<bool>,
    /// How often slots were given back: a pod that waits for one may fit then.
    pub(crate) releases: u64,
    /// How often anything changed.
    pub(crate) changes: u64,
    pub(crate) mode: ReservedMode,
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
        let mode = options.reserved_mode;
        let credit = |id: &Option<Arc<str>>| id.as_ref().and_then(|id| credits.get(id)).copied().unwrap_or(0);
        Self {
            free: table.reservations.iter().map(|(room, id)| room.saturating_add(credit(id))).collect(),
            is_credited: table.reservations.iter().map(|(_, id)| credit(id) > 0).collect(),
            releases: 0,
            changes: 0,
            mode,
            // Upstream's simulations give reservations up; for the price of a fleet that is the wrong way round.
            may_lose: mode == ReservedMode::Fallback && options.mode == Mode::Compat,
            was_full: false,
            awaited: false,
        }
    }

    /// Slots that are held by others.
    pub(crate) fn take(&mut self, reservation: ReservationId, count: u32) {
        if let Some(free) = self.free.get_mut(reservation as usize) {
            *free = free.saturating_sub(count);
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.mode == ReservedMode::Strict
    }

    /// Whether a second look at planned nodes can help a pod that found no place.
    pub(crate) fn may_fall_back_later(&self) -> bool {
        !self.free.is_empty() && !self.is_strict() && !self.may_lose
    }

    /// Whether an offering had room before this round.
    fn has_room(&self, offer: &ReservedOffer) -> bool {
        offer.has_room || self.is_credited[offer.reservation as usize]
    }

    fn are_used_up(&self) -> bool {
        self.free.iter().all(|free| *free == 0)
    }
}

/// Reservations stand in the way of one more pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Ledger {
    /// Whether a node in this state that holds nothing stays without reservation whatever it becomes, so that only
    /// its other offerings matter.
    pub(crate) fn is_beyond_reservations(&self, held: &[ReservationId]) -> bool {
        held.is_empty() && !self.slots.is_strict() && self.slots.are_used_up()
    }

    /// What a node holds if these are the types it may become.
    pub(crate) fn book(
        &self,
        state: StateId,
        types: &[StateType],
        held: &[ReservationId],
    ) -> Result<Held, Full> {
        let data = self.states.get(state);
        let mut possible = Held::new();
        let mut any_with_room = false;
        for offer in &data.reserved {
            if !self.slots.has_room(offer)
                || types.binary_search_by_key(&offer.index, |entry| entry.index).is_err()
            {
                continue;
            }
            any_with_room = true;
            if held.contains(&offer.reservation) || self.slots.free[offer.reservation as usize] > 0 {
                possible.push(offer.reservation);
            }
        }
        possible.sort_unstable();
        possible.dedup();
        // A node with too few reserved types for its pool's minValues cannot be launched into a reservation.
        if !possible.is_empty()
            && self.prepared.templates[data.template].has_min_values
            && self.options.min_values_policy == MinValuesPolicy::Strict
            && self.unmet_min_values(state, &self.usable(state, types, &possible)).is_some()
        {
            possible.clear();
            any_with_room = false;
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
                .filter(|offer| self.slots.has_room(offer) && held.contains(&offer.reservation))
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
        for reservation in before.iter().filter(|held| !after.contains(held)) {
            self.slots.free[*reservation as usize] += 1;
            self.slots.releases += 1;
        }
        for reservation in after.iter().filter(|held| !before.contains(held)) {
            self.slots.free[*reservation as usize] -= 1;
        }
        if before != after {
            self.slots.changes += 1;
        }
        self.claims[claim].reservations = after;
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
        let ids: Vec<Arc<str>> =
            claim.reservations.iter().filter_map(|held| known[*held as usize].1.clone()).collect();
        if !ids.is_empty() {
            requirements.add(Requirement::in_values(labels::AWS_CAPACITY_RESERVATION_ID, ids));
        }
        requirements
    }
}
