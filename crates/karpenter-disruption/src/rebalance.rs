//! Savings for the whole fleet at once: which nodes go, what takes their place, in which order, and how far it leads.
//!
//! The plan is made for all candidates on one snapshot: every move sees those before it. It is paid in instalments:
//! each command can be carried out by itself and makes the fleet cheaper by itself, no pod is moved twice, and only
//! what budgets allow now is returned as commands.

pub(crate) mod accept;
mod deletes;
mod draft;
mod fluid;
mod order;
mod replacing;
mod tally;
mod windows;
pub(crate) mod worth;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{EFFORT_DEFAULT, Mobility, Mode};
use karpenter_scheduling::simulate::Simulator;
use rayon::prelude::*;

use crate::cluster::{Cluster, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::settings::Settings;
use crate::verdict::Verdict;
use accept::Rules;
use deletes::Deletions;
use draft::{Draft, Move};
use order::Zones;
use replacing::Means;
use windows::Windows;
use worth::Worths;

/// A point on the way: what the fleet costs after so many pods were moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub pods_moved: usize,
    pub price_per_hour: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Rebalancing {
    /// Commands that may be executed now, highest saving per disruption first.
    pub commands: Vec<Command>,
    pub price_now_per_hour: f64,
    /// With everything that was found carried out, budgets aside.
    pub price_after_all_per_hour: f64,
    /// No fleet for the same pods costs less.
    pub lower_bound_per_hour: f64,
    /// The way to `price_after_all_per_hour`, in the order of the commands.
    pub steps: Vec<Step>,
    /// Candidates, by position, that would be part of a move if owners of pools asked for less.
    pub refused: BTreeMap<usize, Verdict>,
}

/// Many small questions are asked; none of them gets the effort that one for a whole fleet would get.
const EFFORT_SHARE: u64 = 9;

/// A fleet that costs no more than this many times the least possible is left in peace, unless much is to be had for
/// little trouble.
const DEAR: f64 = 1.02;

/// The same where the least possible is known but for its proof.
const LIKELY_DEAR: f64 = 1.016;

/// The same where pods are kept apart: their program is solved less far, and guesses were up to 0.4 % too high.
const LIKELY_DEAR_APART: f64 = 1.015;

/// So is one that costs no more than this many times what the same pods would cost if all of them were planned anew: some
/// pods fill no node, and no bound knows that.
const NEAR: f64 = 1.005;

/// And where such a plan is known, a fleet may be dearer than it by three fifths of what it may be dearer than the least possible:
/// the guess at that is too high where pods are few, and a plan is no guess.
const DEARER_THAN_ANEW: f64 = 1.012;

/// So many pools, if they are equal, are planned anew with all the effort there is.
const ANEW_POOLS: u64 = 3;

/// As long as a fleet costs more than this many times what would be good enough, nobody asks what it would cost anew.
const NEARLY_DEAR: f64 = 1.015;

/// However much can be saved is wanted.
const ALL: f64 = f64::INFINITY;

/// While so much of the price is being saved, what brings less has to wait: it looks different afterwards.
const MUCH: f64 = 0.02;

/// A pass that saves less than this share of the price has next to nothing to do.
const LITTLE: f64 = 0.002;

/// A pass that saves more than this share of the price leaves what brings less for the trouble to the next one, where budgets
/// let all of it go at once.
const ENOUGH: f64 = 0.004;

/// How long after pods were moved for a poor yield nothing is moved for one again.
const REST_SECS: i64 = 600;

/// Where fewer nodes may go at once, packing them anew only breaks them up.
const THOROUGH_NODES_LEAST: u32 = 16;

/// How long that may take: it is done in instalments, and not everything lands where it was planned.
const THOROUGH_SECS: i64 = 300;

pub fn plan(
    cluster: &Cluster,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    budget_left: &BTreeMap<Arc<str>, u32>,
    settings: &Settings,
) -> Rebalancing {
    let mut draft = Draft::new(cluster, simulator, candidates);
    let rules = Rules::new(cluster);
    let worths = Worths::of(&cluster.problem, settings.effort);
    let worth: Vec<f64> = draft.node_of.iter().map(|node| worths.node(&cluster.problem, *node)).collect();
    let waste = candidates.iter().zip(&worth).map(|(one, worth)| one.price_per_hour - worth).collect();
    let mut moves: Vec<Move> = Vec::new();
    // What is on its way out is paid for no longer, and what takes its place is.
    let staying = cluster.state_nodes.iter().filter(|state_node| !state_node.is_marked_for_deletion);
    let price_now: f64 = staying.map(|state_node| state_node.price_per_hour).sum();
    let mut zones = Zones::new(&draft);
    let mut refused = BTreeMap::new();
    let windows =
        Windows::new(cluster, simulator.problem(), candidates, &draft.node_of, waste, !zones.is_empty());
    let means = Means { windows: &windows, rules: &rules, budget_left };
    let effort = (settings.effort / EFFORT_SHARE).max(1);
    let least_possible = worths.lower_bound_per_hour * DEAR;
    let may_be_thorough = may_be_thorough(candidates, budget_left);
    // What waits for others to move first saves more for the trouble than what would come next, and may need its nodes.
    // So does what was found, where budgets let it go at once: the rest looks different afterwards.
    let is_enough = |zones: &Zones, moves: &[Move]| {
        zones.waiting_per_hour() > LITTLE * price_now
            || may_be_thorough && saving_per_hour(moves) > ENOUGH * price_now
    };
    // Where pods are spread, what was found in a round keeps others waiting: then all rounds have their turn.
    let is_divided = may_be_thorough && zones.is_empty();
    let mut deletions = Deletions::new(worth, price_now);
    if !is_divided {
        // Nodes go for nothing wherever they can.
        merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, None, &mut moves));
    }
    let easy = if may_be_thorough { &replacing::EASY[..] } else { &replacing::EASY_OF_FEW };
    for manner in easy {
        if is_divided && !is_enough(&zones, &moves) {
            // Those that go for nothing need room, which others may need more: they have to yield as much as others.
            let least = Some(manner.least);
            merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, least, &mut moves));
        }
        if is_enough(&zones, &moves) {
            break;
        }
        let wanted = if is_divided { ENOUGH * price_now - saving_per_hour(&moves) } else { ALL };
        let easy = replacing::run(&mut draft, &mut zones, &means, manner, effort, wanted, &mut moves);
        merge(&mut refused, easy);
    }
    if is_divided && !is_enough(&zones, &moves) {
        merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, None, &mut moves));
    }
    let price_then = price_now - saving_per_hour(&moves);
    // Where pods are spread, questions take long: then one look does either this or that.
    let under_way_most = if zones.is_empty() { MUCH } else { LITTLE };
    let is_over = !is_enough(&zones, &moves) && price_now - price_then <= under_way_most * price_now;
    // From here on little is had for the trouble: only as far as the fleet would still be dear, and not while much is
    // under way.
    let is_dear = |price: f64, good_enough: f64| is_over && price > good_enough;
    let mut good_enough = least_possible;
    // What a plan for all pods would cost takes long to find out, and what it may cost at best; so both go on beside.
    let (mut anew, mut is_draft_of_moves) = (None, true);
    if is_dear(price_then, least_possible) {
        let find_anew = || {
            let is_wanted = may_be_thorough
                && price_now - price_then < LITTLE * price_now
                && price_then <= least_possible * NEARLY_DEAR;
            let anew = || price_of_all_anew(cluster, simulator, candidates, price_now, settings.effort);
            is_wanted.then(anew).flatten()
        };
        let find_likely_least = || worths.estimated_optimum_per_hour(&cluster.problem);
        let mut fair = Vec::new();
        let find_fair =
            || replacing::run(&mut draft, &mut zones, &means, &replacing::FAIR, effort, ALL, &mut fair);
        let (likely_least, why);
        // The longest one first: the threads that are left share what can be divided.
        (anew, (likely_least, why)) = rayon::join(find_anew, || rayon::join(find_likely_least, find_fair));
        good_enough =
            good_enough.max(likely_least * if is_apart(cluster) { LIKELY_DEAR_APART } else { LIKELY_DEAR });
        if is_dear(price_then, good_enough) {
            merge(&mut refused, why);
            moves.extend(as_far_as(good_enough, price_then, fair));
        } else {
            is_draft_of_moves = fair.is_empty();
        }
    }
    let saved = saving_per_hour(&moves);
    let mut poor = Vec::new();
    let may_be_thorough = saved < LITTLE * price_now && may_be_thorough;
    // One that is dearer says nothing but that it was made in a hurry.
    if let Some(anew) = anew.filter(|anew| may_be_thorough && *anew < price_now) {
        good_enough = good_enough.min(anew * DEARER_THAN_ANEW).max(anew * NEAR).max(least_possible);
    }
    if may_be_thorough && is_dear(price_now - saved, good_enough) {
        let is_anew = zones.has_closed() || !is_draft_of_moves;
        if is_anew {
            // What was found keeps other nodes where they are.
            draft = Draft::new(cluster, simulator, candidates);
            zones = Zones::new(&draft);
        }
        for (candidate, is_open) in candidates.iter().zip(&mut draft.is_open) {
            *is_open &= has_rested(cluster, &cluster.state_nodes[candidate.state_node]);
        }
        let wanted = price_now - if is_anew { 0.0 } else { saved } - good_enough;
        let manner = if is_apart(cluster) { &replacing::THOROUGH_APART } else { &replacing::THOROUGH };
        let effort = thorough_effort(cluster, settings.effort);
        let why = replacing::run(&mut draft, &mut zones, &means, manner, effort, wanted, &mut poor);
        merge(&mut refused, why);
        if is_anew && saving_per_hour(&poor) > saved {
            moves.clear();
        } else if is_anew {
            poor.clear();
        }
        poor = as_far_as(good_enough, price_now - saving_per_hour(&moves), poor);
    }
    let mut rebalancing = Rebalancing {
        price_now_per_hour: price_now,
        lower_bound_per_hour: worths.lower_bound_per_hour,
        refused,
        ..Rebalancing::default()
    };
    let mut all: Vec<(Move, bool)> = moves.into_iter().map(|one| (one, false)).collect();
    all.extend(poor.into_iter().map(|one| (one, true)));
    all.sort_by(|(a, _), (b, _)| best_first(a, b));
    let (mut price, mut pods_moved) = (price_now, 0);
    for (one, is_low_yield) in all {
        price -= one.saving_per_hour();
        pods_moved += one.moves.len();
        rebalancing.steps.push(Step { pods_moved, price_per_hour: price });
        rebalancing.commands.push(command(candidates, one, is_low_yield));
    }
    rebalancing.price_after_all_per_hour = price;
    rebalancing
}

