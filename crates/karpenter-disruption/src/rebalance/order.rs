//! Checks that the moves of a plan do not depend on each other: any subset can be executed, in any order.
//!
//! Moves share neither nodes nor free capacity. They can only affect each other through constraints that count across
//! nodes: topology spreads, affinities by zone or another label, limits of NodePools, and reservations. Budgets drop some
//! moves and delay others. Therefore a move must not change the distribution that pods of another move depend on,
//! unless the spread holds for any subset of the moves (`tally`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use super::tally::{Shift, Tally};
use crate::command::Destination;

/// A spread or an affinity: topology key, selector, namespaces, and `maxSkew` for spreads that a [`Tally`] can check.
type Term<'a> = (&'a Arc<str>, &'a LabelSelector, BTreeSet<&'a Arc<str>>, Option<u32>);

/// The terms that concern a pod, by index.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// Terms that count the pod.
    by: Vec<usize>,
    /// Terms that the pod has.
    asks: Vec<usize>,
}

/// The terms that a move affects or depends on.
#[derive(Debug, Clone, Default)]
struct Touched {
    /// Terms for which the move changes the distribution of pods.
    shifted: BTreeSet<usize>,
    /// Terms that moved pods have.
    asked: BTreeSet<usize>,
    /// By spread, the change of the number of pods per domain.
    shifts: BTreeMap<usize, Shift>,
}

/// The terms that the moves of a plan together affect or depend on.
#[derive(Debug, Clone, Default)]
struct Together {
    shifted: BTreeSet<usize>,
    asked: BTreeSet<usize>,
    /// By term; `None` for terms that are not spreads.
    tallies: Vec<Option<Tally>>,
}

/// How the moves of a plan affect or depend on one term.
struct OfTerm {
    is_shifted: bool,
    is_asked: bool,
    tally: Option<Tally>,
}

impl OfTerm {
    fn add(&mut self, term: usize, own: &Touched) {
        self.is_shifted |= own.shifted.contains(&term);
        self.is_asked |= own.asked.contains(&term);
        if let (Some(tally), Some(shift)) = (&mut self.tally, own.shifts.get(&term)) {
            tally.note(shift);
        }
    }

    /// Whether this term makes neither the move depend on the others nor the others on the move.
    fn admits(mut self, term: usize, own: &Touched) -> bool {
        let is_between =
            own.asked.contains(&term) && self.is_shifted || own.shifted.contains(&term) && self.is_asked;
        if !is_between {
            return true;
        }
        self.add(term, own);
        own.shifts.contains_key(&term) && self.tally.is_some_and(|tally| tally.holds())
    }
}

impl Together {
    fn only(&self, term: usize) -> OfTerm {
        OfTerm {
            is_shifted: self.shifted.contains(&term),
            is_asked: self.asked.contains(&term),
            tally: self.tallies[term].clone(),
        }
    }

    /// Whether no term makes the move depend on the others or the others on the move.
    fn admits(&self, own: &Touched) -> bool {
        own.asked.union(&own.shifted).all(|term| self.only(*term).admits(*term, own))
    }

    fn add(&mut self, own: Touched) {
        for (term, shift) in own.shifts {
            if let Some(tally) = &mut self.tallies[term] {
                tally.note(&shift);
            }
        }
        self.shifted.extend(own.shifted);
        self.asked.extend(own.asked);
    }

    /// Whether any further move whose pods have this term would depend on the noted moves.
    fn is_closed(&self, term: usize) -> bool {
        self.shifted.contains(&term) && !self.tallies[term].as_ref().is_some_and(Tally::holds)
    }
}

/// Groups of moves during the merge of dependent moves.
struct Joining<'t> {
    /// The moves that were noted before.
    before: &'t Together,
    /// `None` for a group that was merged into a later one.
    groups: Vec<Option<(Move, Touched)>>,
    /// By term: groups that affect it or depend on it.
    of_term: BTreeMap<usize, Vec<usize>>,
}

