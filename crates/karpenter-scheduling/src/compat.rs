//! Compat mode of the planner: places pods in upstream's order with upstream's choices, but handles equal pods as one
//! class with a count.
//!
//! Larger pods come first. Each pod is placed on the first existing node that accepts it, else on the planned
//! node with the fewest pods that accepts it, else on a new node of the first NodePool that accepts it.
//! Identical pods are placed in bulk where that provably gives the same result.
//!
//! Upstream: pkg/controllers/provisioning/scheduling/scheduler.go.

use std::collections::VecDeque;

use karpenter_model::problem::Mode;

use crate::classes::QueueRun;
use crate::ledger::Ledger;
use crate::pin;
use crate::topology::Kind;

/// Places all pods that can be placed; returns the unschedulable pods in queue order.
pub(crate) fn solve(ledger: &mut Ledger) -> Vec<QueueRun> {
    let mut unschedulable = place_until_stable(ledger, ledger.classes.queue.clone());
    // Reservations are used first. After all other pods, the planner retries pods for which no reservation had a free
    // slot.
    if ledger.slots.start_fallback() && !unschedulable.is_empty() {
        unschedulable = place_until_stable(ledger, unschedulable);
    }
    pin::pin_all(ledger);
    unschedulable
}

fn place_until_stable(ledger: &mut Ledger, mut unschedulable: Vec<QueueRun>) -> Vec<QueueRun> {
    loop {
        unschedulable = place_queue(ledger, unschedulable);
        // An unschedulable pod may depend on the zone of a planned node whose zone is still undecided. Pin one such
        // node to a zone and retry.
        let settled = !unschedulable.is_empty()
            && (pin::pin_for_affinity(ledger, &unschedulable)
                || pin::pin_for_anti_affinity(ledger, &unschedulable));
        if !settled {
            return unschedulable;
        }
    }
}

fn place_queue(ledger: &mut Ledger, queue: Vec<QueueRun>) -> Vec<QueueRun> {
    let mut queue: VecDeque<QueueRun> = queue.into();
    let mut failures = FailureMemo::new(ledger.classes.variants.len());
    // The loop ends when it has tried every entry of the queue without progress.
    let mut since_progress = 0;
    while let Some(mut run) = queue.pop_front() {
        let before = run.count;
        place_run(ledger, &mut run, &mut failures);
        if run.count < before {
            since_progress = 0;
        }
        if run.count > 0 {
            queue.push_back(run);
            since_progress += 1;
            if since_progress >= queue.len() {
                break;
            }
        }
    }
    queue.into()
}

/// Remembers the counters at the time when pods were unschedulable, so that equal pods are not tried again until a
/// counter changes.
struct FailureMemo {
    seen: Vec<Option<u64>>,
    /// For each variant of a pod class: whether full reservations are the only obstacle. Such pods wait for a slot and
    /// keep all their preferences.
    awaits: Vec<bool>,
}

impl FailureMemo {
    fn new(variants: usize) -> Self {
        Self { seen: vec![None; variants], awaits: vec![false; variants] }
    }

    /// The sum of counters that grow whenever an unschedulable variant of a pod class may have become schedulable:
    /// placed pods of its spread and affinity groups, label keys that planned nodes gained, and slots that reservations
    /// regained.
    fn stamp(ledger: &Ledger, variant: usize) -> u64 {
        let counts: u64 = ledger.classes.variants[variant]
            .owned
            .iter()
            .filter(|owned| owned.kind != Kind::AntiAffinity)
            .map(|owned| ledger.topology.group(owned.group).version)
            .sum();
        counts + ledger.label_definitions + ledger.slots.releases
    }

    fn is_known(&self, ledger: &Ledger, variant: usize) -> bool {
        self.seen[variant] == Some(Self::stamp(ledger, variant))
    }

    fn remember(&mut self, ledger: &Ledger, variant: usize) {
        self.seen[variant] = Some(Self::stamp(ledger, variant));
        self.awaits[variant] = ledger.slots.awaits_reservation;
    }
}

fn place_run(ledger: &mut Ledger, run: &mut QueueRun, failures: &mut FailureMemo) {
    let variants = ledger.classes.classes[run.class].variants.clone();
    let mut search = Search::new(variants.len());
    while run.count > 0 {
        let mut placed = 0;
        for (level, variant) in variants.clone().enumerate() {
            if failures.is_known(ledger, variant) {
                if failures.awaits[variant] {
                    break;
                }
                continue;
            }
            placed = place_some(ledger, variant, run.count, &mut search.levels[level]);
            if placed > 0 {
                break;
            }
            failures.remember(ledger, variant);
            // A pod that waits for a reservation keeps its preferences.
            if ledger.slots.awaits_reservation {
                break;
            }
        }
        if placed == 0 {
            return;
        }
        run.count -= placed;
    }
}

/// Where the search for nodes continues for further identical pods, separately for existing and planned nodes.
struct Search {
    levels: Vec<Cursor>,
}

