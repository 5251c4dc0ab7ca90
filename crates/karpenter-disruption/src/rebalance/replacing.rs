//! Sets of nodes replaced by the cheapest nodes for their pods, round by round.
//!
//! The sets of a round share neither nodes nor room on other nodes, so they are asked about at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::Mode;
use rayon::prelude::*;

use super::accept::{Rules, Yield};
use super::draft::{Draft, Found, Move};
use super::order::Zones;
use super::windows::{Choice, Windows};
use crate::verdict::Verdict;

/// How nodes are put together to be replaced, how many at once, and what that has to be worth.
pub(crate) struct Manner {
    rounds: &'static [(Choice, usize)],
    pub(crate) least: Yield,
    /// Sets that are asked about before anybody looks at what was found.
    at_once: usize,
    /// After questions about so many nodes what was found is enough for one look.
    asked_most: usize,
    /// Sets of so many nodes get all the effort, and smaller ones their share.
    full_effort_nodes: usize,
    /// How much of a saving has to be left at least if nodes stay of which the like would be launched.
    kept_least: f64,
}

/// Small sets first.
const SMALL: &[(Choice, usize)] = &[
    (Choice::Complementary, 1),
    (Choice::Complementary, 2),
    (Choice::Complementary, 4),
    (Choice::Complementary, 8),
    (Choice::Complementary, 16),
];

/// Little trouble for what it saves: what saves most for it comes first, before something else takes its nodes.
pub(crate) const EASY: [Manner; 9] = [
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

/// The same where few nodes may go at once: nobody waits for another look, and fine steps would only share the nodes out.
pub(crate) const EASY_OF_FEW: [Manner; 3] = [small(Yield::GREAT), small(Yield::of(0.2)), small(Yield::GOOD)];

/// The same for a little more.
pub(crate) const FAIR: Manner = small(Yield::FAIR);

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

/// Large sets waste less, and move many pods for that. The largest first: small ones would only break them up. Each takes as
/// long as all small ones together, so there are only as many as it takes; the rest has another look.
pub(crate) const THOROUGH: Manner = Manner {
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

/// The same where pods are kept apart: what few nodes could become is mostly the same again there, so the sets are larger and
/// little is left for later.
pub(crate) const THOROUGH_APART: Manner = Manner {
    rounds: &[(Choice::Wasteful, 256), (Choice::Complementary, 64), (Choice::Complementary, 32)],
    asked_most: 2 * 256,
    kept_least: 0.5,
    ..THOROUGH
};

/// So much of a saving is enough, whatever the trouble, if nodes stay of which the like would be launched.
const KEPT_SAVING: f64 = 0.75;
/// Where several may be replaced only by one.
const MANY_TO_ONE: usize = 3;

/// What does not change while moves are looked for.
pub(crate) struct Means<'a> {
    pub(crate) windows: &'a Windows<'a>,
    pub(crate) rules: &'a Rules<'a>,
    pub(crate) budget_left: &'a BTreeMap<Arc<str>, u32>,
}

impl Means<'_> {
    /// Whether budgets of every kind let all nodes of the move go in one command.
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

/// Adds moves that save as much as is wanted, where that can be had; returns candidates for which there was one that did not
/// meet what the owner of a pool asks for.
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
            // A set that no budget lets through is of no use.
            match budget_left.get(pool) {
                Some(left) if *left > 0 => most.min(*left as usize),
                _ => most,
            }
        };
        let least = |trouble: f64| rules.least_saving_per_hour(trouble, manner.least);
        let mut sets = windows.choose((choice, size), &draft.is_open, size_in, least);
        // Where a pool has no more nodes than the largest set, others are the same again.
        sets.retain(|set| known_sets.insert(set.clone()));
        let asked = with_room(draft, sets, round);
        // What few nodes could become is soon found out.
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
            zones.begin();
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
                // Answers of one round do not know of each other: where that could matter, the question is asked again.
                let found = if zones.may_follow(draft, &found.one) {
                    Ok(found)
                } else {
                    let (sources, onto) = (&found.one.sources, &found.onto);
                    replace(draft, rules, sources, onto, manner, effort_for(sources))
                };
                let Ok(found) = found else { continue };
                if zones.standing(draft, std::slice::from_ref(&found.one)) != [true] {
                    zones.wait(found.one.saving_per_hour());
                    continue;
                }
                zones.note(draft, &found.one);
                draft.commit(&found);
                moves.push(found.one);
            }
        }
    }
    refused
}

/// Room on nodes that stay, dealt out to the sets.
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

/// The cheapest acceptable way to do without these nodes, or which wish of an owner it does not meet.
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
        // A node like one of those that go would be launched: better leave that one where it is.
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
            && (kept.saving_per_trouble() >= all.saving_per_trouble()
                || kept.saving_per_hour() >= KEPT_SAVING * all.saving_per_hour())
        {
            return Ok(with_kept);
        }
    }
    Ok(found)
}
