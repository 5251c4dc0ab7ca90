//! Consolidation of the whole cluster in cost mode: which nodes are removed, what replaces them, and in which order.
//!
//! The plan covers all candidates of one snapshot; every move is simulated after those before it. Each command can be
//! executed without the others and lowers the price. No pod is moved twice, and only commands that budgets allow now are
//! returned.

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

/// The price of the fleet after this number of pods was moved.
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
    /// The price after all commands that were found. Budgets are ignored.
    pub price_after_all_per_hour: f64,
    /// The lower bound of the price of any fleet for the same pods.
    pub lower_bound_per_hour: f64,
    /// One step per command, in order; the last has `price_after_all_per_hour`.
    pub steps: Vec<Step>,
    /// By position: candidates that are not disrupted only because of settings of NodePools.
    pub refused: BTreeMap<usize, Verdict>,
}

/// A simulation of one set of nodes gets this fraction of the effort of a plan for the whole fleet.
const EFFORT_SHARE: u64 = 9;

/// At or below this ratio of the price to the lower bound, only commands with the full saving per disruption are planned.
const COST_RATIO_GOOD: f64 = 1.02;

/// Like [`COST_RATIO_GOOD`], relative to the estimated optimum instead of the lower bound.
const COST_RATIO_GOOD_UNPROVEN: f64 = 1.016;

/// Like [`COST_RATIO_GOOD_UNPROVEN`], for pods that exclude each other on nodes: their relaxation is less exact, and
/// estimates were up to 0.4 % too high.
const COST_RATIO_GOOD_UNPROVEN_APART: f64 = 1.015;

/// Like [`COST_RATIO_GOOD`], relative to the price of a full repack, which includes capacity that no packing can use. The
/// lower bound does not.
const COST_RATIO_VS_REPACK: f64 = 1.005;

/// If the price of a full repack is known, the fleet's price may exceed it by at most this ratio. For few pods the
/// estimated optimum is too high; the price of a repack is exact.
const COST_RATIO_GOOD_VS_REPACK: f64 = 1.012;

/// If there are at most this many NodePools of equal size, each is repacked with the full effort.
const REPACK_POOLS: u64 = 3;

/// Above this ratio of the price to the target price, no full repack is computed.
const COST_RATIO_SKIP_REPACK: f64 = 1.015;

/// No limit to the saving of a pass.
const ALL: f64 = f64::INFINITY;

/// If a pass saves more than this share of the price, commands with a lower saving per disruption are left to a later
/// pass.
const SAVING_SHARE_DEFERS_REST: f64 = 0.02;

/// A saving below this share of the price is negligible.
const SAVING_SHARE_NEGLIGIBLE: f64 = 0.002;

/// If a pass saves more than this share of the price and budgets allow all of it at once, commands with a lower saving
/// per disruption are left to the next pass.
const SAVING_SHARE_PASS_TARGET: f64 = 0.004;

/// The pause after pods were moved with a low saving per disruption, in seconds.
const LOW_YIELD_REST_SECS: i64 = 600;

/// The number of nodes that a budget must allow at once for repacks of large sets.
const REPACK_NODES_MIN: u32 = 16;

