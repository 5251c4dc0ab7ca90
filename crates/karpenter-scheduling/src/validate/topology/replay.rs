//! Searches for an order in which kube-scheduler would accept every planned pod on its planned node.
//!
//! The search works on batches: the pods of one class on one node. It places as many pods of a batch at once as the
//! rules allow; the rest waits for the topology group that blocks it. Within one spread group, it is never worse to
//! place every pod that may be placed, because the minimum only rises. Pods that no rule constrains but that a rule
//! counts are placed only when a blocked batch needs them. If several groups interact, the order can matter. So the
//! order stated in the plan is tried first, then several others; pods are reported only if no order places them.

use std::collections::VecDeque;

use karpenter_model::plan::{self, Plan};
use karpenter_model::problem::Problem;
use rustc_hash::FxHashMap;

use super::super::contents::{Contents, Share};
use super::super::violation::Violation;
use super::groups::{Groups, SpreadGroup};
use super::sites::Sites;

/// The pods of one class on one site (node).
struct PodBatch<'a> {
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

/// A number of pods of one batch that come next in the order stated in the plan.
struct Step {
    batch: usize,
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
    let batches: Vec<PodBatch<'_>> = (0..sites.len())
        .flat_map(|site| sites.shares[site].iter().map(move |share| PodBatch { site, share }))
        .filter(|batch| groups.classes[batch.share.class as usize].is_relevant())
        .collect();
    let steps = steps(problem, plan, contents, &batches);
    let mut first_failure = None;
    for order in
        [Order::AsPlanned, Order::StrictestFirst, Order::Backwards, Order::BySite, Order::UnboundFirst]
    {
        if order == Order::AsPlanned && steps.is_empty() {
            continue;
        }
        let mut replay = Replay::new(sites, groups, &batches);
        replay.run(order, &steps);
        if replay.left.iter().all(|left| *left == 0) {
            replay.report_undecided_affinity(contents, violations);
            return;
        }
        first_failure.get_or_insert(replay);
    }
    if let Some(replay) = first_failure {
        replay.report(contents, violations);
    }
}

/// The order stated in the plan, as batches, with adjacent ones merged. Pods that are not where the order says are
/// omitted (`order` reports them), as are pods that no rule constrains or counts.
fn steps(problem: &Problem, plan: &Plan, contents: &Contents<'_>, batches: &[PodBatch<'_>]) -> Vec<Step> {
    if plan.order.is_empty() {
        return Vec::new();
    }
    let by_place: FxHashMap<(usize, u32), usize> =
        batches.iter().enumerate().map(|(index, batch)| ((batch.site, batch.share.class), index)).collect();
    let mut steps: Vec<Step> = Vec::new();
    for (run, place) in &plan.order {
        let site = match place {
            plan::Place::Existing(index) => *index,
            plan::Place::New(index) => problem.nodes.len().saturating_add(*index),
        };
        let Some(class) = contents.group_class.get(run.group as usize) else { continue };
        let Some(batch) = by_place.get(&(site, *class)) else { continue };
        match steps.last_mut() {
            Some(last) if last.batch == *batch => last.count = last.count.saturating_add(run.count),
            _ => steps.push(Step { batch: *batch, count: run.count }),
        }
    }
    steps
}

struct SpreadState {
    counts: Vec<u32>,
    minimum: u32,
    /// The number of eligible domains whose count equals the minimum.
    at_minimum: u32,
    /// For each domain: the blocked batches.
    waiting: Vec<VecDeque<usize>>,
}

struct AffinityState {
    counts: Vec<Vec<u32>>,
    is_empty: bool,
    waiting: Vec<usize>,
}

/// The topology group that blocks a batch.
#[derive(Clone, Copy)]
enum Blocker {
    Spread(usize),
    Affinity { group: usize, term: usize },
}

struct Replay<'r> {
    sites: &'r Sites<'r>,
    groups: &'r Groups,
    batches: &'r [PodBatch<'r>],
    left: Vec<u32>,
    /// For each batch: how many of its pods the order has reached that are not placed yet.
    due: Vec<u32>,
    spreads: Vec<SpreadState>,
    affinities: Vec<AffinityState>,
    ready: VecDeque<usize>,
    is_queued: Vec<bool>,
}

impl<'r> Replay<'r> {
    fn new(sites: &'r Sites<'r>, groups: &'r Groups, batches: &'r [PodBatch<'r>]) -> Self {
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
            batches,
            left: batches.iter().map(|batch| batch.share.count).collect(),
            due: vec![0; batches.len()],
            spreads,
            affinities,
            ready: VecDeque::new(),
            is_queued: vec![false; batches.len()],
        }
    }

