//! A b-matching (a matching in which a reservation can serve several nodes) of planned nodes to reservations: every
//! node that relies on reserved capacity has a slot, and no reservation has more nodes than slots.
//!
//! Nodes with the same compatible reservations are interchangeable, so they are stored as one set with a count. The
//! cost of an operation depends on the number of sets and reservations, not on the number of nodes.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::{ReservationId, ReservationSet};

type SetId = u32;

#[derive(Debug, Clone, Default)]
pub(crate) struct Matching {
    /// Slots by reservation.
    capacity: Vec<u32>,
    used: Vec<u32>,
    /// Over all reservations.
    spare_total: u64,
    /// Distinct sets of compatible reservations.
    sets: Vec<ReservationSet>,
    set_ids: FxHashMap<ReservationSet, SetId>,
    /// For each reservation and set: how many nodes of the set have a slot of the reservation.
    matched: BTreeMap<(ReservationId, SetId), u32>,
}

impl Matching {
    pub(crate) fn new(capacity: Vec<u32>) -> Self {
        let spare_total = capacity.iter().map(|slots| u64::from(*slots)).sum();
        Self { used: vec![0; capacity.len()], capacity, spare_total, ..Self::default() }
    }

    /// A copy with the same reservation slots, but without nodes.
    pub(crate) fn cleared(&self) -> Self {
        Self::new(self.capacity.clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.capacity.is_empty()
    }

    /// The number of free slots of a reservation.
    pub(crate) fn spare(&self, reservation: ReservationId) -> u32 {
        let at = reservation as usize;
        self.capacity[at].saturating_sub(self.used[at])
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.spare_total == 0
    }

    /// Removes slots.
    pub(crate) fn shrink(&mut self, reservation: ReservationId, count: u32) {
        let lost = count.min(self.spare(reservation));
        self.capacity[reservation as usize] -= lost;
        self.spare_total -= u64::from(lost);
    }

    /// Gives a node one more slot, of this reservation, in addition to its other slots. The reservation must have a
    /// free slot.
    pub(crate) fn hold(&mut self, reservation: ReservationId) {
        self.used[reservation as usize] += 1;
        self.spare_total -= 1;
    }

    pub(crate) fn release(&mut self, reservation: ReservationId) {
        self.used[reservation as usize] -= 1;
        self.spare_total += 1;
    }

    /// Whether one more node can get a slot of one of the `wanted` reservations, if other nodes may move to other
    /// slots. The new node replaces one node of the set `instead_of`.
    pub(crate) fn has_slot_for(&self, wanted: &[ReservationId], instead_of: &[ReservationId]) -> bool {
        self.path(wanted, self.any_slot_of(instead_of)).is_some()
    }

    /// Gives one more node a slot of one of the `wanted` reservations, in their order of preference; if necessary,
    /// other nodes move to other slots. `None` if no slot can be freed.
    pub(crate) fn add(&mut self, wanted: &[ReservationId]) -> Option<()> {
        let path = self.path(wanted, None)?;
        for step in path.windows(2) {
            let ((from, _), (to, Some(set))) = (step[0], step[1]) else { return None };
            self.change(from, set, false);
            self.change(to, set, true);
        }
        let set = self.set_id(wanted);
        self.change(path[0].0, set, true);
        Some(())
    }

    /// Removes one node with these compatible reservations.
    pub(crate) fn remove(&mut self, wanted: &[ReservationId]) {
        if let Some(slot) = self.any_slot_of(wanted) {
            let set = self.set_id(wanted);
            self.change(slot, set, false);
        }
    }

    /// For each reservation: how many nodes with these compatible reservations have a slot of it.
    pub(crate) fn slots_of(&self, wanted: &[ReservationId]) -> BTreeMap<ReservationId, u32> {
        let Some(set) = self.known_set(wanted) else { return BTreeMap::new() };
        let counts = wanted.iter().map(|one| (*one, self.matched.get(&(*one, set)).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn any_slot_of(&self, wanted: &[ReservationId]) -> Option<ReservationId> {
        let set = self.known_set(wanted)?;
        wanted.iter().copied().find(|one| self.matched.contains_key(&(*one, set)))
    }

    fn known_set(&self, wanted: &[ReservationId]) -> Option<SetId> {
        if wanted.is_empty() {
            return None;
        }
        self.set_ids.get(&sorted(wanted)).copied()
    }

    fn set_id(&mut self, wanted: &[ReservationId]) -> SetId {
        let set = sorted(wanted);
        let next = self.sets.len() as SetId;
        let sets = &mut self.sets;
        *self.set_ids.entry(set).or_insert_with_key(|set| {
            sets.push(set.clone());
            next
        })
    }

    fn change(&mut self, reservation: ReservationId, set: SetId, is_more: bool) {
        let count = self.matched.entry((reservation, set)).or_insert(0);
        if is_more {
            *count += 1;
            self.hold(reservation);
        } else {
            *count -= 1;
            if *count == 0 {
                self.matched.remove(&(reservation, set));
            }
            self.release(reservation);
        }
    }

    /// The shortest augmenting path from a wanted reservation to a reservation with a free slot. Each step is a
    /// reservation and the set of a node that moves there from the reservation of the previous step. One slot of
    /// `released` counts as free.
    fn path(
        &self,
        wanted: &[ReservationId],
        released: Option<ReservationId>,
    ) -> Option<Vec<(ReservationId, Option<SetId>)>> {
        let is_open = |one: ReservationId| self.spare(one) > 0 || released == Some(one);
        if let Some(open) = wanted.iter().copied().find(|one| is_open(*one)) {
            return Some(vec![(open, None)]);
        }
        let mut came_from: FxHashMap<ReservationId, Option<(ReservationId, SetId)>> =
            wanted.iter().map(|one| (*one, None)).collect();
        let mut queue: VecDeque<ReservationId> = wanted.iter().copied().collect();
        while let Some(here) = queue.pop_front() {
            for ((_, set), _) in self.matched.range((here, 0)..=(here, SetId::MAX)) {
                for next in &self.sets[*set as usize] {
                    if came_from.contains_key(next) {
                        continue;
                    }
                    came_from.insert(*next, Some((here, *set)));
                    if !is_open(*next) {
                        queue.push_back(*next);
                        continue;
                    }
                    let mut path = vec![*next];
                    let mut sets = Vec::new();
                    while let Some(Some((before, set))) = path.last().and_then(|last| came_from.get(last)) {
                        path.push(*before);
                        sets.push(*set);
                    }
                    path.reverse();
                    sets.reverse();
                    let sets = std::iter::once(None).chain(sets.into_iter().map(Some));
                    return Some(path.into_iter().zip(sets).collect());
                }
            }
        }
        None
    }
}

fn sorted(wanted: &[ReservationId]) -> ReservationSet {
    let mut set: ReservationSet = wanted.iter().copied().collect();
    set.sort_unstable();
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_move_to_other_slots_for_node_without_choice() {
        let mut matching = Matching::new(vec![1, 1, 1]);
        assert!(matching.add(&[0, 1]).is_some());
        assert!(matching.add(&[1, 2]).is_some());
        // Both nodes must move to other slots: the first node to reservation 1, the second to reservation 2.
        assert!(matching.add(&[0]).is_some());
        assert!(matching.is_used_up());
        assert!(!matching.has_slot_for(&[0, 1, 2], &[]));
        assert!(
            matching.has_slot_for(&[2], &[0, 1]),
            "in place of the first, once the second has moved back"
        );
        assert_eq!(matching.slots_of(&[0]), BTreeMap::from([(0, 1)]));
        matching.remove(&[0]);
        assert!(matching.add(&[2]).is_some());
        assert!(!matching.has_slot_for(&[2], &[2, 1, 0]), "the set has no node");
    }

    #[test]
    fn equal_nodes_share_a_set() {
        let mut matching = Matching::new(vec![2, 3]);
        for _ in 0..5 {
            assert!(matching.add(&[1, 0]).is_some());
        }
        assert_eq!(matching.add(&[0, 1]), None);
        assert_eq!(matching.slots_of(&[0, 1]), BTreeMap::from([(0, 2), (1, 3)]));
        assert_eq!(matching.sets.len(), 1);
    }

    /// After any sequence of operations, a reservation slot must be found exactly if a matching of all nodes exists.
    #[test]
    fn slot_is_found_if_a_matching_exists() {
        let mut seed = 7u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let capacity: Vec<u32> = (0..4).map(|_| random(3) as u32).collect();
            let mut matching = Matching::new(capacity.clone());
            let mut nodes: Vec<ReservationSet> = Vec::new();
            for _ in 0..10 {
                if !nodes.is_empty() && random(4) == 0 {
                    let gone = nodes.swap_remove(random(nodes.len() as u64) as usize);
                    matching.remove(&gone);
                }
                let wanted: ReservationSet = (0..4).filter(|_| random(3) == 0).collect();
                if wanted.is_empty() {
                    continue;
                }
                let mut all = nodes.clone();
                all.push(wanted.clone());
                let exists = all_have_a_slot(&all, &mut capacity.clone());
                assert_eq!(
                    matching.has_slot_for(&wanted, &[]),
                    exists,
                    "{nodes:?} and {wanted:?} on {capacity:?}"
                );
                assert_eq!(matching.add(&wanted).is_some(), exists);
                if exists {
                    nodes = all;
                }
                assert_eq!(matching.used.iter().sum::<u32>() as usize, nodes.len());
            }
        }
    }

    fn all_have_a_slot(nodes: &[ReservationSet], left: &mut [u32]) -> bool {
        let Some((first, rest)) = nodes.split_first() else { return true };
        first.iter().any(|one| {
            let at = *one as usize;
            if left[at] == 0 {
                return false;
            }
            left[at] -= 1;
            let fits = all_have_a_slot(rest, left);
            left[at] += 1;
            fits
        })
    }
}