fn merge(refused: &mut BTreeMap<usize, Verdict>, more: BTreeMap<usize, Verdict>) {
    for (position, why) in more {
        refused.entry(position).or_insert(why);
    }
}

fn saving_per_hour(moves: &[Move]) -> f64 {
    moves.iter().map(Move::saving_per_hour).sum()
}

/// What the fleet would cost if all candidates of a pool were replaced at once by what their pods need, pool by pool.
fn price_of_all_anew(
    cluster: &Cluster,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    price_now_per_hour: f64,
    effort: u64,
) -> Option<f64> {
    let draft = Draft::new(cluster, simulator, candidates);
    let mut by_pool: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
    for (number, candidate) in candidates.iter().enumerate().filter(|(number, _)| draft.is_open[*number]) {
        by_pool.entry(&candidate.pool).or_default().push(number);
    }
    let pools: Vec<Vec<usize>> = by_pool.into_values().collect();
    let open: usize = pools.iter().map(Vec::len).sum();
    let effort = thorough_effort(cluster, effort);
    let saving = |own: &Vec<usize>| {
        let effort = (effort * ANEW_POOLS * own.len() as u64 / open as u64).clamp(1, effort);
        Some(draft.ask(own, &[], Mode::Cost, effort)?.one.saving_per_hour())
    };
    let savings: Vec<Option<f64>> = pools.par_iter().map(saving).collect();
    // What cannot be planned anew stays as it is, and so does what would only be dearer.
    let saved = savings.into_iter().flatten().map(|saving| saving.max(0.0)).reduce(|sum, one| sum + one)?;
    Some(price_now_per_hour - saved)
}

