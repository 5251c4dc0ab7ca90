//! Whether moves that were found at the same time can be made one after the other without looking again.
//!
//! They share no nodes and no room, so only what counts across nodes can come between them: spreads and affinities by
//! zone and the like, limits of pools, reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use crate::command::Destination;

/// What a spread or an affinity counts, and in which namespaces.
type Term<'a> = (&'a LabelSelector, BTreeSet<&'a Arc<str>>);

/// Terms, by number, that a pod has to do with.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// It is counted by these.
    by: Vec<usize>,
    /// It asks for these and is not counted by them.
    looks_at: Vec<usize>,
}

pub(crate) struct Zones {
    /// Pods that something counts across nodes, or that look at such.
    counted: BTreeMap<Arc<PodSpec>, Counted>,
    /// What limits of pools leave, with everything that was noted so far; by pool.
    left: BTreeMap<usize, BTreeMap<Arc<str>, i64>>,
    /// Terms whose pods a move of this round spread otherwise.
    changed: BTreeSet<usize>,
    /// Whether a move of this round took from a reservation.
    is_reserved_taken: bool,
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
                if term.1.contains(&spec.namespace) && term.0.matches(&spec.labels) {
                    of_spec.by.push(number);
                } else if own.contains(term) {
                    of_spec.looks_at.push(number);
                }
            }
            if !of_spec.by.is_empty() || !of_spec.looks_at.is_empty() {
                counted.insert(spec.clone(), of_spec);
            }
        }
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
        Self { counted, left, changed: BTreeSet::new(), is_reserved_taken: false }
    }

    /// Whether the move has pods that something counts across nodes.
    pub(crate) fn counts(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let problem = draft.simulator.problem();
        !self.counted.is_empty()
            && one.moves.iter().any(|(from, _)| {
                let pods = problem.nodes.get(from.node as usize).map(|node| &node.pods);
                pods.and_then(|pods| pods.get(from.pod as usize))
                    .is_some_and(|pod| self.counted.contains_key(&pod.spec))
            })
    }

    /// A round begins.
    pub(crate) fn begin(&mut self) {
        self.changed.clear();
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
        if !needed.iter().all(is_left) {
            return false;
        }
        let (shifted, looked_at) = self.touched(problem, one);
        shifted.is_disjoint(&self.changed) && looked_at.is_disjoint(&self.changed)
    }

    /// Takes a move for made.
    pub(crate) fn note(&mut self, draft: &Draft<'_>, one: &Move) {
        let problem = draft.simulator.problem();
        self.is_reserved_taken |= takes_reserved(problem, one);
        self.changed.extend(self.touched(problem, one).0);
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

    /// Terms whose pods the move spreads otherwise, and terms that pods which it moves only look at.
    fn touched(&self, problem: &Problem, one: &Move) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut changed, mut looked_at) = (BTreeSet::new(), BTreeSet::new());
        if self.counted.is_empty() {
            return (changed, looked_at);
        }
        let mut shifted: BTreeMap<(&Arc<PodSpec>, Option<Arc<str>>), i64> = BTreeMap::new();
        for (from, to) in &one.moves {
            let Some(node) = problem.nodes.get(from.node as usize) else { continue };
            let Some(pod) = node.pods.get(from.pod as usize) else { continue };
            let Some(counted) = self.counted.get(&pod.spec) else { continue };
            looked_at.extend(counted.looks_at.iter().copied());
            let zone_then = match to {
                Destination::Existing(node) => {
                    problem.nodes.get(*node).and_then(|node| node.labels.get(labels::ZONE).cloned())
                }
                Destination::New(number) => {
                    let requirement = one
                        .replacements
                        .get(*number)
                        .and_then(|planned| planned.requirements.get(labels::ZONE));
                    requirement.and_then(|requirement| requirement.single_value().cloned())
                }
            };
            *shifted.entry((&pod.spec, node.labels.get(labels::ZONE).cloned())).or_insert(0) -= 1;
            *shifted.entry((&pod.spec, zone_then)).or_insert(0) += 1;
        }
        for ((spec, _), count) in shifted {
            if count != 0 {
                changed.extend(
                    self.counted.get(spec).into_iter().flat_map(|counted| counted.by.iter().copied()),
                );
            }
        }
        (changed, looked_at)
    }
}

#[derive(Debug, Clone, Copy)]
enum Taken {
    /// Whichever of a node's options is launched.
    AtMost,
    AsPlanned,
}

/// Terms of a pod that hold across nodes.
fn terms_of(spec: &PodSpec) -> impl Iterator<Item = Term<'_>> {
    let spreads = spec.spread.iter().filter(|one| &*one.key != labels::HOSTNAME && one.hard);
    let spreads = spreads.filter_map(|one| Some((one.selector.as_ref()?, [&spec.namespace].into())));
    let affinities = spec.affinity.iter().chain(&spec.anti_affinity);
    let affinities = affinities.filter(|one| &*one.key != labels::HOSTNAME);
    spreads
        .chain(affinities.filter_map(|one| Some((one.selector.as_ref()?, one.namespaces.iter().collect()))))
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
