//! Nodes that can be deleted without a replacement: their pods fit on other nodes.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::problem::Mode;
use karpenter_scheduling::simulate::BoundAt;
use rayon::prelude::*;

use super::accept::Yield;
use super::draft::{Draft, Found, Move};
use super::order::Zones;
use super::replacing::Means;
use crate::command::Destination;
use crate::verdict::Verdict;

/// The number of nodes that are simulated together at first.
const BATCH_START: usize = 16;

/// The maximum number of nodes of one command whose deletions depend on each other; upstream's multi-node limit.
const TOGETHER_MAX: usize = 100;

/// With zonal spreads, at most this number of nodes or a tenth of them is deleted per pass. Nodes that receive pods are
/// kept, so the next candidates are chosen better after these deletions.
const AT_ONCE_SHARE: usize = 10;

/// If deletions save no more than this share of the price, only one order of them is tried.
const MANY: f64 = 0.02;

/// The deletions of one pass. Free capacity only decreases during a pass, so a candidate that could not be deleted is
/// not tried again.
pub(crate) struct Deletions {
    /// By candidate: the dual price of its pods.
    worth: Vec<f64>,
    price_per_hour: f64,
    is_tried: Vec<bool>,
}

impl Deletions {
    pub(crate) fn new(worth: Vec<f64>, price_per_hour: f64) -> Self {
        let is_tried = vec![false; worth.len()];
        Self { worth, price_per_hour, is_tried }
    }

    /// Like [`run`] for candidates with at least this saving per disruption, in the best of several orders; only the first
    /// order if there is little to delete.
    ///
    /// Free capacity is limited, so the order decides which nodes can be deleted. The orders are: by saving per
    /// disruption, and by saving per used capacity, where capacity is valued at the dual prices of the pods.
    pub(crate) fn best(
        &mut self,
        draft: &mut Draft<'_>,
        zones: &mut Zones,
        means: &Means<'_>,
        least: Option<Yield>,
        moves: &mut Vec<Move>,
    ) -> BTreeMap<usize, Verdict> {
        let rules = means.rules;
        let wanted = self.wanted(draft, means, least);
        wanted.iter().for_each(|candidate| self.is_tried[*candidate] = true);
        let price = |candidate: usize| draft.candidates[candidate].price_per_hour;
        let for_price = |candidate: usize| draft.candidates[candidate].savings_ratio();
        let per_worth = |candidate: usize| price(candidate) / self.worth[candidate].max(1e-9);
        let by_saving_per_disruption = in_order(draft, &wanted, for_price);
        let for_room = in_order(draft, &wanted, per_worth);
        let both = in_order(draft, &wanted, |candidate| for_price(candidate) * per_worth(candidate));
        let attempt = |order: &Vec<usize>| {
            let (mut draft, mut zones, mut moves) = (draft.fork(), zones.clone(), Vec::new());
            let refused = run(&mut draft, &mut zones, means, order, &mut moves);
            (draft, zones, moves, refused)
        };
        let saved = |moves: &[Move]| -> f64 { moves.iter().map(Move::saving_per_hour).sum() };
        let first = attempt(&by_saving_per_disruption);
        let found = if saved(&first.2) <= MANY * self.price_per_hour {
            first
        } else {
            // An order with a higher disruption cost is used only if it saves much more.
            let gain = |moves: &[Move]| {
                let disruption_cost: f64 = moves.iter().map(|one| one.disruption_cost).sum();
                saved(moves) - rules.least_saving_per_hour(disruption_cost, Yield::GREAT)
            };
            let others: Vec<_> = [for_room, both].par_iter().map(attempt).collect();
            others
                .into_iter()
                .fold(first, |best, next| if gain(&next.2) > gain(&best.2) { next } else { best })
        };
        let (more, refused);
        (*draft, *zones, more, refused) = found;
        moves.extend(more);
        refused
    }

    /// Candidates that were not tried yet and whose deletion without a replacement saves enough per disruption.
    fn wanted(&self, draft: &Draft<'_>, means: &Means<'_>, least: Option<Yield>) -> Vec<usize> {
        let yields_enough = |candidate: &usize| {
            let one = &draft.candidates[*candidate];
            least.is_none_or(|least| {
                one.price_per_hour >= means.rules.least_saving_per_hour(one.reschedule_cost, least)
            })
        };
        let open = (0..draft.candidates.len()).filter(|candidate| draft.is_open[*candidate]);
        open.filter(|candidate| !self.is_tried[*candidate]).filter(yields_enough).collect()
    }
}

/// Candidates, the highest expected saving first.
fn in_order(draft: &Draft<'_>, candidates: &[usize], expected: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut order = candidates.to_vec();
    order.sort_by(|a, b| {
        let claim = |candidate: usize| &draft.candidates[candidate].claim;
        expected(*b).total_cmp(&expected(*a)).then_with(|| claim(*a).cmp(claim(*b)))
    });
    order
}

