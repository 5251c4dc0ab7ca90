//! Placement in upstream's order with upstream's choices, computed on classes with counts.
//!
//! Pods are taken large first; each goes to the first existing node that takes it, else to the planned node with the
//! fewest pods that takes it, else to a fresh node of the first pool that takes it. Identical pods are dealt in bulk
//! where that provably gives the same result. Upstream: pkg/controllers/provisioning/scheduling/scheduler.go.

use std::collections::VecDeque;

use karpenter_model::problem::Mode;

use crate::classes::QueueRun;
use crate::ledger::Ledger;
use crate::settle;
use crate::topology::Kind;

/// Places everything that can be placed and returns what is left, in queue order.
pub(crate) fn solve(ledger: &mut Ledger) -> Vec<QueueRun> {
    let mut left = rounds(ledger, ledger.classes.queue.clone());
    // Slots of reservations are used up first; pods that waited for one in vain come after all others.
    if ledger.slots.start_to_fall_back() && !left.is_empty() {
        left = rounds(ledger, left);
    }
    settle::settle(ledger);
    left
}

fn rounds(ledger: &mut Ledger, mut left: Vec<QueueRun>) -> Vec<QueueRun> {
    loop {
        left = one_round(ledger, left);
        // A pod may wait for, or be kept away by, one whose node has no definite zone yet: give it one and try again.
        let settled = !left.is_empty()
            && (settle::settle_for_affinity(ledger, &left)
                || settle::settle_for_anti_affinity(ledger, &left));
        if !settled {
            return left;
        }
    }
}

fn one_round(ledger: &mut Ledger, queue: Vec<QueueRun>) -> Vec<QueueRun> {
    let mut queue: VecDeque<QueueRun> = queue.into();
    let mut failures = FailureMemo::new(ledger.classes.variants.len());
    // A run that was pushed back with as many runs waiting as now has seen a whole cycle without progress.
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

/// Remembers at which counts a variant found no place at all, so that its twins need not look again.
struct FailureMemo {
    seen: Vec<Option<u64>>,
    /// Where the only obstacle was a full reservation, for which the pod waits as it is.
    awaits: Vec<bool>,
}

impl FailureMemo {
    fn new(variants: usize) -> Self {
        Self { seen: vec![None; variants], awaits: vec![false; variants] }
    }

    /// Changes that can turn a "no" into a "yes": counts of spread and affinity groups the variant states, label keys
    /// that some planned node now has, and slots of reservations that came free.
    fn stamp(ledger: &Ledger, variant: usize) -> u64 {
        let counts: u64 = ledger.classes.variants[variant]
            .owned
            .iter()
            .filter(|owned| owned.kind != Kind::AntiAffinity)
            .map(|owned| ledger.topology.group(owned.group).version)
            .sum();
        counts + ledger.labels_defined + ledger.slots.releases
    }

    fn is_known(&self, ledger: &Ledger, variant: usize) -> bool {
        self.seen[variant] == Some(Self::stamp(ledger, variant))
    }

    fn remember(&mut self, ledger: &Ledger, variant: usize) {
        self.seen[variant] = Some(Self::stamp(ledger, variant));
        self.awaits[variant] = ledger.slots.awaited;
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
            // A pod that waits for a reservation gives up none of its preferences meanwhile.
            if ledger.slots.awaited {
                break;
            }
        }
        if placed == 0 {
            return;
        }
        run.count -= placed;
    }
}

/// Where the scans of a run of identical pods may resume.
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

/// Places at least one pod of a variant, or returns 0.
fn place_some(ledger: &mut Ledger, variant: usize, count: u32, cursor: &mut Cursor) -> u32 {
    if ledger.stays_home && ledger.has_homes(variant) {
        ledger.keeps_home = true;
        let mut placed = place_on_nodes(ledger, variant, count, cursor);
        if placed == 0 && ledger.options.mode == Mode::Compat {
            // Room that is there comes before new nodes; nodes at least cost are for the repacking to find.
            ledger.keeps_home = false;
            placed = place_on_nodes(ledger, variant, count, cursor);
            ledger.keeps_home = true;
        }
        if placed == 0 {
            placed = place_on_planned(ledger, variant, count, cursor);
        }
        ledger.keeps_home = false;
        if placed > 0 {
            return placed;
        }
    }
    match place_on_nodes(ledger, variant, count, cursor) {
        0 => place_on_planned(ledger, variant, count, cursor),
        placed => placed,
    }
}

/// The same on nodes that exist.
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

