//! Looks for an order in which the scheduler would accept every planned pod where the plan puts it.
//!
//! Works on lots, one per (class, node): a lot is admitted in bulk as far as the rules allow at the moment, then waits
//! for the group that holds it back. Within one spread group it never harms to place whatever may be placed, because
//! the minimum only rises. Pods that no rule binds but that a rule counts are held back until something waits for them.
//! Between groups order can matter: the plan's own order is tried first, then several others; only if none works are
//! the leftovers reported. The plan's order is a proposal, not a proof: every pod of it has to be accepted here too.

use std::collections::VecDeque;

use karpenter_model::plan::{self, Plan};
use karpenter_model::problem::Problem;
use rustc_hash::FxHashMap;

use super::super::contents::{Contents, Share};
use super::super::violation::Violation;
use super::groups::{Groups, SpreadGroup};
use super::sites::Sites;

/// Pods of one class on one site.
struct Lot<'a> {
    site: usize,
    share: &'a Share,
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    AsPlanned,
    StrictestFirst,
    Backwards,
    BySite,
    UnboundFirst,
}

/// So many pods of a lot, next in the plan's order.
struct Step {
    lot: usize,
    count: u32,
}

pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    contents: &Contents<'_>,
    sites: &Sites<'_>,
    groups: &Groups,
    violations: &mut Vec<Violation>,
) {
    if groups.spreads.is_empty() && groups.affinities.is_empty() {
        return;
    }
    let lots: Vec<Lot<'_>> = (0..sites.len())
        .flat_map(|site| sites.shares[site].iter().map(move |share| Lot { site, share }))
        .filter(|lot| groups.classes[lot.share.class as usize].is_relevant())
        .collect();
    let steps = steps(problem, plan, contents, &lots);
    let mut first_failure = None;
    for order in
        [Order::AsPlanned, Order::StrictestFirst, Order::Backwards, Order::BySite, Order::UnboundFirst]
    {
        if order == Order::AsPlanned && steps.is_empty() {
            continue;
        }
        let mut replay = Replay::new(sites, groups, &lots);
        replay.run(order, &steps);
        if replay.left.iter().all(|left| *left == 0) {
            replay.report_open_affinity(contents, violations);
            return;
        }
        first_failure.get_or_insert(replay);
    }
    if let Some(replay) = first_failure {
        replay.report(contents, violations);
    }
}

/// The plan's order in lots, neighbours joined. Pods that are not where the order says, which is reported elsewhere,
/// are left out, and so are pods that no rule binds or counts.
fn steps(problem: &Problem, plan: &Plan, contents: &Contents<'_>, lots: &[Lot<'_>]) -> Vec<Step> {
    if plan.order.is_empty() {
        return Vec::new();
    }
    let by_place: FxHashMap<(usize, u32), usize> =
        lots.iter().enumerate().map(|(index, lot)| ((lot.site, lot.share.class), index)).collect();
    let mut steps: Vec<Step> = Vec::new();
    for (run, place) in &plan.order {
        let site = match place {
            plan::Place::Existing(index) => *index,
            plan::Place::New(index) => problem.nodes.len().saturating_add(*index),
        };
        let Some(class) = contents.group_class.get(run.group as usize) else { continue };
        let Some(lot) = by_place.get(&(site, *class)) else { continue };
        match steps.last_mut() {
            Some(last) if last.lot == *lot => last.count = last.count.saturating_add(run.count),
            _ => steps.push(Step { lot: *lot, count: run.count }),
        }
    }
    steps
}

struct SpreadState {
    counts: Vec<u32>,
    minimum: u32,
    /// Eligible domains that sit at the minimum.
    at_minimum: u32,
    /// Lots held back, per domain.
    waiting: Vec<VecDeque<usize>>,
}

struct AffinityState {
    counts: Vec<Vec<u32>>,
    is_empty: bool,
    waiting: Vec<usize>,
}

/// What holds a lot back.
#[derive(Clone, Copy)]
enum Blocker {
    Spread(usize),
    Affinity { group: usize, term: usize },
}

struct Replay<'r> {
    sites: &'r Sites<'r>,
    groups: &'r Groups,
    lots: &'r [Lot<'r>],
    left: Vec<u32>,
    /// Of those left, the ones whose turn has come.
    due: Vec<u32>,
    spreads: Vec<SpreadState>,
    affinities: Vec<AffinityState>,
    ready: VecDeque<usize>,
    is_queued: Vec<bool>,
}