#[derive(Default, Clone)]
struct Cursor {
    node: usize,
    claims_are_full: bool,
}

impl Search {
    fn new(levels: usize) -> Self {
        Self { levels: vec![Cursor::default(); levels] }
    }
}

/// Places at least one pod of a variant of a pod class on any node; returns 0 if no node accepts it.
fn place_some(ledger: &mut Ledger, variant: usize, count: u32, cursor: &mut Cursor) -> u32 {
    if ledger.prefers_vacated_domains && ledger.has_vacated_domains(variant) {
        ledger.only_vacated_domains = true;
        let mut placed = place_on_nodes(ledger, variant, count, cursor);
        if placed == 0 && ledger.options.mode == Mode::Compat {
            // Free capacity of existing nodes is used before new nodes. In cost mode, repacking chooses between planned
            // nodes later.
            ledger.only_vacated_domains = false;
            placed = place_on_nodes(ledger, variant, count, cursor);
            ledger.only_vacated_domains = true;
        }
        if placed == 0 {
            placed = place_on_planned(ledger, variant, count, cursor);
        }
        ledger.only_vacated_domains = false;
        if placed > 0 {
            return placed;
        }
    }
    match place_on_nodes(ledger, variant, count, cursor) {
        0 => place_on_planned(ledger, variant, count, cursor),
        placed => placed,
    }
}

/// Like [`place_some`], but only on existing nodes.
fn place_on_nodes(ledger: &mut Ledger, variant: usize, count: u32, cursor: &mut Cursor) -> u32 {
    let first = if ledger.classes.variants[variant].is_bulk { cursor.node } else { 0 };
    let Some((node, copies)) = ledger.find_node(variant, first) else {
        cursor.node = ledger.nodes.len();
        return 0;
    };
    let copies = copies.min(count);
    cursor.node = node;
    ledger.place_on_node(variant, node, copies);
    copies
}

/// Like [`place_some`], but only on planned nodes or a new one.
fn place_on_planned(ledger: &mut Ledger, variant: usize, count: u32, cursor: &mut Cursor) -> u32 {
    if ledger.classes.variants[variant].is_bulk {
        if !cursor.claims_are_full {
            let placed = fill_claims_by_level(ledger, variant, count);
            if placed > 0 {
                return placed;
            }
            // If no planned node accepts these pods, none will accept them later, because nodes only fill up; a new
            // node is filled when it is opened.
            cursor.claims_are_full = true;
        }
    } else if place_one_on_claims(ledger, variant) {
        return 1;
    }
    let placed = open_new(ledger, variant, count);
    if placed == 0 && ledger.slots.may_retry_without_reservation() {
        // A pod may be placed on a node that loses its reservation thereby; otherwise the pod would be unschedulable.
        ledger.slots.may_drop_reservation = true;
        let found = place_one_on_claims(ledger, variant);
        ledger.slots.may_drop_reservation = false;
        return u32::from(found);
    }
    placed
}

fn place_one_on_claims(ledger: &mut Ledger, variant: usize) -> bool {
    // The search reads the order while it changes the ledger, so the order is taken out of the ledger; the search ends
    // with the first placement.
    let order = std::mem::take(&mut ledger.by_pod_count);
    let found = order.iter().find_map(|(_, _, claim)| {
        let claim = *claim as usize;
        ledger.fit_claim(variant, claim).map(|fit| (claim, fit))
    });
    ledger.by_pod_count = order;
    match found {
        Some((claim, fit)) => {
            ledger.place_on_claim(variant, claim, fit, 1);
            true
        }
        None => false,
    }
}

/// Gives the same result as placing each pod on the planned node with the fewest pods: the nodes with the fewest pods
/// are filled up to the level of the next ones.
fn fill_claims_by_level(ledger: &mut Ledger, variant: usize, count: u32) -> u32 {
    let order = std::mem::take(&mut ledger.by_pod_count);
    let mut open = Vec::new();
    let mut capacity = 0u64;
    for (pods, _, claim) in &order {
        // Only `count` pods are placed, so no node receives more than that.
        let claim = *claim as usize;
        if let Some(fit) = ledger.fit_claim(variant, claim) {
            let slot = ledger.claim_slot(claim);
            let copies = ledger.copies_on_claim(variant, Some(claim), fit, slot).min(count);
            open.push((*pods, claim, fit, copies));
            capacity += u64::from(copies);
        }
    }
    ledger.by_pod_count = order;
    if open.is_empty() {
        return 0;
    }
    let filled =
        fill_by_level(&open.iter().map(|(pods, _, _, copies)| (*pods, *copies)).collect::<Vec<_>>(), count);
    let mut placed = 0;
    let changes = ledger.slots.changes;
    for (position, share) in filled {
        let (_, claim, fit, _) = open[position];
        ledger.place_on_claim(variant, claim, fit, share);
        placed += share;
        // The assignment of reservation slots has changed, so the capacity computed for the other nodes is outdated.
        if ledger.slots.changes != changes {
            return placed;
        }
    }
    debug_assert_eq!(u64::from(placed), capacity.min(u64::from(count)));
    placed
}

