//! Checks that the moves of a plan do not depend on each other: any subset can be executed, in any order.
//!
//! Moves do not share nodes or free capacity, and the simulator counts limits of NodePools and reservations. Moves affect
//! each other only through constraints that count pods on several nodes (topology spreads, affinities by zone or another
//! label). Budgets may drop or delay some of the moves. Therefore a move must not change a distribution of pods that another
//! move depends on, unless the spread holds for any subset of the moves (`tally`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use super::tally::{Shift, Tally};
use crate::command::Destination;

/// A spread or an affinity: topology key, selector, namespaces, and `maxSkew` for spreads that a [`Tally`] can check.
type Term<'a> = (&'a Arc<str>, &'a LabelSelector, BTreeSet<&'a Arc<str>>, Option<u32>);

/// The terms that concern a pod, by index.
#[derive(Debug, Clone, Default)]
struct TermsOfPod {
    /// Terms whose selector matches the pod.
    counted_by: Vec<usize>,
    /// Terms that are constraints of the pod itself.
    constrained_by: Vec<usize>,
}

/// The terms that a move affects or depends on.
#[derive(Debug, Clone, Default)]
struct Effects {
    /// Terms for which the move changes the distribution of pods.
    shifted: BTreeSet<usize>,
    /// Terms that moved pods have.
    depends_on: BTreeSet<usize>,
    /// By spread, the change of the number of pods per domain.
    shifts: BTreeMap<usize, Shift>,
}

/// The terms that at least one move of a plan affects or depends on.
#[derive(Debug, Clone, Default)]
struct CombinedEffects {
    shifted: BTreeSet<usize>,
    depends_on: BTreeSet<usize>,
    /// By term; `None` for terms that are not spreads.
    tallies: Vec<Option<Tally>>,
}

/// Which moves of a plan affect one term or depend on it.
struct TermState {
    is_shifted: bool,
    is_depended_on: bool,
    tally: Option<Tally>,
}

impl TermState {
    fn add(&mut self, term: usize, own: &Effects) {
        self.is_shifted |= own.shifted.contains(&term);
        self.is_depended_on |= own.depends_on.contains(&term);
        if let (Some(tally), Some(shift)) = (&mut self.tally, own.shifts.get(&term)) {
            tally.note(shift);
        }
    }

    /// Whether a move and the recorded moves are independent with regard to this term.
    fn admits(mut self, term: usize, own: &Effects) -> bool {
        let is_dependency = own.depends_on.contains(&term) && self.is_shifted
            || own.shifted.contains(&term) && self.is_depended_on;
        if !is_dependency {
            return true;
        }
        self.add(term, own);
        own.shifts.contains_key(&term) && self.tally.is_some_and(|tally| tally.holds())
    }
}

impl CombinedEffects {
    fn only(&self, term: usize) -> TermState {
        TermState {
            is_shifted: self.shifted.contains(&term),
            is_depended_on: self.depends_on.contains(&term),
            tally: self.tallies[term].clone(),
        }
    }

    /// Whether a move and the recorded moves are independent with regard to every term.
    fn admits(&self, own: &Effects) -> bool {
        own.depends_on.union(&own.shifted).all(|term| self.only(*term).admits(*term, own))
    }

    fn add(&mut self, own: Effects) {
        for (term, shift) in own.shifts {
            if let Some(tally) = &mut self.tallies[term] {
                tally.note(&shift);
            }
        }
        self.shifted.extend(own.shifted);
        self.depends_on.extend(own.depends_on);
    }

    /// Whether any further move whose pods have this term would depend on the recorded moves.
    fn is_blocked(&self, term: usize) -> bool {
        self.shifted.contains(&term) && !self.tallies[term].as_ref().is_some_and(Tally::holds)
    }
}

/// Groups of moves during the merge of dependent moves.
struct Merging<'t> {
    /// The effects of the moves that were recorded before.
    before: &'t CombinedEffects,
    /// `None` for a group that was merged into a later one.
    groups: Vec<Option<(Move, Effects)>>,
    /// By term: groups that affect it or depend on it.
    groups_by_term: BTreeMap<usize, Vec<usize>>,
}