/// The same on planned nodes and on new ones.
fn place_on_planned(ledger: &mut Ledger, variant: usize, count: u32, cursor: &mut Cursor) -> u32 {
    if ledger.classes.variants[variant].is_bulk {
        if !cursor.claims_are_full {
            let placed = level_claims(ledger, variant, count);
            if placed > 0 {
                return placed;
            }
            // What fits on none of the present planned nodes never will, and new ones are filled as they are opened.
            cursor.claims_are_full = true;
        }
    } else if place_one_on_claims(ledger, variant) {
        return 1;
    }
    let placed = open_new(ledger, variant, count);
    if placed == 0 && ledger.slots.may_fall_back_later() {
        // Better a node without its reservation than a pod without a node.
        ledger.slots.may_lose = true;
        let found = place_one_on_claims(ledger, variant);
        ledger.slots.may_lose = false;
        return u32::from(found);
    }
    placed
}

fn place_one_on_claims(ledger: &mut Ledger, variant: usize) -> bool {
    // The order must not change while it is walked, and walking stops at the first success.
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

/// Deals pods over the planned nodes as one-by-one placement on the emptiest node would: levels fill up together.
fn level_claims(ledger: &mut Ledger, variant: usize, count: u32) -> u32 {
    let order = std::mem::take(&mut ledger.by_pod_count);
    let mut open = Vec::new();
    let mut room = 0u64;
    for (pods, _, claim) in &order {
        // Everything below this level is already known; more nodes cannot be reached by `count` pods.
        let claim = *claim as usize;
        if let Some(fit) = ledger.fit_claim(variant, claim) {
            let slot = ledger.claim_slot(claim);
            let copies = ledger.copies_on_claim(variant, Some(claim), fit, slot).min(count);
            open.push((*pods, claim, fit, copies));
            room += u64::from(copies);
        }
    }
    ledger.by_pod_count = order;
    if open.is_empty() {
        return 0;
    }
    let dealt = deal(&open.iter().map(|(pods, _, _, copies)| (*pods, *copies)).collect::<Vec<_>>(), count);
    let mut placed = 0;
    let changes = ledger.slots.changes;
    for (position, share) in dealt {
        let (_, claim, fit, _) = open[position];
        ledger.place_on_claim(variant, claim, fit, share);
        placed += share;
        // What fits on the others was found out with the slots as they were.
        if ledger.slots.changes != changes {
            return placed;
        }
    }
    debug_assert_eq!(u64::from(placed), room.min(u64::from(count)));
    placed
}

/// Deals `count` items one by one, each to the first of the lowest (level, room) that has room. An entry that was given
/// an item comes before those that are already on its new level. Entries come in the order of the first deal; the
/// result is what each received, in the order in which they received their last.
fn deal(open: &[(u32, u32)], mut count: u32) -> Vec<(usize, u32)> {
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
    let mut dealt: Vec<usize> = (0..open.len()).filter(|position| shares[*position] > 0).collect();
    dealt.sort_by_key(|position| last_at[*position]);
    dealt.into_iter().map(|position| (position, shares[position])).collect()
}

fn open_new(ledger: &mut Ledger, variant: usize, count: u32) -> u32 {
    ledger.slots.awaited = false;
    for template in 0..ledger.prepared.templates.len() {
        let Some(fit) = ledger.fit_new(variant, template) else {
            if ledger.slots.was_full && ledger.slots.is_strict() {
                // Slots may come free: no other pool is tried before.
                ledger.slots.awaited = true;
                return 0;
            }
            continue;
        };
        let slot = ledger.claim_slot(ledger.claims.len());
        let copies = ledger.copies_on_claim(variant, None, fit, slot).min(count);
        let base = ledger.states.base(template).expect("a fit on a fresh node starts from the base state");
        let claim = ledger.open(base, None);
        // The first pod decides what the node is charged; the others then fill it up.
        let first = if ledger.prepared.templates[template].limited.is_empty() { copies } else { 1 };
        ledger.place_on_claim(variant, claim, fit, first);
        ledger.charge_limits(claim);
        return first + fill_up(ledger, variant, claim, count - first);
    }
    0
}

/// Fills a fresh node with more copies of a bulk variant.
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
    use super::deal;

    /// A list that is sorted by level before every item, stably.
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
        let mut dealt: Vec<(usize, u32)> = shares.into_iter().enumerate().filter(|(_, s)| *s > 0).collect();
        dealt.sort_by_key(|(i, _)| last_at[*i]);
        dealt
    }

    #[test]
    fn dealing_in_bulk_equals_dealing_one_by_one() {
        let worlds: [&[(u32, u32)]; 3] = [
            &[(0, 3), (1, 10), (1, 1), (2, 4), (5, 2), (9, 9)],
            &[(2, 2), (2, 5), (2, 5), (3, 1), (3, 7), (4, 0), (4, 6)],
            &[(7, 1), (8, 0), (20, 3)],
        ];
        for open in worlds {
            for count in 0..40 {
                assert_eq!(deal(open, count), one_by_one(open, count), "{count} items on {open:?}");
            }
        }
    }
}
