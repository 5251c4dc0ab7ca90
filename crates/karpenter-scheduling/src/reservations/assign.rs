//! Which planned node launches into which reservation.
//!
//! Every node that counts on reserved capacity is given a slot; slots that are left over go to nodes that could use them
//! too, so that a launch has a choice where there is one. No slot is given twice: whatever reservation of its list a
//! launch takes, every other node finds its own.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::matching::Matching;
use super::{Held, ReservationId};
use crate::ledger::{Claim, Ledger};

/// One slot for every node, and for those that hold all they list, all of it.
struct Dealt {
    /// By claim.
    lists: Vec<Held>,
    /// Claims that may launch into other reservations as well, and those they suit, cheapest first.
    open: Vec<(usize, Vec<ReservationId>)>,
    matching: Matching,
}

impl Ledger {
    fn deal_slots(&self, claims: &[Claim]) -> Option<Dealt> {
        let mut lists = vec![Held::new(); claims.len()];
        let mut matching = self.slots.matching.cleared();
        let mut open: Vec<(usize, Vec<ReservationId>)> = Vec::new();
        for (index, claim) in claims.iter().enumerate().filter(|(_, claim)| !claim.reservations.is_empty()) {
            if !self.holds_all(self.states.get(claim.state).template) {
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
        let mut of_set: FxHashMap<&Held, BTreeMap<ReservationId, u32>> = FxHashMap::default();
        for (index, wanted) in &open {
            let set = &claims[*index].reservations;
            let slots = of_set.entry(set).or_insert_with(|| matching.slots_of(set));
            let slot = wanted.iter().find(|one| slots.get(one).is_some_and(|count| *count > 0))?;
            *slots.entry(*slot).or_insert(1) -= 1;
            lists[*index].push(*slot);
        }
        Some(Dealt { lists, open, matching })
    }

    /// By claim, the reservations it lists in the end; `None` if there are not enough slots for all claims.
    fn assign(&self, claims: &[Claim]) -> Option<Vec<Held>> {
        let Dealt { mut lists, open, mut matching } = self.deal_slots(claims)?;
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

    /// Claims with the reservations they list in the end; `None` if there are not enough slots for all of them.
    pub(crate) fn with_slots(&self, claims: &[Claim]) -> Option<Vec<Claim>> {
        let listed = claims.iter().zip(self.assign(claims)?).map(|(claim, reservations)| {
            let mut listed = claim.clone();
            listed.reservations = reservations;
            listed
        });
        Some(listed.collect())
    }

    /// By reservation, the slots that are left beside these claims.
    pub(crate) fn spare_slots(&self, claims: &[Claim]) -> Option<Vec<u32>> {
        let Dealt { matching, .. } = self.deal_slots(claims)?;
        let all = 0..self.prepared.reservations.reservations.len() as ReservationId;
        Some(all.map(|one| matching.spare(one)).collect())
    }

    /// Makes a node that was packed as a whole count on the reservations it suits.
    pub(crate) fn count_on_reservations(&self, claim: &mut Claim) {
        claim.reservations = self.suited(claim.state, &self.holding_of(claim));
    }

    /// What a node may launch into, cheapest first.
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