/// Commits deletions that fit and that the settings of NodePools allow, in the given order, each as a move of its own unless
/// it depends on others. Returns those that settings do not allow.
fn run(
    draft: &mut Draft<'_>,
    zones: &mut Zones,
    means: &Means<'_>,
    order: &[usize],
    moves: &mut Vec<Move>,
) -> BTreeMap<usize, Verdict> {
    let mut refused = BTreeMap::new();
    let mut rest: Vec<usize> = Vec::new();
    for candidate in order {
        match means.rules.may_be_deleted(draft, *candidate) {
            Ok(()) => rest.push(*candidate),
            Err(why) => {
                refused.insert(*candidate, why);
            }
        }
    }
    let mut batch = BATCH_START;
    let gone_max = if zones.is_empty() {
        usize::MAX
    } else {
        (draft.candidates.len() / AT_ONCE_SHARE).max(TOGETHER_MAX)
    };
    // Nodes whose deletion depends on other deletions: pods that are moved to them now would be moved twice.
    let mut deleted_later: BTreeSet<usize> = BTreeSet::new();
    let mut waiting: Vec<usize> = Vec::new();
    loop {
        rest.retain(|candidate| draft.is_open[*candidate]);
        let mut onto = draft.receivers();
        onto.retain(|node| !deleted_later.contains(node));
        if batch == 1 {
            // Most candidates cannot be deleted any more, so the search continues with those that can.
            let fits: Vec<bool> =
                rest.par_iter().map(|candidate| delete(draft, &[*candidate], &onto).is_some()).collect();
            rest = rest
                .into_iter()
                .zip(fits)
                .filter(|(_, fits)| *fits)
                .map(|(candidate, _)| candidate)
                .collect();
        }
        if rest.is_empty() && moves.is_empty() && !waiting.is_empty() {
            // The deletions that these candidates depend on are not possible. Some of the candidates may be deleted
            // without them.
            zones.retry_deferred(waiting.iter().map(|one| draft.candidates[*one].price_per_hour).sum());
            deleted_later.clear();
            rest = std::mem::take(&mut waiting);
            batch = BATCH_START;
            continue;
        }
        if rest.is_empty() {
            return refused;
        }
        let gone: usize = moves.iter().map(|one| one.sources.len()).sum();
        if gone >= gone_max {
            zones.defer(rest.iter().map(|one| draft.candidates[*one].price_per_hour).sum());
            return refused;
        }
        // Search for the longest prefix of the list that can be deleted together, by doubling and halving the step.
        let mut fitting: Option<(Found, Vec<Move>)> = None;
        let mut length = 0;
        let mut step = batch.min(rest.len());
        let mut most = rest.len().min(gone_max - gone);
        while step > 0 && length < most {
            let end = (length + step).min(most);
            let mut sources = rest[..end].to_vec();
            sources.sort_unstable();
            match delete(draft, &sources, &onto) {
                Some(found) => {
                    let parts = split(draft, &found.one, &rest[..end]);
                    let may_go_together =
                        |one: &Move| one.sources.len() <= TOGETHER_MAX && means.may_go_together(draft, one);
                    let (joined, apart) = zones.merge_dependent(draft, &parts, may_go_together);
                    let apart: BTreeSet<usize> = apart.iter().flat_map(|one| &one.sources).copied().collect();
                    if apart.is_empty() {
                        fitting = Some((found, joined));
                        length = end;
                        step *= 2;
                    } else if !rest[..length].iter().any(|one| apart.contains(one)) {
                        // This deletion depends on others and is tried again after them.
                        zones.defer(apart.iter().map(|one| draft.candidates[*one].price_per_hour).sum());
                        deleted_later.extend(apart.iter().map(|one| draft.node_of[*one]));
                        waiting.extend(rest.iter().filter(|one| apart.contains(one)));
                        rest.retain(|one| !apart.contains(one));
                        most = rest.len().min(gone_max - gone);
                        step = step.min(rest.len() - length);
                    } else {
                        step /= 2;
                    }
                }
                None => step /= 2,
            }
        }
        if let Some((found, parts)) = fitting {
            draft.commit(&found);
            parts.iter().for_each(|one| zones.record(draft, one));
            moves.extend(parts);
        }
        // The next candidate cannot be deleted together with the prefix, so it is skipped.
        let is_enough = gone + length >= gone_max;
        rest.drain(..(length + usize::from(!is_enough)).min(rest.len()));
        batch = (length / 2).max(1);
    }
}

fn delete(draft: &Draft<'_>, sources: &[usize], onto: &[usize]) -> Option<Found> {
    draft.ask(sources, onto, Mode::Compat, 0).filter(|found| found.one.replacements.is_empty())
}

/// One move per node, in the given order.
fn split(draft: &Draft<'_>, found: &Move, sources: &[usize]) -> Vec<Move> {
    let of = |source: &usize| {
        let node = draft.node_of[*source] as u32;
        let moves = found.moves.iter().filter(|(from, _)| from.node == node).copied().collect();
        deletion(draft, *source, moves)
    };
    sources.iter().map(of).collect()
}

/// The deletion of a node without a replacement.
pub(crate) fn deletion(draft: &Draft<'_>, source: usize, moves: Vec<(BoundAt, Destination)>) -> Move {
    let candidate = &draft.candidates[source];
    Move {
        sources: vec![source],
        replacements: Vec::new(),
        moves,
        price_before_per_hour: candidate.price_per_hour,
        price_after_per_hour: 0.0,
        disruption_cost: candidate.reschedule_cost,
    }
}