impl Joining<'_> {
    fn parties(&self, term: usize) -> impl Iterator<Item = usize> {
        let groups = self.of_term.get(&term).into_iter().flatten().copied();
        groups.filter(|number| self.groups[*number].is_some())
    }

    /// Terms through which a move and groups outside of `joined` depend on each other.
    fn between(&self, own: &Touched, joined: &BTreeSet<usize>) -> Vec<usize> {
        let comes_between = |term: &usize| {
            let mut together = self.before.only(*term);
            let others = self.parties(*term).filter(|number| !joined.contains(number));
            for (_, touched) in others.filter_map(|number| self.groups[number].as_ref()) {
                together.add(*term, touched);
            }
            !together.admits(*term, own)
        };
        own.asked.union(&own.shifted).copied().filter(comes_between).collect()
    }

    fn put(&mut self, one: Move, own: Touched, joined: &BTreeSet<usize>) {
        joined.iter().for_each(|number| self.groups[*number] = None);
        for term in own.asked.union(&own.shifted) {
            self.of_term.entry(*term).or_default().push(self.groups.len());
        }
        self.groups.push(Some((one, own)));
    }
}

#[derive(Clone)]
pub(crate) struct Zones {
    /// Pods that have a term, or that a term counts.
    counted: BTreeMap<Arc<PodSpec>, Counted>,
    /// By term: its topology key.
    keys: Vec<Arc<str>>,
    /// By candidate: terms that its pods have.
    asked_on: Vec<BTreeSet<usize>>,
    /// All noted moves.
    together: Together,
    /// What limits of pools leave, with everything that was noted so far; by pool.
    left: BTreeMap<usize, BTreeMap<Arc<str>, i64>>,
    /// Whether a move of this round took from a reservation.
    is_reserved_taken: bool,
    has_closed: bool,
    /// What moves would save that wait for another plan because they do not stand with those of this one.
    waiting_per_hour: f64,
}