/// The best of the moves, as many as it takes to get from one price to another.
fn as_far_as(price_then_per_hour: f64, price_now_per_hour: f64, mut moves: Vec<Move>) -> Vec<Move> {
    moves.sort_by(best_first);
    let mut price = price_now_per_hour;
    moves.retain(|one| {
        let is_needed = price > price_then_per_hour;
        if is_needed {
            price -= one.saving_per_hour();
        }
        is_needed
    });
    moves
}

fn best_first(a: &Move, b: &Move) -> Ordering {
    b.saving_per_trouble().total_cmp(&a.saving_per_trouble()).then_with(|| a.sources.cmp(&b.sources))
}

/// Large sets are few, and well packed only with all the effort there is. Where Deployments keep their pods apart on nodes a
/// second look at each takes too long.
fn thorough_effort(cluster: &Cluster, effort: u64) -> u64 {
    if is_apart(cluster) { (effort.min(EFFORT_DEFAULT) * 9 / 10).max(1) } else { effort }
}

/// Whether pods that could move are kept apart from others on nodes.
fn is_apart(cluster: &Cluster) -> bool {
    let is_apart = |spec: &PodSpec| {
        let spreads = spec.spread.iter().filter(|one| one.hard).map(|one| &one.key);
        let mut keys = spreads.chain(spec.anti_affinity.iter().map(|one| &one.key));
        keys.any(|key| &**key == labels::HOSTNAME)
    };
    let mut pods = cluster.problem.nodes.iter().flat_map(|node| &node.pods);
    pods.any(|pod| pod.mobility != Mobility::Stays && is_apart(&pod.spec))
}

