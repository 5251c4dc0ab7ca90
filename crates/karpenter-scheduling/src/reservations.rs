//! Capacity reservations: tracks which planned nodes hold a slot (one reserved instance) of which reservations, and
//! when all slots are taken.
//!
//! A planned node may launch into any compatible reservation. [`Ledger::assign`] chooses the reservations when the plan
//! is finished; until then, a matching guarantees a slot for every such node. Each added pod changes which reservations
//! are compatible, so they are computed again. A node of a NodePool with `minValues` holds a slot of every reservation
//! that it lists instead, because it must not lose any. This module does not choose between nodes.
//!
//! Upstream: pkg/controllers/provisioning/scheduling/reservationmanager.go, nodeclaim.go. Upstream holds a
//! slot of every reservation of a node during one planning run.

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

/// Index into [`ReservationTable`].
pub(crate) type ReservationId = u32;

/// The ids of reservations that one planned node may launch into, sorted.
pub(crate) type ReservationSet = SmallVec<[ReservationId; 2]>;

/// All reservations of the catalogs; empty for most problems, which then have no extra cost.
#[derive(Debug, Default)]
pub(crate) struct ReservationTable {
    reservations: Vec<Reservation>,
    /// The reservation of an offering, by (catalog, instance type, offering).
    of_offering: FxHashMap<(usize, usize, u32), ReservationId>,
}

#[derive(Debug)]
struct Reservation {
    slots: u32,
    /// The label key and value that identify the reservation; `None` if its offerings lack the label.
    label: Option<(Arc<str>, Arc<str>)>,
}

/// What identifies the reservation of an offering: its reservation id, or its instance type and zone if it has no id.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Id { label: Arc<str>, id: Arc<str> },
    TypeAndZone { instance_type: Arc<str>, zone: Option<Arc<str>> },
}

impl Name {
    fn of(instance_type: &InstanceType, offering: &Offering) -> Self {
        match offering.reservation() {
            Some((label, id)) => Self::Id { label: label.clone(), id: id.clone() },
            None => Self::TypeAndZone {
                instance_type: instance_type.name.clone(),
                zone: offering.zone().cloned(),
            },
        }
    }
}

impl ReservationTable {
    /// Collects the reservations of a problem. If offerings of one reservation state different capacities, the smallest
    /// one is used.
    pub(crate) fn of(problem: &Problem) -> Self {
        let mut free_capacity: BTreeMap<Name, u32> = BTreeMap::new();
        let mut members: Vec<((usize, usize, u32), Name)> = Vec::new();
        for (catalog, types) in problem.catalogs.iter().enumerate() {
            for (position, instance_type) in types.iter().enumerate() {
                for (offer, offering) in instance_type.offerings.iter().enumerate() {
                    if !offering.available || !offering.is_reserved() {
                        continue;
                    }
                    let room = offering.reservation_capacity.unwrap_or(0);
                    let known = free_capacity.entry(Name::of(instance_type, offering)).or_insert(room);
                    *known = (*known).min(room);
                    members.push(((catalog, position, offer as u32), Name::of(instance_type, offering)));
                }
            }
        }
        let names: Vec<&Name> = free_capacity.keys().collect();
        let number = |name: &Name| names.binary_search(&name).ok().map(|found| found as ReservationId);
        let of_offering =
            members.iter().filter_map(|(place, name)| number(name).map(|number| (*place, number))).collect();
        let reservations = free_capacity
            .iter()
            .map(|(name, slots)| match name {
                Name::Id { label, id } => {
                    Reservation { slots: *slots, label: Some((label.clone(), id.clone())) }
                }
                Name::TypeAndZone { .. } => Reservation { slots: *slots, label: None },
            })
            .collect();
        Self { reservations, of_offering }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reservations.is_empty()
    }

