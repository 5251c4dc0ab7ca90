//! Assigns the slots of reservations to planned nodes at the end of planning.
//!
//! Every node that relies on reserved capacity gets a slot. The remaining slots go to nodes that could use them as
//! alternatives, so that their launches have a choice. No slot is assigned twice: whichever of its reservations a
//! launch uses, every other node keeps its own slot.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::matching::Matching;
use super::{ReservationId, ReservationSet};
use crate::ledger::{Claim, Ledger};

/// The assignment of slots: one slot for every node, or a slot of every listed reservation if the node must hold all of
/// them.
struct AssignedSlots {
    /// By claim.
    lists: Vec<ReservationSet>,
    /// NodeClaims that may get further reservations as alternatives, each with its compatible reservations, cheapest
    /// first.
    open: Vec<(usize, Vec<ReservationId>)>,
    matching: Matching,
}

impl Ledger {
    fn assign_one_slot_each(&self, claims: &[Claim]) -> Option<AssignedSlots> {
        let mut lists = vec![ReservationSet::new(); claims.len()];
        let mut matching = self.slots.matching.cleared();
        let mut open: Vec<(usize, Vec<ReservationId>)> = Vec::new();
        for (index, claim) in claims.iter().enumerate().filter(|(_, claim)| !claim.reservations.is_empty()) {
            if !self.holds_every_reservation(self.states.get(claim.state).template) {
                open.push((index, self.by_price(claim)));
                continue;
            }
            for held in &claim.reservations {
                if matching.spare(*held) == 0 {
                    return None;
                }
                matching.hold(*held);
            }
            lists[index] = claim.reservations.clone();
        }
        for (_, wanted) in &open {
            matching.add(wanted)?;
        }
        let mut of_set: FxHashMap<&ReservationSet, BTreeMap<ReservationId, u32>> = FxHashMap::default();
        for (index, wanted) in &open {
            let set = &claims[*index].reservations;
            let slots = of_set.entry(set).or_insert_with(|| matching.slots_of(set));
            let slot = wanted.iter().find(|one| slots.get(one).is_some_and(|count| *count > 0))?;
            *slots.entry(*slot).or_insert(1) -= 1;
            lists[*index].push(*slot);
        }
        Some(AssignedSlots { lists, open, matching })
    }

    /// For each claim: the reservations that its NodeClaim lists; `None` if there are too few slots for all claims.
    fn assign(&self, claims: &[Claim]) -> Option<Vec<ReservationSet>> {
        let AssignedSlots { mut lists, open, mut matching } = self.assign_one_slot_each(claims)?;
        for (index, wanted) in open {
            let slot = lists[index][0];
            for spare in wanted.into_iter().filter(|one| *one != slot) {
                if matching.spare(spare) > 0 {
                    matching.hold(spare);
                    lists[index].push(spare);
                }
            }
            lists[index].sort_unstable();
        }
        Some(lists)
    }

    /// The claims with their reservations set to those that their NodeClaims list; `None` if there are too few slots
    /// for all claims.
    pub(crate) fn with_slots(&self, claims: &[Claim]) -> Option<Vec<Claim>> {
        let listed = claims.iter().zip(self.assign(claims)?).map(|(claim, reservations)| {
            let mut listed = claim.clone();
            listed.reservations = reservations;
            listed
        });
        Some(listed.collect())
    }

    /// For each reservation: the number of slots that these claims do not use.
    pub(crate) fn spare_slots(&self, claims: &[Claim]) -> Option<Vec<u32>> {
        let AssignedSlots { matching, .. } = self.assign_one_slot_each(claims)?;
        let all = 0..self.prepared.reservations.reservations.len() as ReservationId;
        Some(all.map(|one| matching.spare(one)).collect())
    }

    /// Sets the compatible reservations of a planned node that the packer of cost mode created.
    pub(crate) fn set_compatible_reservations(&self, claim: &mut Claim) {
        claim.reservations = self.compatible_reservations(claim.state, &self.holding_of(claim));
    }

    /// The reservations of a node, cheapest first.
    fn by_price(&self, claim: &Claim) -> Vec<ReservationId> {
        let types = self.holding_of(claim);
        let mut prices: BTreeMap<ReservationId, f64> = BTreeMap::new();
        for offer in &self.states.get(claim.state).reserved {
            if types.binary_search_by_key(&offer.index, |entry| entry.index).is_ok() {
                let least = prices.entry(offer.reservation).or_insert(f64::MAX);
                *least = least.min(offer.price);
            }
        }
        let price = |one: &ReservationId| prices.get(one).copied().unwrap_or(f64::MAX);
        let mut wanted = claim.reservations.to_vec();
        wanted.sort_by(|a, b| price(a).total_cmp(&price(b)).then(a.cmp(b)));
        wanted
    }
}