impl Zones {
    pub(crate) fn new(draft: &Draft<'_>) -> Self {
        let problem = draft.simulator.problem();
        let specs: BTreeSet<&Arc<PodSpec>> =
            problem.nodes.iter().flat_map(|node| &node.pods).map(|pod| &pod.spec).collect();
        let terms: BTreeSet<Term<'_>> = specs.iter().flat_map(|spec| terms_of(spec)).collect();
        let mut counted = BTreeMap::new();
        for spec in specs {
            let own: BTreeSet<Term<'_>> = terms_of(spec).collect();
            let mut of_spec = Counted::default();
            for (number, term) in terms.iter().enumerate() {
                if term.2.contains(&spec.namespace) && term.1.matches(&spec.labels) {
                    of_spec.by.push(number);
                }
                if own.contains(term) {
                    of_spec.asks.push(number);
                }
            }
            if !of_spec.by.is_empty() || !of_spec.asks.is_empty() {
                counted.insert(spec.clone(), of_spec);
            }
        }
        let keys: Vec<Arc<str>> = terms.iter().map(|(key, ..)| Arc::clone(key)).collect();
        let mut domains_of: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
        let mut tallies: Vec<Option<Tally>> = Vec::new();
        for (key, selector, namespaces, max_skew) in &terms {
            // Pending pods will be bound before a move is executed, and their domain is not known.
            let is_waiting =
                |spec: &PodSpec| namespaces.contains(&spec.namespace) && selector.matches(&spec.labels);
            let max_skew = max_skew.filter(|_| !problem.pods.iter().any(|group| is_waiting(&group.spec)));
            tallies.push(max_skew.and_then(|max_skew| {
                let domains = domains_of.entry(key).or_insert_with(|| domains(problem, key));
                Tally::new(max_skew, domains.clone())
            }));
        }
        for node in &problem.nodes {
            for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
                for term in counted.get(&pod.spec).into_iter().flat_map(|counted: &Counted| &counted.by) {
                    if let Some(tally) = &mut tallies[*term] {
                        tally.count(node.labels.get(&keys[*term]));
                    }
                }
            }
        }
        let asked_on = draft.node_of.iter().map(|node| asked_on(problem, *node, &counted)).collect();
        let mut left = limits_left(problem);
        // Pods that wait get nodes of their own.
        for planned in
            (problem.nodes.len()..draft.simulator.node_count()).filter_map(|at| draft.simulator.node(at))
        {
            let pool = problem.pools.iter().position(|pool| Some(&pool.name) == planned.pool.as_ref());
            let known = pool.and_then(|pool| {
                let name = planned.labels.get(labels::INSTANCE_TYPE)?;
                problem.catalogs.get(problem.pools[pool].catalog)?.iter().find(|one| one.name == *name)
            });
            let capacity = known.map_or(&planned.allocatable, |one| &one.capacity);
            if let Some(left) = pool.and_then(|pool| left.get_mut(&pool)) {
                left.iter_mut().for_each(|(name, left)| *left -= amount(capacity, name));
            }
        }
        Self {
            counted,
            keys,
            asked_on,
            together: Together { tallies, ..Together::default() },
            left,
            is_reserved_taken: false,
            has_closed: false,
            waiting_per_hour: 0.0,
        }
    }

    /// Whether nothing counts across nodes.
    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// For each move, whether it is independent of the noted moves and of the preceding independent ones.
    pub(crate) fn standing(&self, draft: &Draft<'_>, moves: &[Move]) -> Vec<bool> {
        let mut together = self.together.clone();
        let stands = |one: &Move| {
            let own = self.touched_by(draft, one);
            let stands = together.admits(&own);
            if stands {
                together.add(own);
            }
            stands
        };
        moves.iter().map(stands).collect()
    }

    /// Merges moves that depend on each other if `may_go_together` allows it. Returns the independent moves, and those
    /// that still depend on others.
    pub(crate) fn joined(
        &self,
        draft: &Draft<'_>,
        moves: &[Move],
        may_go_together: impl Fn(&Move) -> bool,
    ) -> (Vec<Move>, Vec<Move>) {
        let mut joining = Joining { before: &self.together, groups: Vec::new(), of_term: BTreeMap::new() };
        let mut waiting = Vec::new();
        for first in moves {
            let (mut one, mut own) = (first.clone(), self.touched_by(draft, first));
            let mut members: BTreeSet<usize> = BTreeSet::new();
            let stands = loop {
                let between = joining.between(&own, &members);
                if between.is_empty() {
                    break true;
                }
                let parties = between.iter().flat_map(|term| joining.parties(*term));
                let more: BTreeSet<usize> = parties.filter(|number| !members.contains(number)).collect();
                for (other, _) in more.iter().filter_map(|number| joining.groups[*number].as_ref()) {
                    one = one.with(other);
                }
                if more.is_empty() || !may_go_together(&one) {
                    break false;
                }
                members.extend(more);
                own = self.touched_by(draft, &one);
            };
            if stands {
                joining.put(one, own, &members);
            } else {
                waiting.push(first.clone());
            }
        }
        (joining.groups.into_iter().flatten().map(|(one, _)| one).collect(), waiting)
    }

    /// Whether some candidates are no longer as free to move as they were before all that was noted.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// A move that is worth so much waits for another plan.
    pub(crate) fn wait(&mut self, saving_per_hour: f64) {
        self.waiting_per_hour += saving_per_hour;
    }

    /// Moves that are worth so much wait no longer.
    pub(crate) fn go_on(&mut self, saving_per_hour: f64) {
        self.waiting_per_hour -= saving_per_hour;
    }

    /// What moves that wait would save.
    pub(crate) fn waiting_per_hour(&self) -> f64 {
        self.waiting_per_hour
    }

    /// A round begins.
    pub(crate) fn begin(&mut self) {
        self.is_reserved_taken = false;
    }

    /// Whether the move is as good as it was when the round began.
    pub(crate) fn may_follow(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let problem = draft.simulator.problem();
        if self.is_reserved_taken && takes_reserved(problem, one) {
            return false;
        }
        let needed = self.taken(problem, one, Taken::AtMost);
        let is_left = |(pool, needed): (&usize, &BTreeMap<Arc<str>, i64>)| {
            let left = self.left.get(pool);
            needed.iter().all(|(name, needed)| left.and_then(|left| left.get(name)) >= Some(needed))
        };
        needed.iter().all(is_left)
    }

    /// Takes a move for made. Nodes whose pods ask for what it spreads otherwise wait for another plan.
    pub(crate) fn note(&mut self, draft: &mut Draft<'_>, one: &Move) {
        let problem = draft.simulator.problem();
        self.is_reserved_taken |= takes_reserved(problem, one);
        let touched = self.touched_by(draft, one);
        let shifted = touched.shifted.clone();
        self.together.add(touched);
        let closed: BTreeSet<usize> =
            shifted.iter().copied().filter(|term| self.together.is_closed(*term)).collect();
        if !shifted.is_empty() {
            for (is_open, asked) in draft.is_open.iter_mut().zip(&self.asked_on).filter(|(open, _)| **open) {
                self.has_closed |= !asked.is_disjoint(&shifted);
                *is_open &= asked.is_disjoint(&closed);
            }
        }
        for (pool, taken) in self.taken(problem, one, Taken::AsPlanned) {
            let Some(left) = self.left.get_mut(&pool) else { continue };
            for (name, taken) in taken {
                left.entry(name).and_modify(|left| *left -= taken);
            }
        }
        // Nodes that go give back what is known of them.
        for node in one.sources.iter().filter_map(|source| problem.nodes.get(draft.node_of[*source])) {
            let pool = problem.pools.iter().position(|pool| Some(&pool.name) == node.pool.as_ref());
            let Some(left) = pool.and_then(|pool| self.left.get_mut(&pool)) else { continue };
            left.iter_mut().for_each(|(name, left)| *left += amount(&node.allocatable, name));
        }
    }

    /// What the move's launches take from limits, by pool.
    fn taken(&self, problem: &Problem, one: &Move, how: Taken) -> BTreeMap<usize, BTreeMap<Arc<str>, i64>> {
        let mut taken: BTreeMap<usize, BTreeMap<Arc<str>, i64>> = BTreeMap::new();
        for planned in &one.replacements {
            let Some(left) = self.left.get(&planned.pool) else { continue };
            let of_pool = taken.entry(planned.pool).or_default();
            for name in left.keys() {
                let options = match how {
                    Taken::AtMost => &planned.instance_type_options[..],
                    Taken::AsPlanned => &[],
                };
                let types = options.iter().chain([&planned.instance_type]);
                let amounts = types.filter_map(|one| type_of(problem, planned, *one));
                let most = amounts.map(|one| amount(&one.capacity, name)).max().unwrap_or(0);
                *of_pool.entry(name.clone()).or_insert(0) += most;
            }
        }
        taken
    }

    fn touched_by(&self, draft: &Draft<'_>, one: &Move) -> Touched {
        let mut touched = Touched::default();
        if self.counted.is_empty() {
            return touched;
        }
        let problem = draft.simulator.problem();
        let mut counts: BTreeMap<(usize, Option<&Arc<str>>), i64> = BTreeMap::new();
        // All pods on the nodes are removed, and the moved pods are placed elsewhere.
        for node in one.sources.iter().filter_map(|source| problem.nodes.get(draft.node_of[*source])) {
            for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
                let terms = self.counted.get(&pod.spec).into_iter().flat_map(|counted| &counted.by);
                for term in terms.copied() {
                    let domain = node.labels.get(&*self.keys[term]);
                    *counts.entry((term, domain)).or_insert(0) -= 1;
                    if let Some(tally) = &self.together.tallies[term] {
                        let shift = touched.shifts.entry(term).or_insert_with(|| tally.no_shift());
                        tally.take(shift, domain);
                    }
                }
            }
        }
        for (from, to) in &one.moves {
            let Some(node) = problem.nodes.get(from.node as usize) else { continue };
            let Some(pod) = node.pods.get(from.pod as usize) else { continue };
            let Some(counted) = self.counted.get(&pod.spec) else { continue };
            touched.asked.extend(counted.asks.iter().copied());
            for term in counted.by.iter().copied() {
                let key = &*self.keys[term];
                let then = match to {
                    Destination::Existing(node) => {
                        problem.nodes.get(*node).and_then(|node| node.labels.get(key))
                    }
                    Destination::New(number) => {
                        let planned = one.replacements.get(*number);
                        let requirement = planned.and_then(|planned| planned.requirements.get(key));
                        requirement.and_then(|requirement| requirement.single_value())
                    }
                };
                *counts.entry((term, then)).or_insert(0) += 1;
                if let Some(tally) = &self.together.tallies[term] {
                    let shift = touched.shifts.entry(term).or_insert_with(|| tally.no_shift());
                    tally.put(shift, then, counted.asks.contains(&term));
                }
            }
        }
        let shifted = counts.into_iter().filter(|(_, count)| *count != 0);
        touched.shifted.extend(shifted.map(|((term, _), _)| term));
        touched
    }
}

