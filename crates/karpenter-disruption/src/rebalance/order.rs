//! Whether moves can be made one after the other, whichever of them are made at all.
//!
//! They share no nodes and no room, so only what counts across nodes can come between them: spreads and affinities by
//! zone and the like, limits of pools, reservations. Budgets leave out some moves of a plan and delay others, so where
//! pods of one move ask how others are spread, no other move may spread those otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use crate::command::Destination;

/// By which label of nodes, which pods, and in which namespaces a spread or an affinity counts.
type Term<'a> = (&'a Arc<str>, &'a LabelSelector, BTreeSet<&'a Arc<str>>);

/// Terms, by number, that a pod has to do with.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// It is counted by these.
    by: Vec<usize>,
    /// It asks for these.
    asks: Vec<usize>,
}

/// What moves have to do with terms.
#[derive(Debug, Clone, Default)]
struct Touched {
    /// Their pods are spread otherwise.
    shifted: BTreeSet<usize>,
    /// Pods that move ask for them.
    asked: BTreeSet<usize>,
}

impl Touched {
    fn is_independent_of(&self, other: &Self) -> bool {
        self.shifted.is_disjoint(&other.asked) && self.asked.is_disjoint(&other.shifted)
    }

    fn add(&mut self, other: Self) {
        self.shifted.extend(other.shifted);
        self.asked.extend(other.asked);
    }
}

#[derive(Clone)]
pub(crate) struct Zones {
    /// Pods that something counts across nodes, or that ask for such.
    counted: BTreeMap<Arc<PodSpec>, Counted>,
    /// By term: the label by which it counts.
    keys: Vec<Arc<str>>,
    /// By candidate: terms that its pods ask for.
    asked_on: Vec<BTreeSet<usize>>,
    /// Everything that was noted so far.
    touched: Touched,
    /// What limits of pools leave, with everything that was noted so far; by pool.
    left: BTreeMap<usize, BTreeMap<Arc<str>, i64>>,
    /// Whether a move of this round took from a reservation.
    is_reserved_taken: bool,
    has_closed: bool,
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
            keys: terms.iter().map(|(key, ..)| Arc::clone(key)).collect(),
            asked_on,
            touched: Touched::default(),
            left,
            is_reserved_taken: false,
            has_closed: false,
        }
    }

    /// Which of these moves stand by themselves, whichever of those noted so far and of each other are made.
    pub(crate) fn standing(&self, draft: &Draft<'_>, moves: &[Move]) -> Vec<bool> {
        let mut touched = self.touched.clone();
        let stands = |one: &Move| {
            let own = self.touched_by(draft, one);
            let stands = own.is_independent_of(&touched);
            if stands {
                touched.add(own);
            }
            stands
        };
        moves.iter().map(stands).collect()
    }

    /// Whether candidates were closed because of what was noted.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed
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
        if !touched.shifted.is_empty() {
            for (is_open, asked) in draft.is_open.iter_mut().zip(&self.asked_on) {
                let is_in_the_way = *is_open && !asked.is_disjoint(&touched.shifted);
                *is_open &= !is_in_the_way;
                self.has_closed |= is_in_the_way;
            }
        }
        self.touched.add(touched);
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
                *counts.entry((term, node.labels.get(key))).or_insert(0) -= 1;
                *counts.entry((term, then)).or_insert(0) += 1;
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
    let spreads =
        spreads.filter_map(|one| Some((&one.key, one.selector.as_ref()?, [&spec.namespace].into())));
    let apart = spec.anti_affinity.iter().filter(|one| &*one.key != labels::HOSTNAME);
    let affinities = spec.affinity.iter().chain(apart);
    let affinities = affinities
        .filter_map(|one| Some((&one.key, one.selector.as_ref()?, one.namespaces.iter().collect())));
    spreads.chain(affinities)
}

/// Terms that pods of a node ask for if they have to move.
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