/// How long repacks of large sets may go on, in seconds: they take several passes.
const LOW_YIELD_PERIOD_SECS: i64 = 300;

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
    // Nodes that are being deleted are not counted; their replacements are.
    let staying = cluster.state_nodes.iter().filter(|state_node| !state_node.is_marked_for_deletion);
    let price_now: f64 = staying.map(|state_node| state_node.price_per_hour).sum();
    let mut zones = Zones::new(&draft);
    let mut refused = BTreeMap::new();
    let windows =
        Windows::new(cluster, simulator.problem(), candidates, &draft.node_of, waste, !zones.is_empty());
    let means = Means { windows: &windows, rules: &rules, budget_left };
    let effort = (settings.effort / EFFORT_SHARE).max(1);
    let price_near_bound = worths.lower_bound_per_hour * COST_RATIO_GOOD;
    let may_repack = may_repack(candidates, budget_left);
    // Deferred moves have a higher saving per disruption than the moves that would be found next, and may need the same
    // nodes. So if budgets allow all moves found so far at once, the search ends and the rest is found in the next
    // pass.
    let is_enough = |zones: &Zones, moves: &[Move]| {
        zones.deferred_saving_per_hour() > SAVING_SHARE_NEGLIGIBLE * price_now
            || may_repack && saving_per_hour(moves) > SAVING_SHARE_PASS_TARGET * price_now
    };
    // With zonal spreads, the moves of one round exclude further candidates, so all rounds are run.
    let is_divided = may_repack && zones.is_empty();
    let mut deletions = Deletions::new(worth, price_now);
    if !is_divided {
        // Deletions without a replacement are searched first, for all candidates.
        merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, None, &mut moves));
    }
    let easy = if may_repack { &replacing::HIGH_YIELD[..] } else { &replacing::HIGH_YIELD_SMALL_BUDGET };
    for manner in easy {
        if is_divided && !is_enough(&zones, &moves) {
            // Deletions use free capacity that other commands may need, so they must reach the same saving per disruption.
            let least = Some(manner.least);
            merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, least, &mut moves));
        }
        if is_enough(&zones, &moves) {
            break;
        }
        let wanted =
            if is_divided { SAVING_SHARE_PASS_TARGET * price_now - saving_per_hour(&moves) } else { ALL };
        let easy = replacing::run(&mut draft, &mut zones, &means, manner, effort, wanted, &mut moves);
        merge(&mut refused, easy);
    }
    if is_divided && !is_enough(&zones, &moves) {
        merge(&mut refused, deletions.best(&mut draft, &mut zones, &means, None, &mut moves));
    }
    let price_then = price_now - saving_per_hour(&moves);
    // With zonal spreads simulations take long, so one pass runs only one of the two searches.
    let pass_saving_max = if zones.is_empty() { SAVING_SHARE_DEFERS_REST } else { SAVING_SHARE_NEGLIGIBLE };
    let is_over = !is_enough(&zones, &moves) && price_now - price_then <= pass_saving_max * price_now;
    // The remaining commands have a low saving per disruption. They are used only until the target price is reached, and not in
    // a pass that saves much already.
    let is_expensive = |price: f64, price_target: f64| is_over && price > price_target;
    let mut price_target = price_near_bound;
    // A full repack and the estimated optimum take long, so both are computed in parallel.
    let (mut repack, mut is_draft_of_moves) = (None, true);
    if is_expensive(price_then, price_near_bound) {
        let find_repack = || {
            let is_wanted = may_repack
                && price_now - price_then < SAVING_SHARE_NEGLIGIBLE * price_now
                && price_then <= price_near_bound * COST_RATIO_SKIP_REPACK;
            let repack = || price_of_full_repack(cluster, simulator, candidates, price_now, settings.effort);
            is_wanted.then(repack).flatten()
        };
        let find_estimated_optimum = || worths.estimated_optimum_per_hour(&cluster.problem);
        let mut fair = Vec::new();
        let find_fair = || {
            replacing::run(&mut draft, &mut zones, &means, &replacing::MEDIUM_YIELD, effort, ALL, &mut fair)
        };
        let (estimated_optimum, why);
        // The search that takes longest is started first; the other searches run on the remaining threads.
        (repack, (estimated_optimum, why)) =
            rayon::join(find_repack, || rayon::join(find_estimated_optimum, find_fair));
        price_target = price_target.max(
            estimated_optimum
                * if is_apart(cluster) { COST_RATIO_GOOD_UNPROVEN_APART } else { COST_RATIO_GOOD_UNPROVEN },
        );
        if is_expensive(price_then, price_target) {
            merge(&mut refused, why);
            moves.extend(as_far_as(price_target, price_then, fair));
        } else {
            is_draft_of_moves = fair.is_empty();
        }
    }
    let saved = saving_per_hour(&moves);
    let mut poor = Vec::new();
    let may_repack = saved < SAVING_SHARE_NEGLIGIBLE * price_now && may_repack;
    // If a full repack would cost more than the current fleet, its price is not used as a target.
    if let Some(repack) = repack.filter(|repack| may_repack && *repack < price_now) {
        price_target = price_target
            .min(repack * COST_RATIO_GOOD_VS_REPACK)
            .max(repack * COST_RATIO_VS_REPACK)
            .max(price_near_bound);
    }
    if may_repack && is_expensive(price_now - saved, price_target) {
        let is_restarted = zones.has_blocked_candidates() || !is_draft_of_moves;
        if is_restarted {
            // The moves found so far exclude other nodes, so the search is repeated without these moves.
            draft = Draft::new(cluster, simulator, candidates);
            zones = Zones::new(&draft);
        }
        for (candidate, is_open) in candidates.iter().zip(&mut draft.is_open) {
            *is_open &= allows_low_yield_moves(cluster, &cluster.state_nodes[candidate.state_node]);
        }
        let wanted = price_now - if is_restarted { 0.0 } else { saved } - price_target;
        let manner = if is_apart(cluster) { &replacing::REPACK_APART } else { &replacing::REPACK };
        let effort = repack_effort(cluster, settings.effort);
        let why = replacing::run(&mut draft, &mut zones, &means, manner, effort, wanted, &mut poor);
        merge(&mut refused, why);
        if is_restarted && saving_per_hour(&poor) > saved {
            moves.clear();
        } else if is_restarted {
            poor.clear();
        }
        poor = as_far_as(price_target, price_now - saving_per_hour(&moves), poor);
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

/// The price of a full repack: all candidates of a NodePool replaced at once, NodePool by NodePool.
fn price_of_full_repack(
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
    let effort = repack_effort(cluster, effort);
    let saving = |own: &Vec<usize>| {
        let effort = (effort * REPACK_POOLS * own.len() as u64 / open as u64).clamp(1, effort);
        Some(draft.ask(own, &[], Mode::Cost, effort)?.one.saving_per_hour())
    };
    let savings: Vec<Option<f64>> = pools.par_iter().map(saving).collect();
    // NodePools that cannot be repacked, or only at a higher price, keep their price.
    let saved = savings.into_iter().flatten().map(|saving| saving.max(0.0)).reduce(|sum, one| sum + one)?;
    Some(price_now_per_hour - saved)
}

/// Keeps the moves with the highest saving per disruption that are needed to lower the price to the target.
fn as_far_as(price_target_per_hour: f64, price_now_per_hour: f64, mut moves: Vec<Move>) -> Vec<Move> {
    moves.sort_by(best_first);
    let mut price = price_now_per_hour;
    moves.retain(|one| {
        let is_needed = price > price_target_per_hour;
        if is_needed {
            price -= one.saving_per_hour();
        }
        is_needed
    });
    moves
}

fn best_first(a: &Move, b: &Move) -> Ordering {
    b.saving_per_disruption().total_cmp(&a.saving_per_disruption()).then_with(|| a.sources.cmp(&b.sources))
}

/// The relaxation of large sets gets the full effort, because the sets are few. If pods exclude each other on nodes, a
/// lower effort is used, because the relaxation would take too long.
fn repack_effort(cluster: &Cluster, effort: u64) -> u64 {
    if is_apart(cluster) { (effort.min(EFFORT_DEFAULT) * 9 / 10).max(1) } else { effort }
}

/// Whether pods that could move exclude others on nodes.
fn is_apart(cluster: &Cluster) -> bool {
    let is_apart = |spec: &PodSpec| {
        let spreads = spec.spread.iter().filter(|one| one.hard).map(|one| &one.key);
        let mut keys = spreads.chain(spec.anti_affinity.iter().map(|one| &one.key));
        keys.any(|key| &**key == labels::HOSTNAME)
    };
    let mut pods = cluster.problem.nodes.iter().flat_map(|node| &node.pods);
    pods.any(|pod| pod.mobility != Mobility::Stays && is_apart(&pod.spec))
}

/// Whether the budgets of at least one NodePool allow enough nodes to be disrupted at once for a repack.
fn may_repack(candidates: &[Candidate], budget_left: &BTreeMap<Arc<str>, u32>) -> bool {
    let is_enough = |one: &Candidate| budget_left.get(&one.pool).is_none_or(|left| *left >= REPACK_NODES_MIN);
    candidates.iter().any(is_enough)
}

/// Whether commands with a low saving per disruption may move pods away from the node. Pods are not always bound to
/// their planned nodes, so there would always be something to correct. Therefore such commands run for at most
/// `LOW_YIELD_PERIOD_SECS`, move each pod at most once, and then pause for `LOW_YIELD_REST_SECS`.
fn allows_low_yield_moves(cluster: &Cluster, state_node: &StateNode) -> bool {
    let Some(window) = cluster.low_yield else { return true };
    if cluster.now_secs.saturating_sub(window.last_secs) >= LOW_YIELD_REST_SECS {
        return true;
    }
    let moved = state_node.pods.iter().filter_map(|node_pod| node_pod.moved_at_secs);
    cluster.now_secs.saturating_sub(window.began_secs) < LOW_YIELD_PERIOD_SECS
        && moved.chain(state_node.moved_onto_at_secs).all(|at| at < window.began_secs)
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
    fn low_yield_moves_are_limited_in_time_and_to_one_per_pod() {
        let allowed = |now_secs, window: Option<(i64, i64)>, moved_onto_at_secs| {
            let window = window.map(|(began_secs, last_secs)| LowYieldWindow { began_secs, last_secs });
            let cluster = Cluster { now_secs, low_yield: window, ..Cluster::default() };
            allows_low_yield_moves(&cluster, &StateNode { moved_onto_at_secs, ..StateNode::default() })
        };
        // Without a low-yield period, earlier moves do not count.
        assert!(allowed(1000, None, Some(999)));
        // The low-yield period is in progress.
        assert!(allowed(1000, Some((900, 990)), None));
        assert!(allowed(1000, Some((900, 990)), Some(899)), "moved before the period began");
        assert!(!allowed(1000, Some((900, 990)), Some(900)), "moved in this period already");
        // The low-yield period has reached its maximum duration.
        assert!(!allowed(1000, Some((700, 990)), None));
        // The pause is over after 600 seconds.
        assert!(!allowed(1589, Some((700, 990)), None));
        assert!(allowed(1590, Some((700, 990)), Some(985)));
    }
}
