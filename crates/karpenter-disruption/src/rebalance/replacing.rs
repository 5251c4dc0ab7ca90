//! Replaces sets of nodes by the cheapest nodes for their pods, in rounds.
//!
//! The sets of a round share neither nodes nor free capacity of other nodes, so they are simulated in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::Mode;
use rayon::prelude::*;

use super::accept::{Rules, Yield};
use super::draft::{Draft, Found, Move};
use super::order::Zones;
use super::windows::{Choice, Windows};
use crate::verdict::Verdict;

/// Parameters of the search: how candidates are grouped into sets, how many sets are simulated at once, and the minimum
/// saving per disruption.
pub(crate) struct Manner {
    rounds: &'static [(Choice, usize)],
    pub(crate) least: Yield,
    /// The number of sets that are simulated before the results are used.
    at_once: usize,
    /// The number of simulated nodes after which a pass ends.
    asked_most: usize,
    /// Sets of at least this number of nodes get the full effort, smaller ones a proportional share.
    full_effort_nodes: usize,
    /// Some replacements may equal candidates, which then stay. The reduced move must save at least this share of the whole
    /// move.
    kept_least: f64,
}

/// The rounds of small sets: single nodes first, then sets of increasing size.
const SMALL: &[(Choice, usize)] = &[
    (Choice::Complementary, 1),
    (Choice::Complementary, 2),
    (Choice::Complementary, 4),
    (Choice::Complementary, 8),
    (Choice::Complementary, 16),
];

/// The minimum saving per disruption starts high and is lowered in steps, so that the commands with the highest saving per
/// disruption use nodes before other commands do.
pub(crate) const HIGH_YIELD: [Manner; 9] = [
    small(Yield::GREAT),
    small(Yield::of(0.33)),
    small(Yield::of(0.28)),
    small(Yield::of(0.24)),
    small(Yield::of(0.2)),
    small(Yield::of(0.17)),
    small(Yield::of(0.14)),
    small(Yield::of(0.12)),
    small(Yield::GOOD),
];

/// Like [`HIGH_YIELD`], for budgets that allow few nodes at once: finer steps would only split the nodes into more commands.
pub(crate) const HIGH_YIELD_SMALL_BUDGET: [Manner; 3] =
    [small(Yield::GREAT), small(Yield::of(0.2)), small(Yield::GOOD)];

/// Small sets with a lower minimum saving per disruption.
pub(crate) const MEDIUM_YIELD: Manner = small(Yield::MEDIUM_YIELD);

const fn small(least: Yield) -> Manner {
    Manner {
        rounds: SMALL,
        least,
        at_once: usize::MAX,
        asked_most: usize::MAX,
        full_effort_nodes: 16,
        kept_least: 0.0,
    }
}

/// Repacking large sets leaves less capacity unused, but moves many pods. The largest sets come first, because smaller
/// ones would use some of their nodes. Each takes as long as all small sets together, so only as many as needed are
/// simulated in one pass.
pub(crate) const REPACK: Manner = Manner {
    rounds: &[
        (Choice::Wasteful, 128),
        (Choice::Wasteful, 64),
        (Choice::Complementary, 64),
        (Choice::Complementary, 32),
    ],
    least: Yield::POOR,
    at_once: 2,
    asked_most: 2 * 128,
    full_effort_nodes: 80,
    kept_least: 0.0,
};

/// Like [`REPACK`], with larger sets, for pods that exclude each other on nodes: replacing a small set of their nodes
/// mostly launches the same nodes again.
pub(crate) const REPACK_APART: Manner = Manner {
    rounds: &[(Choice::Wasteful, 256), (Choice::Complementary, 64), (Choice::Complementary, 32)],
    asked_most: 2 * 256,
    kept_least: 0.5,
    ..REPACK
};

/// Some replacements may equal candidates, which then stay. The reduced move is used, whatever its disruption cost, if it
/// saves at least this share of the whole move.
const KEPT_SAVING: f64 = 0.75;
/// The maximum size of a set in NodePools whose nodes may be replaced by at most one node.
const MANY_TO_ONE: usize = 3;

/// The input that does not change during the search.
pub(crate) struct Means<'a> {
    pub(crate) windows: &'a Windows<'a>,
    pub(crate) rules: &'a Rules<'a>,
    pub(crate) budget_left: &'a BTreeMap<Arc<str>, u32>,
}

impl Means<'_> {
    /// Whether all budgets allow the candidates of the move in one command.
    pub(crate) fn may_go_together(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let mut nodes: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        for source in &one.sources {
            *nodes.entry(&draft.candidates[*source].pool).or_default() += 1;
        }
        let is_within =
            |(pool, count): (&Arc<str>, u32)| self.budget_left.get(pool).is_none_or(|left| count <= *left);
        nodes.into_iter().all(is_within) && self.rules.may_go_together(draft, one)
    }
}