    /// The reservation of an offering; `None` if the offering needs no reservation.
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

/// A reserved offering of a requirement state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedOffering {
    /// Index into `Template::types`.
    pub(crate) index: usize,
    pub(crate) offering: u32,
    pub(crate) price: f64,
    pub(crate) reservation: ReservationId,
    /// Whether the reservation had a free slot before this planning run. A slot that is taken now may be released
    /// during the run.
    pub(crate) has_capacity: bool,
}

/// The free slots of all reservations.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    matching: Matching,
    /// For each reservation: whether the simulation adds slots to it. Such a reservation has capacity whatever the
    /// catalog says.
    is_credited: Vec<bool>,
    /// How often reservation slots were released. A release may let a pod fit that waits for a slot.
    pub(crate) releases: u64,
    /// How often the assignment of reservation slots changed.
    pub(crate) changes: u64,
    /// Whether a pod that could use a reservation currently waits for one of its slots instead of using other capacity.
    is_strict: bool,
    /// Whether, at the end, pods that waited for a reservation slot may use other capacity.
    falls_back: bool,
    /// Whether a node may give up its last reservation so that one more pod fits.
    pub(crate) may_drop_reservation: bool,
    /// Whether the last check of a new node failed only because all reservations were full.
    pub(crate) reservation_was_full: bool,
    /// Whether the last pod found no new node because it waits for a reservation.
    pub(crate) awaits_reservation: bool,
}

impl Slots {
    /// `credits` are additional slots per reservation id; ids that no offering has are ignored.
    pub(crate) fn new(
        table: &ReservationTable,
        options: &Options,
        credits: &BTreeMap<Arc<str>, u32>,
    ) -> Self {
        let credit =
            |of: &Reservation| of.label.as_ref().and_then(|(_, id)| credits.get(id)).copied().unwrap_or(0);
        let slots = table.reservations.iter().map(|one| one.slots.saturating_add(credit(one))).collect();
        let mode = options.reserved_mode;
        // Upstream's simulations let nodes give up reservations; in cost mode that would make the fleet more expensive.
        let may_drop_reservation = mode == ReservedMode::Fallback && options.mode == Mode::Compat;
        Self {
            matching: Matching::new(slots),
            is_credited: table.reservations.iter().map(|one| credit(one) > 0).collect(),
            releases: 0,
            changes: 0,
            is_strict: !may_drop_reservation,
            falls_back: mode != ReservedMode::Strict,
            may_drop_reservation,
            reservation_was_full: false,
            awaits_reservation: false,
        }
    }

    /// Subtracts reservation slots that nodes outside this plan hold.
    pub(crate) fn take(&mut self, reservation: ReservationId, count: u32) {
        self.matching.shrink(reservation, count);
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Allows pods that waited for a reservation slot to use other capacity; returns whether there are such pods.
    pub(crate) fn start_fallback(&mut self) -> bool {
        let has_waited = self.is_strict && self.falls_back && !self.matching.is_empty();
        self.is_strict &= !self.falls_back;
        has_waited
    }

    /// Whether an unschedulable pod may fit on a planned node if that node gives up its reservation.
    pub(crate) fn may_retry_without_reservation(&self) -> bool {
        !self.matching.is_empty() && !self.is_strict && !self.may_drop_reservation
    }

    /// Whether the reservation of an offering had a free slot before this planning run.
    pub(crate) fn has_capacity(&self, offer: &ReservedOffering) -> bool {
        offer.has_capacity || self.is_credited[offer.reservation as usize]
    }
}

/// The pod cannot be placed, because all reservations that it could use are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservationFull;

impl Ledger {
    /// Whether a node that holds no reservation can never get one, so that only its unreserved offerings count.
    pub(crate) fn cannot_use_reservations(&self, held: &[ReservationId]) -> bool {
        held.is_empty() && !self.slots.is_strict() && self.slots.matching.is_used_up()
    }

    /// The reservations into which a node may launch, given its instance types.
    fn compatible_reservations(&self, state: StateId, types: &[StateType]) -> ReservationSet {
        let mut compatible_reservations = ReservationSet::new();
        for offer in &self.states.get(state).reserved {
            if self.slots.has_capacity(offer)
                && types.binary_search_by_key(&offer.index, |entry| entry.index).is_ok()
            {
                compatible_reservations.push(offer.reservation);
            }
        }
        compatible_reservations.sort_unstable();
        compatible_reservations.dedup();
        compatible_reservations
    }