    fn run(&mut self, order: Order, steps: &[Step]) {
        let groups = self.groups;
        let class = |batch: &PodBatch<'_>| &groups.classes[batch.share.class as usize];
        let mut bound: Vec<usize> = (0..self.batches.len())
            .filter(|batch| class(&self.batches[*batch]).is_bound_by_rules())
            .collect();
        let unbound: Vec<usize> = (0..self.batches.len())
            .filter(|batch| !class(&self.batches[*batch]).is_bound_by_rules())
            .collect();
        if order == Order::AsPlanned {
            self.follow(steps);
        }
        self.due.clone_from(&self.left);
        if order != Order::BySite {
            bound.sort_by_key(|batch| {
                let batch = &self.batches[*batch];
                let strictest =
                    class(batch).spreads.iter().map(|(group, _)| groups.spreads[*group].max_skew).min();
                (strictest.unwrap_or(u32::MAX), batch.share.class, batch.site)
            });
        }
        if order == Order::Backwards {
            bound.reverse();
        }
        if order == Order::UnboundFirst {
            for batch in &unbound {
                self.place(*batch, self.left[*batch]);
            }
        }
        bound.retain(|batch| self.left[*batch] > 0);
        bound.into_iter().for_each(|batch| self.enqueue(batch));
        loop {
            self.advance_ready();
            // A blocked batch is queued again when its group changes. Changes of other groups can unblock it as well,
            // so all blocked batches are checked.
            if self.retry_waiting() {
                continue;
            }
            if !self.release_unbound(&unbound) {
                break;
            }
        }
        // No rule constrains the remaining pods, so they are bound last.
        for batch in unbound {
            self.place(batch, self.left[batch]);
        }
    }

    /// Follows the order stated in the plan. A pod that cannot be placed at its position is placed as soon as possible
    /// after it.
    fn follow(&mut self, steps: &[Step]) {
        for Step { batch, count } in steps {
            let was_waiting = self.due[*batch] > 0;
            self.due[*batch] = self.due[*batch].saturating_add(*count).min(self.left[*batch]);
            if was_waiting && matches!(self.allowance(*batch), (0, Some(_))) {
                continue;
            }
            self.advance(*batch);
            self.advance_ready();
        }
    }

    fn advance_ready(&mut self) {
        while let Some(batch) = self.ready.pop_front() {
            self.is_queued[batch] = false;
            self.advance(batch);
        }
    }

    fn enqueue(&mut self, batch: usize) {
        if !std::mem::replace(&mut self.is_queued[batch], true) {
            self.ready.push_back(batch);
        }
    }

    /// Places as many pods of the batch as the rules allow at this point, and queues the rest at the group that blocks
    /// them.
    fn advance(&mut self, batch: usize) {
        while self.due[batch] > 0 {
            let (allowed, blocker) = self.allowance(batch);
            if allowed > 0 {
                self.place(batch, allowed.min(self.due[batch]));
                continue;
            }
            match blocker {
                Some(Blocker::Spread(group)) => {
                    let key = self.groups.spreads[group].key;
                    if let Some(domain) = self.sites.domains[key].of_site[self.batches[batch].site] {
                        self.spreads[group].waiting[domain as usize].push_back(batch);
                    }
                }
                Some(Blocker::Affinity { group, .. }) => self.affinities[group].waiting.push(batch),
                None => {}
            }
            break;
        }
        self.wake_next(batch);
    }

    /// Queues the next blocked batch if this batch is complete or blocked by another group and the skew still allows
    /// pods.
    fn wake_next(&mut self, batch: usize) {
        let (groups, site) = (self.groups, self.batches[batch].site);
        for (group, _) in &groups.classes[self.batches[batch].share.class as usize].spreads {
            let Some(domain) = self.sites.domains[groups.spreads[*group].key].of_site[site] else { continue };
            if self.spread_capacity(*group, site, true).0 == 0 {
                continue;
            }
            if let Some(next) = self.spreads[*group].waiting[domain as usize].pop_front() {
                self.enqueue(next);
            }
        }
    }