impl<'r> Replay<'r> {
    fn new(sites: &'r Sites<'r>, groups: &'r Groups, lots: &'r [Lot<'r>]) -> Self {
        let spreads = groups
            .spreads
            .iter()
            .map(|group| {
                let mut state = SpreadState {
                    counts: group.initial.clone(),
                    minimum: 0,
                    at_minimum: 0,
                    waiting: vec![VecDeque::new(); group.initial.len()],
                };
                state.find_minimum(group);
                state
            })
            .collect();
        let affinities = groups
            .affinities
            .iter()
            .map(|group| AffinityState {
                counts: group.initial.clone(),
                is_empty: group.initial.iter().flatten().all(|count| *count == 0),
                waiting: Vec::new(),
            })
            .collect();
        Self {
            sites,
            groups,
            lots,
            left: lots.iter().map(|lot| lot.share.count).collect(),
            due: vec![0; lots.len()],
            spreads,
            affinities,
            ready: VecDeque::new(),
            is_queued: vec![false; lots.len()],
        }
    }

    fn run(&mut self, order: Order, steps: &[Step]) {
        let groups = self.groups;
        let class = |lot: &Lot<'_>| &groups.classes[lot.share.class as usize];
        let mut bound: Vec<usize> =
            (0..self.lots.len()).filter(|lot| class(&self.lots[*lot]).is_bound_by_rules()).collect();
        let unbound: Vec<usize> =
            (0..self.lots.len()).filter(|lot| !class(&self.lots[*lot]).is_bound_by_rules()).collect();
        if order == Order::AsPlanned {
            self.follow(steps);
        }
        self.due.clone_from(&self.left);
        if order != Order::BySite {
            bound.sort_by_key(|lot| {
                let lot = &self.lots[*lot];
                let strictest =
                    class(lot).spreads.iter().map(|(group, _)| groups.spreads[*group].max_skew).min();
                (strictest.unwrap_or(u32::MAX), lot.share.class, lot.site)
            });
        }
        if order == Order::Backwards {
            bound.reverse();
        }
        if order == Order::UnboundFirst {
            for lot in &unbound {
                self.place(*lot, self.left[*lot]);
            }
        }
        bound.retain(|lot| self.left[*lot] > 0);
        bound.into_iter().for_each(|lot| self.enqueue(lot));
        loop {
            self.advance_ready();
            // Wake-ups follow the group a lot waits for; a lot can become free by another way, so look again.
            if self.retry_waiting() {
                continue;
            }
            if !self.release_unbound(&unbound) {
                break;
            }
        }
        // Nothing binds the rest; it may come last.
        for lot in unbound {
            self.place(lot, self.left[lot]);
        }
    }

    /// Walks the plan's order. What is not accepted at its turn waits and is placed as soon as it may be.
    fn follow(&mut self, steps: &[Step]) {
        for Step { lot, count } in steps {
            let was_waiting = self.due[*lot] > 0;
            self.due[*lot] = self.due[*lot].saturating_add(*count).min(self.left[*lot]);
            if was_waiting && matches!(self.allowance(*lot), (0, Some(_))) {
                continue;
            }
            self.advance(*lot);
            self.advance_ready();
        }
    }

    fn advance_ready(&mut self) {
        while let Some(lot) = self.ready.pop_front() {
            self.is_queued[lot] = false;
            self.advance(lot);
        }
    }

    fn enqueue(&mut self, lot: usize) {
        if !std::mem::replace(&mut self.is_queued[lot], true) {
            self.ready.push_back(lot);
        }
    }

    /// Places as many pods of the lot as may be placed now and parks the rest with whatever holds them back.
    fn advance(&mut self, lot: usize) {
        while self.due[lot] > 0 {
            let (allowed, blocker) = self.allowance(lot);
            if allowed > 0 {
                self.place(lot, allowed.min(self.due[lot]));
                continue;
            }
            match blocker {
                Some(Blocker::Spread(group)) => {
                    let key = self.groups.spreads[group].key;
                    if let Some(domain) = self.sites.domains[key].of_site[self.lots[lot].site] {
                        self.spreads[group].waiting[domain as usize].push_back(lot);
                    }
                }
                Some(Blocker::Affinity { group, .. }) => self.affinities[group].waiting.push(lot),
                None => {}
            }
            break;
        }
        self.pass_on(lot);
    }

    /// Where this lot leaves room under a skew, because it is done or waits elsewhere, the next in line may try.
    fn pass_on(&mut self, lot: usize) {
        let (groups, site) = (self.groups, self.lots[lot].site);
        for (group, _) in &groups.classes[self.lots[lot].share.class as usize].spreads {
            let Some(domain) = self.sites.domains[groups.spreads[*group].key].of_site[site] else { continue };
            if self.spread_room(*group, site, true).0 == 0 {
                continue;
            }
            if let Some(next) = self.spreads[*group].waiting[domain as usize].pop_front() {
                self.enqueue(next);
            }
        }
    }

    /// How many pods of the lot the scheduler would take now, and what stops the next one.
    fn allowance(&self, lot: usize) -> (u32, Option<Blocker>) {
        let site = self.lots[lot].site;
        let class = &self.groups.classes[self.lots[lot].share.class as usize];
        let mut allowed = u32::MAX;
        let mut blocker = None;
        for (group, counts_itself) in &class.spreads {
            let (room, unlimited) = self.spread_room(*group, site, *counts_itself);
            if !unlimited && room < allowed {
                allowed = room;
                blocker = Some(Blocker::Spread(*group));
            }
        }
        if let Some((group, matches_itself)) = class.affinity {
            let state = &self.affinities[group];
            for (term, key) in self.groups.affinities[group].keys.iter().enumerate() {
                let Some(domain) = self.sites.domains[*key].of_site[site] else {
                    // Reported as a missing label.
                    continue;
                };
                let is_met = state.counts[term][domain as usize] > 0 || (state.is_empty && matches_itself);
                if !is_met {
                    return (0, Some(Blocker::Affinity { group, term }));
                }
            }
        }
        (allowed, blocker)
    }

    /// Pods that fit under the skew at a site; `true` if their number does not matter.
    fn spread_room(&self, group: usize, site: usize, counts_itself: bool) -> (u32, bool) {
        let (group, state) = (&self.groups.spreads[group], &self.spreads[group]);
        let Some(domain) = self.sites.domains[group.key].of_site[site] else {
            // Reported as a missing label.
            return (u32::MAX, true);
        };
        let limit = group.limits.get(domain as usize).copied().unwrap_or(u32::MAX);
        let ceiling = state.minimum.saturating_add(group.max_skew).min(limit);
        let count = state.counts[domain as usize];
        if counts_itself && group.eligible[site] {
            (ceiling.saturating_sub(count), false)
        } else {
            let needed = count + u32::from(counts_itself);
            (0, needed <= ceiling)
        }
    }

    fn place(&mut self, lot: usize, count: u32) {
        if count == 0 {
            return;
        }
        self.left[lot] -= count;
        self.due[lot] = self.due[lot].saturating_sub(count);
        let site = self.lots[lot].site;
        let groups = self.groups;
        let class = &groups.classes[self.lots[lot].share.class as usize];
        for index in &class.counted_by_spread {
            let group = &groups.spreads[*index];
            let Some(domain) = self.sites.domains[group.key].of_site[site] else { continue };
            if !group.eligible[site] {
                continue;
            }
            let state = &mut self.spreads[*index];
            let before = state.counts[domain as usize];
            state.counts[domain as usize] = before.saturating_add(count);
            if before == state.minimum && !group.floor_is_zero {
                state.at_minimum -= 1;
                if state.at_minimum == 0 {
                    state.find_minimum(group);
                    self.wake_spread(*index);
                }
            }
        }
        for index in &class.counted_by_affinity {
            let state = &mut self.affinities[*index];
            let mut opens_domain = false;
            for (key, counts) in groups.affinities[*index].keys.iter().zip(&mut state.counts) {
                if let Some(domain) = self.sites.domains[*key].of_site[site] {
                    opens_domain |= counts[domain as usize] == 0;
                    counts[domain as usize] = counts[domain as usize].saturating_add(count);
                    state.is_empty = false;
                }
            }
            if opens_domain {
                for lot in std::mem::take(&mut state.waiting) {
                    self.enqueue(lot);
                }
            }
        }
    }

    /// After the minimum rose: the first in line of every domain with room; it passes on what it leaves.
    fn wake_spread(&mut self, index: usize) {
        let group = &self.groups.spreads[index];
        for domain in 0..self.spreads[index].waiting.len() {
            let state = &mut self.spreads[index];
            if state.counts[domain] < state.minimum.saturating_add(group.max_skew)
                && let Some(lot) = state.waiting[domain].pop_front()
            {
                self.enqueue(lot);
            }
        }
    }

    /// Puts lots that could move now back into the queue; `false` if every one is truly stuck.
    fn retry_waiting(&mut self) -> bool {
        let mut movable = Vec::new();
        let mut taken: Vec<VecDeque<usize>> = Vec::new();
        for state in &mut self.spreads {
            taken.extend(state.waiting.iter_mut().filter(|lots| !lots.is_empty()).map(std::mem::take));
        }
        let mut all: Vec<usize> = taken.into_iter().flatten().collect();
        for state in &mut self.affinities {
            all.append(&mut state.waiting);
        }
        all.sort_unstable();
        all.dedup();
        for lot in all {
            if self.left[lot] == 0 {
                continue;
            }
            match self.allowance(lot) {
                (0, Some(_)) => self.advance(lot),
                _ => movable.push(lot),
            }
        }
        let any = !movable.is_empty();
        movable.into_iter().for_each(|lot| self.enqueue(lot));
        any
    }

    /// Places one pod that no rule binds wherever a waiting lot needs one; `false` if that helps nobody.
    fn release_unbound(&mut self, unbound: &[usize]) -> bool {
        let mut released = false;
        for lot in unbound {
            if self.left[*lot] == 0 {
                continue;
            }
            let site = self.lots[*lot].site;
            let class = &self.groups.classes[self.lots[*lot].share.class as usize];
            let raises_minimum = class.counted_by_spread.iter().any(|index| {
                let (group, state) = (&self.groups.spreads[*index], &self.spreads[*index]);
                group.eligible[site]
                    && !group.floor_is_zero
                    && state.waiting.iter().any(|lots| !lots.is_empty())
                    && self.sites.domains[group.key].of_site[site]
                        .is_some_and(|domain| state.counts[domain as usize] == state.minimum)
            });
            let opens_domain = class.counted_by_affinity.iter().any(|index| {
                let (group, state) = (&self.groups.affinities[*index], &self.affinities[*index]);
                state.waiting.iter().any(|waiting| {
                    let wanted_at = self.lots[*waiting].site;
                    group.keys.iter().enumerate().any(|(term, key)| {
                        let domains = &self.sites.domains[*key].of_site;
                        domains[site].is_some()
                            && domains[site] == domains[wanted_at]
                            && domains[site].is_some_and(|domain| state.counts[term][domain as usize] == 0)
                    })
                })
            });
            if raises_minimum || opens_domain {
                self.place(*lot, 1);
                released = true;
            }
        }
        released
    }

    fn report(&self, contents: &Contents<'_>, violations: &mut Vec<Violation>) {
        for (index, lot) in self.lots.iter().enumerate() {
            let left = self.left[index];
            if left == 0 {
                continue;
            }
            let place = self.sites.places[lot.site].clone();
            let pod = contents.pod_name(lot.share);
            let domain_name = |key: usize| {
                let domains = &self.sites.domains[key];
                domains.of_site[lot.site]
                    .map(|domain| domains.names[domain as usize].clone())
                    .unwrap_or_default()
            };
            violations.push(match self.allowance(index).1 {
                Some(Blocker::Spread(group)) => {
                    let (group, state) = (&self.groups.spreads[group], &self.spreads[group]);
                    let domain = self.sites.domains[group.key].of_site[lot.site];
                    let domain_count = domain.map_or(0, |domain| state.counts[domain as usize]);
                    let limit = domain.and_then(|domain| group.limits.get(domain as usize).copied());
                    if let Some(limit) =
                        limit.filter(|limit| *limit < state.minimum.saturating_add(group.max_skew))
                    {
                        violations.push(Violation::SpreadShareExceeded {
                            place,
                            pod,
                            limit,
                            node_count: domain_count,
                            left,
                        });
                        continue;
                    }
                    Violation::SpreadBroken {
                        place,
                        pod,
                        key: self.sites.keys[group.key].clone(),
                        domain: domain_name(group.key),
                        max_skew: group.max_skew,
                        domain_count,
                        minimum: state.minimum,
                        left,
                    }
                }
                Some(Blocker::Affinity { group, term }) => {
                    let key = self.groups.affinities[group].keys[term];
                    Violation::AffinityUnmet {
                        place,
                        pod,
                        key: self.sites.keys[key].clone(),
                        domain: domain_name(key),
                        left,
                    }
                }
                None => continue,
            });
        }
    }

    /// A claim that leaves an affinity's key open must find matching pods in every domain it may become.
    fn report_open_affinity(&self, contents: &Contents<'_>, violations: &mut Vec<Violation>) {
        for lot in self.lots {
            let class = &self.groups.classes[lot.share.class as usize];
            let Some((group, _)) = class.affinity else { continue };
            for (term, key) in self.groups.affinities[group].keys.iter().enumerate() {
                let domains = &self.sites.domains[*key];
                let Some(open) = domains.open.get(&lot.site) else { continue };
                if open.iter().any(|domain| self.affinities[group].counts[term][*domain as usize] == 0) {
                    violations.push(Violation::DomainOpen {
                        place: self.sites.places[lot.site].clone(),
                        pod: contents.pod_name(lot.share),
                        key: self.sites.keys[*key].clone(),
                        domains: open.iter().map(|domain| domains.names[*domain as usize].clone()).collect(),
                    });
                }
            }
        }
    }
}

impl SpreadState {
    fn find_minimum(&mut self, group: &SpreadGroup) {
        if group.floor_is_zero {
            self.minimum = 0;
            return;
        }
        let eligible = || {
            self.counts
                .iter()
                .zip(&group.eligible_domains)
                .filter(|(_, eligible)| **eligible)
                .map(|(c, _)| *c)
        };
        let minimum = eligible().min().unwrap_or(0);
        self.at_minimum = eligible().filter(|count| *count == minimum).count() as u32;
        self.minimum = minimum;
    }
}