#[derive(Debug, Clone, Copy)]
enum Taken {
    /// Whichever of a node's options is launched.
    AtMost,
    AsPlanned,
}

/// Terms of a pod that hold across nodes. On one node nothing comes between moves but the wish to be where others are:
/// no node that receives pods goes.
fn terms_of(spec: &PodSpec) -> impl Iterator<Item = Term<'_>> {
    let spreads = spec.spread.iter().filter(|one| &*one.key != labels::HOSTNAME && one.hard);
    let apart = spec.anti_affinity.iter().filter(|one| &*one.key != labels::HOSTNAME);
    let affinities = spec.affinity.iter().chain(apart);
    // With several constraints the order of placements matters too, which a tally does not model.
    let is_only = spreads.clone().count() + affinities.clone().count() == 1;
    let spreads = spreads.filter_map(move |one| {
        let max_skew = (is_only && counts_all_nodes(spec, one)).then_some(one.max_skew);
        Some((&one.key, one.selector.as_ref()?, [&spec.namespace].into(), max_skew))
    });
    let affinities = affinities
        .filter_map(|one| Some((&one.key, one.selector.as_ref()?, one.namespaces.iter().collect(), None)));
    spreads.chain(affinities)
}

/// Whether the spread counts every node with its topology key, regardless of the pod's other constraints.
fn counts_all_nodes(spec: &PodSpec, spread: &TopologySpread) -> bool {
    let is_bound = !spec.node_selector.is_empty() || !spec.required_terms.is_empty();
    spread.min_domains.is_none() && !spread.honor_taints && !(spread.honor_affinity && is_bound)
}

