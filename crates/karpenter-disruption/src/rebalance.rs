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
mod windows;
mod worth;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_scheduling::simulate::Simulator;

use crate::command::{Candidate, Command, Decision, Method};
use crate::explain::Why;
use crate::fleet::{Fleet, Machine};
use crate::settings::Settings;
use accept::Rules;
use draft::{Draft, Move};
use order::Zones;
use rayon::prelude::*;
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
    /// What may be done now, best saving per trouble first.
    pub commands: Vec<Command>,
    pub price_now_per_hour: f64,
    /// With everything that was found carried out, budgets aside.
    pub price_after_all_per_hour: f64,
    /// No fleet for the same pods costs less.
    pub lower_bound_per_hour: f64,
    /// The way to `price_after_all_per_hour`, in the order of the commands.
    pub steps: Vec<Step>,
    /// Candidates, by position, that would be part of a move if owners of pools asked for less.
    pub refused: BTreeMap<usize, Why>,
}

/// Many small questions are asked; none of them gets the effort that one for a whole fleet would get.
const EFFORT_SHARE: u64 = 3;

/// A fleet that costs no more than this many times the least possible is left in peace, unless much is to be had for
/// little trouble.
const DEAR: f64 = 1.02;

/// How long what was moved is not moved again for a poor yield.
const REST_SECS: i64 = 600;

pub fn plan(
    fleet: &Fleet,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    budget_left: &BTreeMap<Arc<str>, u32>,
    settings: &Settings,
) -> Rebalancing {
    let mut draft = Draft::new(fleet, simulator, candidates);
    let rules = Rules::new(fleet);
    let worths = Worths::of(&fleet.problem, settings.effort);
    let waste: Vec<f64> = candidates
        .iter()
        .zip(&draft.node_of)
        .map(|(candidate, node)| candidate.price_per_hour - worths.node(&fleet.problem, *node))
        .collect();
    let mut moves: Vec<Move> = Vec::new();
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&candidates[*a], &candidates[*b]);
        b.savings_ratio().total_cmp(&a.savings_ratio()).then_with(|| a.claim.cmp(&b.claim))
    });
    deletes::run(&mut draft, &order, &mut moves);
    let problem = draft.simulator.problem().clone();
    let windows = Windows::new(fleet, &problem, candidates, &draft.node_of, waste);
    let effort = (settings.effort / EFFORT_SHARE).max(1);
    let mut refused =
        replacing::run(&mut draft, &windows, &rules, &replacing::EASY, budget_left, effort, &mut moves);
    let price_now: f64 = fleet.machines.iter().map(|machine| machine.price_per_hour).sum();
    let good_enough = worths.lower_bound_per_hour * DEAR;
    // From here on little is had for the trouble: only as far as the fleet would still be dear.
    let is_modest = moves.is_empty() && price_now > good_enough;
    let price_then = price_now - moves.iter().map(Move::saving_per_hour).sum::<f64>();
    if price_then > good_enough {
        let mut fair_moves = Vec::new();
        let fair = replacing::run(
            &mut draft,
            &windows,
            &rules,
            &replacing::FAIR,
            budget_left,
            effort,
            &mut fair_moves,
        );
        for (position, why) in fair {
            refused.entry(position).or_insert(why);
        }
        moves.extend(as_far_as(good_enough, price_then, fair_moves));
    }
    if is_modest && moves.is_empty() {
        for (candidate, is_open) in candidates.iter().zip(&mut draft.is_open) {
            *is_open &= has_rested(&fleet.machines[candidate.machine], fleet.now_secs);
        }
        let poor = replacing::run(
            &mut draft,
            &windows,
            &rules,
            &replacing::THOROUGH,
            budget_left,
            effort,
            &mut moves,
        );
        for (position, why) in poor {
            refused.entry(position).or_insert(why);
        }
        moves = as_far_as(good_enough, price_now, moves);
    }
    let zones = Zones::new(&fleet.problem);
    let gone: BTreeSet<usize> =
        moves.iter().flat_map(|one| &one.sources).map(|source| draft.node_of[*source]).collect();
    // Moves know of those before them. Where pods are counted across nodes, one that needs others is left for later.
    let stands: Vec<bool> = moves
        .par_iter()
        .map(|one| !zones.counts(&fleet.problem, one) || draft.stands_alone(simulator, one, &gone, effort))
        .collect();
    let mut stands = stands.into_iter();
    moves.retain(|_| stands.next().unwrap_or(true));
    moves.sort_by(best_first);
    let mut rebalancing = Rebalancing {
        price_now_per_hour: price_now,
        lower_bound_per_hour: worths.lower_bound_per_hour,
        refused,
        ..Rebalancing::default()
    };
    let (mut price, mut pods_moved) = (price_now, 0);
    for one in moves {
        price -= one.saving_per_hour();
        pods_moved += one.moves.len();
        rebalancing.steps.push(Step { pods_moved, price_per_hour: price });
        rebalancing.commands.push(command(candidates, one));
    }
    rebalancing.price_after_all_per_hour = price;
    rebalancing
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

/// Whether nothing was moved here lately. Pods do not always land where they were planned, and putting that right for
/// little again and again would never end.
fn has_rested(machine: &Machine, now_secs: i64) -> bool {
    let moved = machine.occupants.iter().filter_map(|occupant| occupant.moved_at_secs);
    moved.chain(machine.moved_onto_at_secs).all(|at| now_secs.saturating_sub(at) >= REST_SECS)
}

fn command(candidates: &[Candidate], one: Move) -> Command {
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
    }
}
