//! Consolidation of the whole cluster: one linear program decides which nodes are removed, at the least price of all
//! nodes plus the price of moving their pods; every removal is then simulated and becomes a command of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::problem::Mode;
use karpenter_scheduling::simulate::{Removal, RemovalCandidate, RemovalRequest, Simulator};

use crate::balanced::totals;
use crate::lower_bound;
use crate::command::Candidate;
use crate::disruption_price::DisruptionPrices;
use crate::cluster::Cluster;
use crate::rebalance::accept::Rules;
use crate::rebalance::draft::{Draft, Move};
use crate::rebalance::{Rebalancing, Step, command};
use crate::settings::Settings;

/// Commands that launch nodes share this effort.
const LAUNCH_EFFORT_SHARE: u64 = 9;

pub(crate) fn plan(
    cluster: &Cluster,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    budget_left: &BTreeMap<Arc<str>, u32>,
    settings: &Settings,
) -> Rebalancing {
    let mut draft = Draft::new(cluster, simulator, candidates);
    let prices = DisruptionPrices::new(cluster, &totals(cluster), settings.saving_ratio);
    let rules = Rules::new(cluster);
    let open: Vec<usize> = (0..candidates.len()).filter(|number| draft.is_open[*number]).collect();
    let wanted: Vec<RemovalCandidate> = open
        .iter()
        .map(|number| RemovalCandidate {
            node: draft.node_of[*number],
            price_per_hour: candidates[*number].price_per_hour,
            disruption_price_per_hour: prices.of(&candidates[*number]),
        })
        .collect();
    let receivers = draft.receivers();
    let largest = budget_left.values().copied().max().map_or(usize::MAX, |most| (most as usize / 2).max(1));
    let request = RemovalRequest {
        candidates: &wanted,
        onto: &receivers,
        removed_together_max: largest,
        effort: settings.effort,
    };
    let removals = draft.simulator.removals(&request);
    let mut ranked: Vec<(f64, Removal)> = removals
        .removals
        .into_iter()
        .map(|mut removal| {
            removal.candidates.iter_mut().for_each(|one| *one = open[*one]);
            let sum = |of: &dyn Fn(&Candidate) -> f64| -> f64 {
                removal.candidates.iter().map(|one| of(&candidates[*one])).sum()
            };
            let launched: f64 = removal.launches.iter().map(|launch| launch.price_per_hour).sum();
            let saving = sum(&|one| one.price_per_hour) - launched;
            (saving / sum(&|one| prices.of(one)).max(1e-9), removal)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.candidates.cmp(&b.1.candidates)));
    let launching = ranked.iter().filter(|(_, removal)| !removal.launches.is_empty()).count() as u64;
    let effort = (settings.effort / launching.clamp(1, LAUNCH_EFFORT_SHARE)).max(1);
    let mut moves: Vec<Move> = Vec::new();
    let is_worth = |one: &Move| {
        let of: f64 = one.sources.iter().map(|source| prices.of(&candidates[*source])).sum();
        one.saving_per_hour() > of + 1e-9
    };
    for (_, removal) in ranked {
        let mode = if removal.launches.is_empty() { Mode::Compat } else { Mode::Cost };
        let Some(found) = draft.ask_targets(&removal.candidates, &removal.onto, &receivers, mode, effort) else {
            continue;
        };
        if is_worth(&found.one) && rules.accepts_any(&draft, &found.one).is_ok() {
            draft.commit(&found);
            moves.push(found.one);
        }
    }
    let price_now: f64 =
        cluster.state_nodes.iter().filter(|one| !one.is_marked_for_deletion).map(|one| one.price_per_hour).sum();
    let mut plan = Rebalancing {
        price_now_per_hour: price_now,
        lower_bound_per_hour: lower_bound::lower_bound_per_hour(cluster, settings.effort).unwrap_or(0.0),
        ..Rebalancing::default()
    };
    let ratio = |one: &Move| {
        let of: f64 = one.sources.iter().map(|source| prices.of(&candidates[*source])).sum();
        one.saving_per_hour() / of.max(1e-9)
    };
    moves.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)).then_with(|| a.sources.cmp(&b.sources)));
    let (mut price, mut pods_moved) = (price_now, 0);
    for one in moves {
        price -= one.saving_per_hour();
        pods_moved += one.moves.len();
        plan.steps.push(Step { pods_moved, price_per_hour: price });
        plan.commands.push(command(candidates, one, false));
    }
    plan.price_after_all_per_hour = price;
    plan
}