/// Every value that a label has on a node, or could have on a launched one.
fn domains(problem: &Problem, key: &str) -> Vec<Arc<str>> {
    let mut domains: BTreeSet<Arc<str>> =
        problem.nodes.iter().filter_map(|node| node.labels.get(key).cloned()).collect();
    for pool in &problem.pools {
        domains.extend(pool.labels.get(key).cloned());
        let types = problem.catalogs.get(pool.catalog).into_iter().flat_map(|types| types.iter());
        let of_types = types.flat_map(|one| {
            let offerings = one.offerings.iter().filter(|offering| offering.is_launchable());
            offerings.map(|offering| &offering.requirements).chain([&one.requirements])
        });
        let asked = pool.requirements.get(key);
        let known = of_types.chain([&pool.requirements]).filter_map(|requirements| requirements.get(key));
        let known = known.filter(|requirement| !requirement.complement).flat_map(|one| &one.values);
        domains.extend(known.filter(|value| asked.is_none_or(|asked| asked.has(value))).cloned());
    }
    domains.into_iter().collect()
}

/// Terms of the pods of a node that would have to be rescheduled.
fn asked_on(problem: &Problem, node: usize, counted: &BTreeMap<Arc<PodSpec>, Counted>) -> BTreeSet<usize> {
    let pods = problem.nodes.get(node).map_or(&[][..], |node| &node.pods);
    let moving = pods.iter().filter(|pod| pod.mobility != Mobility::Stays);
    moving.filter_map(|pod| counted.get(&pod.spec)).flat_map(|counted| counted.asks.iter().copied()).collect()
}

fn limits_left(problem: &Problem) -> BTreeMap<usize, BTreeMap<Arc<str>, i64>> {
    let limited = problem.pools.iter().enumerate().filter(|(_, pool)| !pool.limits.is_empty());
    limited
        .map(|(index, pool)| {
            let left = |(name, limit): (&Arc<str>, i64)| (name.clone(), limit - pool.usage.get(name));
            (index, pool.limits.iter().map(left).collect())
        })
        .collect()
}

/// What a node of this capacity counts for.
fn amount(capacity: &ResourceList, name: &str) -> i64 {
    if name == NODES { 1 } else { capacity.get(name) }
}

fn type_of<'p>(problem: &'p Problem, planned: &PlannedNode, index: usize) -> Option<&'p InstanceType> {
    let pool = problem.pools.get(planned.pool)?;
    problem.catalogs.get(pool.catalog)?.get(index)
}

fn takes_reserved(problem: &Problem, one: &Move) -> bool {
    one.replacements.iter().any(|planned| {
        let offering = type_of(problem, planned, planned.instance_type)
            .and_then(|one| one.offerings.get(planned.offering));
        offering.is_none_or(|offering| offering.is_reserved())
    })
}