impl Merging<'_> {
    fn groups_of(&self, term: usize) -> impl Iterator<Item = usize> {
        let groups = self.groups_by_term.get(&term).into_iter().flatten().copied();
        groups.filter(|number| self.groups[*number].is_some())
    }

    /// Terms through which a move and groups outside of `members` depend on each other.
    fn conflicting_terms(&self, own: &Effects, members: &BTreeSet<usize>) -> Vec<usize> {
        let is_conflicting = |term: &usize| {
            let mut combined = self.before.only(*term);
            let others = self.groups_of(*term).filter(|number| !members.contains(number));
            for (_, effects) in others.filter_map(|number| self.groups[number].as_ref()) {
                combined.add(*term, effects);
            }
            !combined.admits(*term, own)
        };
        own.depends_on.union(&own.shifted).copied().filter(is_conflicting).collect()
    }

    fn add_group(&mut self, one_move: Move, own: Effects, members: &BTreeSet<usize>) {
        members.iter().for_each(|number| self.groups[*number] = None);
        for term in own.depends_on.union(&own.shifted) {
            self.groups_by_term.entry(*term).or_default().push(self.groups.len());
        }
        self.groups.push(Some((one_move, own)));
    }
}

pub(crate) struct Zones {
    /// Pods that have a term, or that a term counts.
    counted: BTreeMap<Arc<PodSpec>, TermsOfPod>,
    /// By term: its topology key.
    keys: Vec<Arc<str>>,
    /// By candidate: terms that its pods have.
    terms_on: Vec<BTreeSet<usize>>,
    /// The effects of all recorded moves.
    combined: CombinedEffects,
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
            let mut of_spec = TermsOfPod::default();
            for (number, term) in terms.iter().enumerate() {
                if term.2.contains(&spec.namespace) && term.1.matches(&spec.labels) {
                    of_spec.counted_by.push(number);
                }
                if own.contains(term) {
                    of_spec.constrained_by.push(number);
                }
            }
            if !of_spec.counted_by.is_empty() || !of_spec.constrained_by.is_empty() {
                counted.insert(spec.clone(), of_spec);
            }
        }
        let keys: Vec<Arc<str>> = terms.iter().map(|(key, ..)| Arc::clone(key)).collect();
        let mut domains_of: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
        let mut tallies: Vec<Option<Tally>> = Vec::new();
        for (key, selector, namespaces, max_skew) in &terms {
            // Pending pods will be bound before a move is executed, and it is not known in which domain.
            let is_pending_match =
                |spec: &PodSpec| namespaces.contains(&spec.namespace) && selector.matches(&spec.labels);
            let max_skew =
                max_skew.filter(|_| !problem.pods.iter().any(|group| is_pending_match(&group.spec)));
            tallies.push(max_skew.and_then(|max_skew| {
                let domains = domains_of.entry(key).or_insert_with(|| domains(problem, key));
                Tally::new(max_skew, domains.clone())
            }));
        }
        for node in &problem.nodes {
            for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
                for term in
                    counted.get(&pod.spec).into_iter().flat_map(|counted: &TermsOfPod| &counted.counted_by)
                {
                    if let Some(tally) = &mut tallies[*term] {
                        tally.count(node.labels.get(&keys[*term]));
                    }
                }
            }
        }
        let terms_on = draft.node_of.iter().map(|node| terms_on(problem, *node, &counted)).collect();
        let combined = CombinedEffects { tallies, ..CombinedEffects::default() };
        Self { counted, keys, terms_on, combined }
    }

    /// Whether no pod has a constraint across nodes.
    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// For each move, whether it is independent of the recorded moves and of the preceding independent ones.
    pub(crate) fn are_independent(&self, draft: &Draft<'_>, moves: &[Move]) -> Vec<bool> {
        let mut combined = self.combined.clone();
        let is_independent = |one_move: &Move| {
            let own = self.effects_of(draft, one_move);
            let is_admitted = combined.admits(&own);
            if is_admitted {
                combined.add(own);
            }
            is_admitted
        };
        moves.iter().map(is_independent).collect()
    }

    /// Merges moves that depend on each other if `may_be_merged` allows it. Returns the independent moves, and those
    /// that still depend on others.
    pub(crate) fn merge_dependent(
        &self,
        draft: &Draft<'_>,
        moves: &[Move],
        may_be_merged: impl Fn(&Move) -> bool,
    ) -> (Vec<Move>, Vec<Move>) {
        let mut merging =
            Merging { before: &self.combined, groups: Vec::new(), groups_by_term: BTreeMap::new() };
        let mut still_dependent = Vec::new();
        for one_move in moves {
            let (mut merged, mut own) = (one_move.clone(), self.effects_of(draft, one_move));
            let mut members: BTreeSet<usize> = BTreeSet::new();
            let is_independent = loop {
                let conflicting = merging.conflicting_terms(&own, &members);
                if conflicting.is_empty() {
                    break true;
                }
                let related = conflicting.iter().flat_map(|term| merging.groups_of(*term));
                let more: BTreeSet<usize> = related.filter(|number| !members.contains(number)).collect();
                for (other, _) in more.iter().filter_map(|number| merging.groups[*number].as_ref()) {
                    merged = merged.with(other);
                }
                if more.is_empty() || !may_be_merged(&merged) {
                    break false;
                }
                members.extend(more);
                own = self.effects_of(draft, &merged);
            };
            if is_independent {
                merging.add_group(merged, own, &members);
            } else {
                still_dependent.push(one_move.clone());
            }
        }
        (merging.groups.into_iter().flatten().map(|(merged, _)| merged).collect(), still_dependent)
    }

    /// Records a move as part of the plan. Candidates whose pods depend on a distribution that it changes are excluded from
    /// this plan.
    pub(crate) fn record(&mut self, draft: &mut Draft<'_>, one_move: &Move) {
        let effects = self.effects_of(draft, one_move);
        let shifted = effects.shifted.clone();
        self.combined.add(effects);
        let blocked: BTreeSet<usize> =
            shifted.iter().copied().filter(|term| self.combined.is_blocked(*term)).collect();
        for (is_open, terms) in draft.is_open.iter_mut().zip(&self.terms_on) {
            *is_open &= terms.is_disjoint(&blocked);
        }
    }

    fn effects_of(&self, draft: &Draft<'_>, one_move: &Move) -> Effects {
        let mut effects = Effects::default();
        if self.counted.is_empty() {
            return effects;
        }
        let problem = draft.simulator.problem();
        let mut counts: BTreeMap<(usize, Option<&Arc<str>>), i64> = BTreeMap::new();
        // All pods on the nodes are removed, and the moved pods are placed elsewhere.
        for node in one_move.sources.iter().filter_map(|source| problem.nodes.get(draft.node_of[*source])) {
            for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
                let terms = self.counted.get(&pod.spec).into_iter().flat_map(|counted| &counted.counted_by);
                for term in terms.copied() {
                    let domain = node.labels.get(&*self.keys[term]);
                    *counts.entry((term, domain)).or_insert(0) -= 1;
                    if let Some(tally) = &self.combined.tallies[term] {
                        let shift = effects.shifts.entry(term).or_insert_with(|| tally.no_shift());
                        tally.take(shift, domain);
                    }
                }
            }
        }
        for (from, to) in &one_move.moves {
            let Some(node) = problem.nodes.get(from.node as usize) else { continue };
            let Some(pod) = node.pods.get(from.pod as usize) else { continue };
            let Some(counted) = self.counted.get(&pod.spec) else { continue };
            effects.depends_on.extend(counted.constrained_by.iter().copied());
            for term in counted.counted_by.iter().copied() {
                let key = &*self.keys[term];
                let then = match to {
                    Destination::Existing(node) => {
                        problem.nodes.get(*node).and_then(|node| node.labels.get(key))
                    }
                    Destination::New(number) => {
                        let planned = one_move.replacements.get(*number);
                        let requirement = planned.and_then(|planned| planned.requirements.get(key));
                        requirement.and_then(|requirement| requirement.single_value())
                    }
                };
                *counts.entry((term, then)).or_insert(0) += 1;
                if let Some(tally) = &self.combined.tallies[term] {
                    let shift = effects.shifts.entry(term).or_insert_with(|| tally.no_shift());
                    tally.put(shift, then, counted.constrained_by.contains(&term));
                }
            }
        }
        let shifted = counts.into_iter().filter(|(_, count)| *count != 0);
        effects.shifted.extend(shifted.map(|((term, _), _)| term));
        effects
    }
}

/// The constraints of a pod that count pods on several nodes. Constraints by hostname do not make moves depend on each
/// other, because no node that receives pods is deleted.
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
fn terms_on(problem: &Problem, node: usize, counted: &BTreeMap<Arc<PodSpec>, TermsOfPod>) -> BTreeSet<usize> {
    let pods = problem.nodes.get(node).map_or(&[][..], |node| &node.pods);
    let moving = pods.iter().filter(|pod| pod.mobility != Mobility::Stays);
    moving
        .filter_map(|pod| counted.get(&pod.spec))
        .flat_map(|counted| counted.constrained_by.iter().copied())
        .collect()
}