    /// How many pods of this batch would be accepted by kube-scheduler at this point, and what blocks the next pod.
    fn allowance(&self, batch: usize) -> (u32, Option<Blocker>) {
        let site = self.batches[batch].site;
        let class = &self.groups.classes[self.batches[batch].share.class as usize];
        let mut allowed = u32::MAX;
        let mut blocker = None;
        for (group, counts_itself) in &class.spreads {
            let (room, unlimited) = self.spread_capacity(*group, site, *counts_itself);
            if !unlimited && room < allowed {
                allowed = room;
                blocker = Some(Blocker::Spread(*group));
            }
        }
        if let Some((group, matches_itself)) = class.affinity {
            let state = &self.affinities[group];
            for (term, key) in self.groups.affinities[group].keys.iter().enumerate() {
                let Some(domain) = self.sites.domains[*key].of_site[site] else {
                    // A node without the topology label is reported in `groups`.
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

    /// How many pods the skew allows on a site (node); the flag is `true` if their number is unlimited.
    fn spread_capacity(&self, group: usize, site: usize, counts_itself: bool) -> (u32, bool) {
        let (group, state) = (&self.groups.spreads[group], &self.spreads[group]);
        let Some(domain) = self.sites.domains[group.key].of_site[site] else {
            // A node without the topology label is reported in `groups`.
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

    fn place(&mut self, batch: usize, count: u32) {
        if count == 0 {
            return;
        }
        self.left[batch] -= count;
        self.due[batch] = self.due[batch].saturating_sub(count);
        let site = self.batches[batch].site;
        let groups = self.groups;
        let class = &groups.classes[self.batches[batch].share.class as usize];
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
                for batch in std::mem::take(&mut state.waiting) {
                    self.enqueue(batch);
                }
            }
        }
    }

    /// Called after the minimum rose: queues the first blocked batch of every domain with capacity.
    fn wake_spread(&mut self, index: usize) {
        let group = &self.groups.spreads[index];
        for domain in 0..self.spreads[index].waiting.len() {
            let state = &mut self.spreads[index];
            if state.counts[domain] < state.minimum.saturating_add(group.max_skew)
                && let Some(batch) = state.waiting[domain].pop_front()
            {
                self.enqueue(batch);
            }
        }
    }

    /// Queues blocked batches that can be placed at this point; returns `false` if all of them are still blocked.
    fn retry_waiting(&mut self) -> bool {
        let mut movable = Vec::new();
        let mut taken: Vec<VecDeque<usize>> = Vec::new();
        for state in &mut self.spreads {
            taken.extend(state.waiting.iter_mut().filter(|batches| !batches.is_empty()).map(std::mem::take));
        }
        let mut all: Vec<usize> = taken.into_iter().flatten().collect();
        for state in &mut self.affinities {
            all.append(&mut state.waiting);
        }
        all.sort_unstable();
        all.dedup();
        for batch in all {
            if self.left[batch] == 0 {
                continue;
            }
            match self.allowance(batch) {
                (0, Some(_)) => self.advance(batch),
                _ => movable.push(batch),
            }
        }
        let any = !movable.is_empty();
        movable.into_iter().for_each(|batch| self.enqueue(batch));
        any
    }

    /// For every blocked batch that needs it, places one unconstrained pod; returns `false` if there is no such pod.
    fn release_unbound(&mut self, unbound: &[usize]) -> bool {
        let mut released = false;
        for batch in unbound {
            if self.left[*batch] == 0 {
                continue;
            }
            let site = self.batches[*batch].site;
            let class = &self.groups.classes[self.batches[*batch].share.class as usize];
            let raises_minimum = class.counted_by_spread.iter().any(|index| {
                let (group, state) = (&self.groups.spreads[*index], &self.spreads[*index]);
                group.eligible[site]
                    && !group.floor_is_zero
                    && state.waiting.iter().any(|batches| !batches.is_empty())
                    && self.sites.domains[group.key].of_site[site]
                        .is_some_and(|domain| state.counts[domain as usize] == state.minimum)
            });
            let opens_domain = class.counted_by_affinity.iter().any(|index| {
                let (group, state) = (&self.groups.affinities[*index], &self.affinities[*index]);
                state.waiting.iter().any(|waiting| {
                    let wanted_at = self.batches[*waiting].site;
                    group.keys.iter().enumerate().any(|(term, key)| {
                        let domains = &self.sites.domains[*key].of_site;
                        domains[site].is_some()
                            && domains[site] == domains[wanted_at]
                            && domains[site].is_some_and(|domain| state.counts[term][domain as usize] == 0)
                    })
                })
            });
            if raises_minimum || opens_domain {
                self.place(*batch, 1);
                released = true;
            }
        }
        released
    }

    fn report(&self, contents: &Contents<'_>, violations: &mut Vec<Violation>) {
        for (index, batch) in self.batches.iter().enumerate() {
            let left = self.left[index];
            if left == 0 {
                continue;
            }
            let place = self.sites.places[batch.site].clone();
            let pod = contents.pod_name(batch.share);
            let domain_name = |key: usize| {
                let domains = &self.sites.domains[key];
                domains.of_site[batch.site]
                    .map(|domain| domains.names[domain as usize].clone())
                    .unwrap_or_default()
            };
            violations.push(match self.allowance(index).1 {
                Some(Blocker::Spread(group)) => {
                    let (group, state) = (&self.groups.spreads[group], &self.spreads[group]);
                    let domain = self.sites.domains[group.key].of_site[batch.site];
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

    /// If a NodeClaim leaves the topology key of an affinity undecided, every allowed domain must have matching pods;
    /// reports those that have none.
    fn report_undecided_affinity(&self, contents: &Contents<'_>, violations: &mut Vec<Violation>) {
        for batch in self.batches {
            let class = &self.groups.classes[batch.share.class as usize];
            let Some((group, _)) = class.affinity else { continue };
            for (term, key) in self.groups.affinities[group].keys.iter().enumerate() {
                let domains = &self.sites.domains[*key];
                let Some(open) = domains.open.get(&batch.site) else { continue };
                if open.iter().any(|domain| self.affinities[group].counts[term][*domain as usize] == 0) {
                    violations.push(Violation::DomainOpen {
                        place: self.sites.places[batch.site].clone(),
                        pod: contents.pod_name(batch.share),
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
