//! Whether moves can be made one after the other, whichever of them are made at all.
//!
//! They share no nodes and no room, so only what counts across nodes can come between them: spreads and affinities by
//! zone and the like, limits of pools, reservations. Budgets leave out some moves of a plan and delay others, so where
//! pods of one move ask how others are spread, no other move may spread those otherwise, unless it is known that every one
//! of them holds whichever are made (`tally`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use super::tally::{Shift, Tally};
use crate::command::Destination;

/// By which label of nodes, which pods, and in which namespaces a spread or an affinity counts; and how far apart domains may
/// be, for spreads of which that can be followed.
type Term<'a> = (&'a Arc<str>, &'a LabelSelector, BTreeSet<&'a Arc<str>>, Option<u32>);

/// Terms, by number, that a pod has to do with.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// It is counted by these.
    by: Vec<usize>,
    /// It asks for these.
    asks: Vec<usize>,
}

/// What a move has to do with terms.
#[derive(Debug, Clone, Default)]
struct Touched {
    /// Their pods are spread otherwise.
    shifted: BTreeSet<usize>,
    /// Pods that move ask for them.
    asked: BTreeSet<usize>,
    /// How pods of spreads are dealt out afterwards.
    shifts: BTreeMap<usize, Shift>,
}

/// What the moves of a plan have to do with terms, all together.
#[derive(Debug, Clone, Default)]
struct Together {
    shifted: BTreeSet<usize>,
    asked: BTreeSet<usize>,
    /// By term, for spreads.
    tallies: Vec<Option<Tally>>,
}

/// What they have to do with one term.
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

    /// Whether a move stands by itself, and the others with it, as far as this term goes.
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

    /// Whether a move stands by itself, and the others with it, whichever of them are made.
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

    /// Whether no more of those that ask for it can stand.
    fn is_closed(&self, term: usize) -> bool {
        self.shifted.contains(&term) && !self.tallies[term].as_ref().is_some_and(Tally::holds)
    }
}

/// Moves that are being joined with each other.
struct Joining<'t> {
    /// What was noted before.
    before: &'t Together,
    /// `None` where a group became part of a later one.
    groups: Vec<Option<(Move, Touched)>>,
    /// By term: groups that have to do with it.
    of_term: BTreeMap<usize, Vec<usize>>,
}

impl Joining<'_> {
    fn parties(&self, term: usize) -> impl Iterator<Item = usize> {
        let groups = self.of_term.get(&term).into_iter().flatten().copied();
        groups.filter(|number| self.groups[*number].is_some())
    }

    /// Terms that come between a move and all the others but those it is joined with.
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

pub(crate) struct Zones {
    /// Pods that something counts across nodes, or that ask for such.
    counted: BTreeMap<Arc<PodSpec>, Counted>,
    /// By term: the label by which it counts.
    keys: Vec<Arc<str>>,
    /// By candidate: terms that its pods ask for.
    asked_on: Vec<BTreeSet<usize>>,
    /// Everything that was noted so far.
    together: Together,
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
            // Pods that wait will be somewhere by the time a move is made, and nobody knows where.
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
        Self { counted, keys, asked_on, together: Together { tallies, ..Together::default() } }
    }

    /// Whether nothing counts across nodes.
    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// Which of these moves stand by themselves, whichever of those noted so far and of each other are made.
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

    /// The same moves, those that do not stand by themselves joined with those they depend on, where these may be made
    /// together; and those that do not stand even so.
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

    /// Takes a move for made. Nodes whose pods ask for what it spreads otherwise wait for another plan.
    pub(crate) fn note(&mut self, draft: &mut Draft<'_>, one: &Move) {
        let touched = self.touched_by(draft, one);
        let shifted = touched.shifted.clone();
        self.together.add(touched);
        let closed: BTreeSet<usize> =
            shifted.iter().copied().filter(|term| self.together.is_closed(*term)).collect();
        if !shifted.is_empty() {
            for (is_open, asked) in draft.is_open.iter_mut().zip(&self.asked_on).filter(|(open, _)| **open) {
                *is_open &= asked.is_disjoint(&closed);
            }
        }
    }

    fn touched_by(&self, draft: &Draft<'_>, one: &Move) -> Touched {
        let mut touched = Touched::default();
        if self.counted.is_empty() {
            return touched;
        }
        let problem = draft.simulator.problem();
        let mut counts: BTreeMap<(usize, Option<&Arc<str>>), i64> = BTreeMap::new();
        // Everything on the nodes goes, and what moves arrives elsewhere.
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

/// Terms of a pod that hold across nodes. On one node nothing comes between moves but the wish to be where others are:
/// no node that receives pods goes.
fn terms_of(spec: &PodSpec) -> impl Iterator<Item = Term<'_>> {
    let spreads = spec.spread.iter().filter(|one| &*one.key != labels::HOSTNAME && one.hard);
    let apart = spec.anti_affinity.iter().filter(|one| &*one.key != labels::HOSTNAME);
    let affinities = spec.affinity.iter().chain(apart);
    // What one constraint lets through another one may hold back, and then the order counts too.
    let is_only = spreads.clone().count() + affinities.clone().count() == 1;
    let spreads = spreads.filter_map(move |one| {
        let max_skew = (is_only && counts_all_nodes(spec, one)).then_some(one.max_skew);
        Some((&one.key, one.selector.as_ref()?, [&spec.namespace].into(), max_skew))
    });
    let affinities = affinities
        .filter_map(|one| Some((&one.key, one.selector.as_ref()?, one.namespaces.iter().collect(), None)));
    spreads.chain(affinities)
}

/// Whether the spread looks at every node that has its label, whatever the pod asks for besides.
fn counts_all_nodes(spec: &PodSpec, spread: &TopologySpread) -> bool {
    let is_bound = !spec.node_selector.is_empty() || !spec.required_terms.is_empty();
    spread.min_domains.is_none() && !spread.honor_taints && !(spread.honor_affinity && is_bound)
}

/// Every value that a label has or could have on a node that is launched.
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

/// Terms that pods of a node ask for if they have to move.
fn asked_on(problem: &Problem, node: usize, counted: &BTreeMap<Arc<PodSpec>, Counted>) -> BTreeSet<usize> {
    let pods = problem.nodes.get(node).map_or(&[][..], |node| &node.pods);
    let moving = pods.iter().filter(|pod| pod.mobility != Mobility::Stays);
    moving.filter_map(|pod| counted.get(&pod.spec)).flat_map(|counted| counted.asks.iter().copied()).collect()
}