/// Adds moves until they save the wanted amount. Returns the candidates of moves that the settings of a NodePool rejected.
pub(crate) fn run(
    draft: &mut Draft<'_>,
    zones: &mut Zones,
    means: &Means<'_>,
    manner: &Manner,
    effort: u64,
    wanted_per_hour: f64,
    moves: &mut Vec<Move>,
) -> BTreeMap<usize, Verdict> {
    let Means { windows, rules, budget_left } = means;
    let mut refused = BTreeMap::new();
    let (mut asked_before, known) = (0, moves.len());
    let mut known_sets: BTreeSet<Vec<usize>> = BTreeSet::new();
    for (round, (choice, size)) in manner.rounds.iter().copied().enumerate() {
        let size_in = |pool: &Arc<str>| {
            let most = if rules.is_many_to_many(pool) { size } else { size.min(MANY_TO_ONE) };
            // The budget of the NodePool would not allow a larger set.
            match budget_left.get(pool) {
                Some(left) if *left > 0 => most.min(*left as usize),
                _ => most,
            }
        };
        let least = |disruption_cost: f64| rules.least_saving_per_hour(disruption_cost, manner.least);
        let mut sets = windows.choose((choice, size), &draft.is_open, size_in, least);
        // If a NodePool has no more nodes than the largest set, all further sets are equal to it.
        sets.retain(|set| known_sets.insert(set.clone()));
        let asked = with_room(draft, sets, round);
        // Sets of few nodes need less effort.
        let effort_for = |sources: &[usize]| {
            let share = sources.len().min(manner.full_effort_nodes) as u64;
            (effort * share / manner.full_effort_nodes as u64).max(1)
        };
        for asked in asked.chunks(manner.at_once) {
            let saved: f64 = moves[known..].iter().map(Move::saving_per_hour).sum();
            let is_enough = asked_before >= manner.asked_most && moves.len() > known;
            if saved >= wanted_per_hour || is_enough {
                return refused;
            }
            asked_before += asked.iter().map(|(sources, _)| sources.len()).sum::<usize>();
            let found: Vec<Result<Found, Option<Verdict>>> = asked
                .par_iter()
                .map(|(sources, onto)| replace(draft, rules, sources, onto, manner, effort_for(sources)))
                .collect();
            zones.begin_round();
            for (found, (sources, _)) in found.into_iter().zip(asked) {
                let found = match found {
                    Ok(found) => found,
                    Err(why) => {
                        let sources = why.map(|why| sources.iter().map(move |source| (*source, why.clone())));
                        sources.into_iter().flatten().for_each(|(source, why)| {
                            refused.entry(source).or_insert(why);
                        });
                        continue;
                    }
                };
                // The simulations of one round do not consider each other's results, so a set that may conflict with an
                // earlier one is simulated again.
                let found = if zones.is_still_valid(draft, &found.one) {
                    Ok(found)
                } else {
                    let (sources, onto) = (&found.one.sources, &found.onto);
                    replace(draft, rules, sources, onto, manner, effort_for(sources))
                };
                let Ok(found) = found else { continue };
                if zones.are_independent(draft, std::slice::from_ref(&found.one)) != [true] {
                    zones.defer(found.one.saving_per_hour());
                    continue;
                }
                zones.record(draft, &found.one);
                draft.commit(&found);
                moves.push(found.one);
            }
        }
    }
    refused
}

/// Distributes the existing nodes that are not removed, whose free capacity can be used, over the sets.
fn with_room(draft: &Draft<'_>, sets: Vec<Vec<usize>>, round: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let sources: BTreeSet<usize> = sets.iter().flatten().map(|source| draft.node_of[*source]).collect();
    let mut asked: Vec<(Vec<usize>, Vec<usize>)> = sets.into_iter().map(|set| (set, Vec::new())).collect();
    let count = asked.len();
    let receivers = draft.receivers();
    for (number, node) in receivers.into_iter().filter(|node| !sources.contains(node)).enumerate() {
        if let Some((_, onto)) = asked.get_mut((number + round) % count.max(1)) {
            onto.push(node);
        }
    }
    asked
}

/// The cheapest acceptable move that removes these nodes, or the verdict of the setting that rejects it.
fn replace(
    draft: &Draft<'_>,
    rules: &Rules<'_>,
    sources: &[usize],
    onto: &[usize],
    manner: &Manner,
    effort: u64,
) -> Result<Found, Option<Verdict>> {
    let Manner { least, kept_least, .. } = *manner;
    let is_many = sources.iter().all(|source| rules.is_many_to_many(&draft.candidates[*source].pool));
    let mode = if is_many { Mode::Cost } else { Mode::Compat };
    let found = draft.ask(sources, onto, mode, effort).ok_or(None)?;
    rules.accepts(draft, &found.one, least)?;
    let kept = rules.launched_again(draft, &found.one);
    if !kept.is_empty() && kept.len() < sources.len() {
        // A node of the same type would be launched again, so that candidate stays.
        let fewer: Vec<usize> = sources.iter().copied().filter(|source| !kept.contains(source)).collect();
        let mut wider = onto.to_vec();
        wider.extend(kept.iter().map(|source| draft.node_of[*source]));
        wider.sort_unstable();
        let with_kept = draft
            .ask(&fewer, &wider, mode, effort)
            .filter(|found| rules.accepts(draft, &found.one, least).is_ok());
        if let Some(with_kept) = with_kept
            && let (kept, all) = (&with_kept.one, &found.one)
            && kept.saving_per_hour() >= kept_least * all.saving_per_hour()
            && (kept.saving_per_disruption() >= all.saving_per_disruption()
                || kept.saving_per_hour() >= KEPT_SAVING * all.saving_per_hour())
        {
            return Ok(with_kept);
        }
    }
    Ok(found)
}