    /// Whether nodes of a NodePool template hold a slot of every reservation that they list.
    fn holds_every_reservation(&self, template: usize) -> bool {
        self.prepared.templates[template].has_min_values
            && self.options.min_values_policy == MinValuesPolicy::Strict
    }

    /// The reservations that a node holds, given its instance types.
    pub(crate) fn reservations_for(
        &self,
        state: StateId,
        types: &[StateType],
        held: &[ReservationId],
    ) -> Result<ReservationSet, ReservationFull> {
        let template = self.states.get(state).template;
        let mut possible = self.compatible_reservations(state, types);
        let mut any_with_room = !possible.is_empty();
        if self.holds_every_reservation(template) {
            let matching = &self.slots.matching;
            possible.retain(|one| held.contains(one) || matching.spare(*one) > 0);
            // If the reserved instance types do not meet the `minValues` of the NodePool, the node cannot launch into a
            // reservation.
            if !possible.is_empty()
                && self.unmet_min_values(state, &self.usable(state, types, &possible)).is_some()
            {
                possible.clear();
                any_with_room = false;
            }
        } else if possible[..] != *held && !self.slots.matching.has_slot_for(&possible, held) {
            possible.clear();
        }
        let is_kept = held.is_empty() || self.slots.may_drop_reservation;
        let waits = self.slots.is_strict() && any_with_room;
        if possible.is_empty() && (waits || !is_kept || !types.iter().any(|entry| entry.has_unreserved)) {
            return Err(ReservationFull);
        }
        Ok(possible)
    }

    /// The instance types that can launch into one of these reservations, each at its reserved price; if there are no
    /// reservations, the instance types that need none. `types` must be in the order of the requirement state.
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
                .filter(|offer| {
                    self.slots.has_capacity(offer) && held.binary_search(&offer.reservation).is_ok()
                })
                .min_by(|a, b| {
                    let of_type = self.states.instance_type(data.template, entry.index);
                    let labels =
                        |offer: &ReservedOffering| &of_type.offerings[offer.offering as usize].requirements;
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

    /// Computes again which reservations a planned node holds, after its instance types changed.
    pub(crate) fn update_reservations(&mut self, claim: usize) {
        let state = self.claims[claim].state;
        if self.states.get(state).reserved.is_empty() && self.claims[claim].reservations.is_empty() {
            return;
        }
        let types = self.holding_of(&self.claims[claim]);
        let before = std::mem::take(&mut self.claims[claim].reservations);
        let after = self.reservations_for(state, &types, &before).unwrap_or_default();
        if before != after {
            self.slots.changes += 1;
            let holds_every_reservation = self.holds_every_reservation(self.states.get(state).template);
            self.exchange(holds_every_reservation, &before, &after);
        }
        self.claims[claim].reservations = after;
    }

    fn exchange(&mut self, holds_every_reservation: bool, before: &[ReservationId], after: &[ReservationId]) {
        let Slots { matching, releases, .. } = &mut self.slots;
        if holds_every_reservation {
            for one in before.iter().filter(|one| !after.contains(one)) {
                matching.release(*one);
                *releases += 1;
            }
            after.iter().filter(|one| !before.contains(one)).for_each(|one| matching.hold(*one));
            return;
        }
        matching.remove(before);
        // A node needs one slot as long as it can use any reservation, so a slot becomes free only if it can use none
        // any more.
        *releases += u64::from(after.is_empty());
        if !after.is_empty() {
            let added = matching.add(after);
            debug_assert!(added.is_some(), "has_slot_for found a slot");
        }
    }

    /// The requirements of the NodeClaim of a planned node. A node that holds reservations requires them. Any other
    /// node excludes reserved capacity, so that its launch cannot use a slot that is counted for another node.
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