/// Distributes `count` items one by one. Each item goes to the first entry among those with the lowest level and
/// capacity left, and raises its level by one. Entries are (level, capacity), sorted by level. An entry that received
/// an item moves before the entries that already have its new level. Returns the number of items per entry, in the
/// order in which the entries received their last item.
fn fill_by_level(open: &[(u32, u32)], mut count: u32) -> Vec<(usize, u32)> {
    let mut shares = vec![0; open.len()];
    let mut last_at = vec![0u64; open.len()];
    let mut turns = 0;
    let mut reached = 0;
    let mut level = 0;
    let mut on_level: Vec<usize> = Vec::new();
    while count > 0 {
        if on_level.is_empty() {
            match open.get(reached) {
                Some((next, _)) => level = *next,
                None => break,
            }
        }
        while open.get(reached).is_some_and(|(of_entry, _)| *of_entry == level) {
            on_level.push(reached);
            reached += 1;
        }
        let mut raised = Vec::with_capacity(on_level.len());
        for position in on_level {
            if shares[position] < open[position].1 && count > 0 {
                shares[position] += 1;
                count -= 1;
                turns += 1;
                last_at[position] = turns;
                raised.push(position);
            }
        }
        raised.reverse();
        on_level = raised;
        level += 1;
    }
    let mut filled: Vec<usize> = (0..open.len()).filter(|position| shares[*position] > 0).collect();
    filled.sort_by_key(|position| last_at[*position]);
    filled.into_iter().map(|position| (position, shares[position])).collect()
}

fn open_new(ledger: &mut Ledger, variant: usize, count: u32) -> u32 {
    ledger.slots.awaits_reservation = false;
    for template in 0..ledger.prepared.templates.len() {
        let Some(fit) = ledger.fit_new(variant, template) else {
            if ledger.slots.reservation_was_full && ledger.slots.is_strict() {
                // A reservation slot may be released later, so the pod waits, and no other NodePool is tried now.
                ledger.slots.awaits_reservation = true;
                return 0;
            }
            continue;
        };
        let slot = ledger.claim_slot(ledger.claims.len());
        let copies = ledger.copies_on_claim(variant, None, fit, slot).min(count);
        let base = ledger.states.base(template).expect("a fit on a fresh node starts from the base state");
        let claim = ledger.open(base, None);
        // What a new node counts towards the NodePool's limits is computed when it holds only its first pod, as
        // upstream does; further pods then fill the node.
        let first = if ledger.prepared.templates[template].limited.is_empty() { copies } else { 1 };
        ledger.place_on_claim(variant, claim, fit, first);
        ledger.charge_limits(claim);
        return first + fill_up(ledger, variant, claim, count - first);
    }
    0
}

/// Fills a new node with more copies of a variant that can be placed in bulk.
fn fill_up(ledger: &mut Ledger, variant: usize, claim: usize, count: u32) -> u32 {
    let mut placed = 0;
    while ledger.classes.variants[variant].is_bulk && placed < count {
        let Some(fit) = ledger.fit_claim(variant, claim) else { break };
        let slot = ledger.claim_slot(claim);
        let copies = ledger.copies_on_claim(variant, Some(claim), fit, slot).min(count - placed);
        ledger.place_on_claim(variant, claim, fit, copies);
        placed += copies;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::fill_by_level;

    /// The reference implementation of `fill_by_level`: sorts the entries by level before every item, with a stable
    /// sort.
    fn one_by_one(open: &[(u32, u32)], count: u32) -> Vec<(usize, u32)> {
        let mut list: Vec<(u32, usize)> =
            open.iter().enumerate().map(|(i, (level, _))| (*level, i)).collect();
        let mut shares = vec![0; open.len()];
        let mut last_at = vec![0; open.len()];
        for turn in 0..count {
            list.sort_by_key(|(level, _)| *level);
            let Some(entry) = list.iter_mut().find(|(_, i)| shares[*i] < open[*i].1) else { break };
            entry.0 += 1;
            shares[entry.1] += 1;
            last_at[entry.1] = turn;
        }
        let mut filled: Vec<(usize, u32)> = shares.into_iter().enumerate().filter(|(_, s)| *s > 0).collect();
        filled.sort_by_key(|(i, _)| last_at[*i]);
        filled
    }

    #[test]
    fn bulk_fill_equals_one_by_one_fill() {
        let worlds: [&[(u32, u32)]; 3] = [
            &[(0, 3), (1, 10), (1, 1), (2, 4), (5, 2), (9, 9)],
            &[(2, 2), (2, 5), (2, 5), (3, 1), (3, 7), (4, 0), (4, 6)],
            &[(7, 1), (8, 0), (20, 3)],
        ];
        for open in worlds {
            for count in 0..40 {
                assert_eq!(fill_by_level(open, count), one_by_one(open, count), "{count} items on {open:?}");
            }
        }
    }
}