/// Whether budgets, where there are any, let enough nodes of some pool go at once.
fn may_be_thorough(candidates: &[Candidate], budget_left: &BTreeMap<Arc<str>, u32>) -> bool {
    let is_enough =
        |one: &Candidate| budget_left.get(&one.pool).is_none_or(|left| *left >= THOROUGH_NODES_LEAST);
    candidates.iter().any(is_enough)
}

/// Whether pods may be moved away from here for a poor yield. Pods do not always land where they were planned, and putting
/// that right for little again and again would never end: it is done for a while, each pod once, and then not for long.
fn has_rested(cluster: &Cluster, state_node: &StateNode) -> bool {
    let Some(thorough) = cluster.low_yield else { return true };
    if cluster.now_secs.saturating_sub(thorough.last_secs) >= REST_SECS {
        return true;
    }
    let moved = state_node.pods.iter().filter_map(|node_pod| node_pod.moved_at_secs);
    cluster.now_secs.saturating_sub(thorough.began_secs) < THOROUGH_SECS
        && moved.chain(state_node.moved_onto_at_secs).all(|at| at < thorough.began_secs)
}

fn command(candidates: &[Candidate], one: Move, is_low_yield: bool) -> Command {
    Command {
        method: Method::Rebalance,
        decision: if one.replacements.is_empty() { Decision::Delete } else { Decision::Replace },
        candidates: one.sources.iter().map(|source| candidates[*source].clone()).collect(),
        replacements: one.replacements,
        static_pool: None,
        moves: one.moves,
        price_before_per_hour: one.price_before_per_hour,
        price_after_per_hour: one.price_after_per_hour,
        termination_grace_period_secs: None,
        is_low_yield,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::LowYieldWindow;

    #[test]
    fn pods_are_moved_for_little_once_and_then_not_for_long() {
        let allowed = |now_secs, thorough: Option<(i64, i64)>, moved_onto_at_secs| {
            let thorough = thorough.map(|(began_secs, last_secs)| LowYieldWindow { began_secs, last_secs });
            let cluster = Cluster { now_secs, low_yield: thorough, ..Cluster::default() };
            has_rested(&cluster, &StateNode { moved_onto_at_secs, ..StateNode::default() })
        };
        // Whatever was moved for a better yield does not count.
        assert!(allowed(1000, None, Some(999)));
        // Still at it.
        assert!(allowed(1000, Some((900, 990)), None));
        assert!(allowed(1000, Some((900, 990)), Some(899)), "moved before it began");
        assert!(!allowed(1000, Some((900, 990)), Some(900)), "moved once already");
        // It has gone on for long enough.
        assert!(!allowed(1000, Some((700, 990)), None));
        // The rest is over.
        assert!(!allowed(1589, Some((700, 990)), None));
        assert!(allowed(1590, Some((700, 990)), Some(985)));
    }
}
