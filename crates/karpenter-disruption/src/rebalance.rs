//! Consolidation of the whole cluster. One linear program decides which nodes are removed: it minimises the price of all
//! nodes plus the price of moving pods. Every removal is then simulated and becomes a command of its own.
//!
//! Each command saves more than its own moves are priced at, and can be executed without the others. A plan moves no pod
//! twice. Removals for which that does not hold are merged, split, or dropped.

mod draft;
mod order;
pub(crate) mod rules;
mod tally;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::Mode;
use karpenter_scheduling::simulate::{BoundAt, Removal, RemovalCandidate, RemovalRequest, Simulator};

use crate::balanced::totals;
use crate::cluster::Cluster;
use crate::command::{Candidate, Command, Decision, Destination, Method};
use crate::disruption_price::DisruptionPrices;
use crate::lower_bound;
use crate::settings::Settings;
use crate::verdict::Verdict;
use draft::{Draft, Found, Move};
use order::Zones;
use rules::Rules;

/// The price of all nodes after the first commands of the plan, and the number of pods that these commands move.
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
    /// The price of all nodes after all commands are executed. Budgets are ignored.
    pub price_after_all_per_hour: f64,
    /// The lower bound of the price of any fleet for the same pods.
    pub lower_bound_per_hour: f64,
    /// One step per command, in order; the last has `price_after_all_per_hour`.
    pub steps: Vec<Step>,
    /// By position: candidates that no command removes, with the reason.
    pub refused: BTreeMap<usize, Verdict>,
}

/// The maximum number of nodes that one command removes; upstream's multi-node consolidation has the same limit.
const NODES_PER_COMMAND_MAX: usize = 100;

/// The simulation of a command has the effort divided by this; less if it removes fewer than [`FULL_EFFORT_NODES`] nodes.
const EFFORT_SHARE: u64 = 9;
const FULL_EFFORT_NODES: u64 = 16;

struct Planner<'a> {
    draft: Draft<'a>,
    zones: Zones,
    rules: Rules<'a>,
    prices: DisruptionPrices,
    budget_left: &'a BTreeMap<Arc<str>, u32>,
    effort: u64,
    moves: Vec<Move>,
    rejected: BTreeMap<usize, Verdict>,
}

pub fn plan(
    cluster: &Cluster,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    budget_left: &BTreeMap<Arc<str>, u32>,
    settings: &Settings,
) -> Rebalancing {
    let draft = Draft::new(cluster, simulator, candidates);
    let mut planner = Planner {
        zones: Zones::new(&draft),
        draft,
        rules: Rules::new(cluster),
        prices: DisruptionPrices::new(cluster, &totals(cluster), settings.saving_ratio),
        budget_left,
        effort: (settings.effort / EFFORT_SHARE).max(1),
        moves: Vec::new(),
        rejected: BTreeMap::new(),
    };
    planner.plan(settings.effort);
    let Planner { prices, mut moves, rejected, .. } = planner;
    let ratio = |one: &Move| saving_ratio(&prices, candidates, one);
    moves.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)).then_with(|| a.sources.cmp(&b.sources)));
    let staying = cluster.state_nodes.iter().filter(|one| !one.is_marked_for_deletion);
    let price_now: f64 = staying.map(|one| one.price_per_hour).sum();
    let mut plan = Rebalancing {
        price_now_per_hour: price_now,
        lower_bound_per_hour: lower_bound::lower_bound_per_hour(cluster, settings.effort).unwrap_or(0.0),
        refused: rejected,
        ..Rebalancing::default()
    };
    let (mut price, mut pods_moved) = (price_now, 0);
    for one in moves {
        price -= one.saving_per_hour();
        pods_moved += one.moves.len();
        plan.steps.push(Step { pods_moved, price_per_hour: price });
        plan.commands.push(command(candidates, one));
    }
    plan.price_after_all_per_hour = price;
    plan
}

/// The saving of a command divided by the price of its moves.
fn saving_ratio(prices: &DisruptionPrices, candidates: &[Candidate], one: &Move) -> f64 {
    one.saving_per_hour() / disruption_price(prices, candidates, &one.sources).max(1e-9)
}

fn disruption_price(prices: &DisruptionPrices, candidates: &[Candidate], sources: &[usize]) -> f64 {
    sources.iter().map(|source| prices.of(&candidates[*source])).sum()
}

impl Planner<'_> {
    fn plan(&mut self, effort: u64) {
        let candidates = self.draft.candidates;
        let open: Vec<usize> = (0..candidates.len()).filter(|number| self.draft.is_open[*number]).collect();
        let wanted: Vec<RemovalCandidate> = open
            .iter()
            .map(|number| RemovalCandidate {
                node: self.draft.node_of[*number],
                price_per_hour: candidates[*number].price_per_hour,
                disruption_price_per_hour: self.prices.of(&candidates[*number]),
            })
            .collect();
        let receivers = self.draft.receivers();
        let request = RemovalRequest { candidates: &wanted, onto: &receivers, effort };
        let removals = self.draft.simulator.removals(&request);
        for ((number, terms), one) in open.iter().zip(&removals.terms).zip(&wanted) {
            let verdict = Verdict::Stays {
                price_per_hour: one.price_per_hour,
                pods_elsewhere_per_hour: terms.pods_elsewhere_per_hour,
                free_capacity_per_hour: terms.free_capacity_per_hour,
                pods: self.draft.movable_pods(*number),
                disruption_price_per_hour: one.disruption_price_per_hour,
            };
            let by_owner = self.rules.may_be_deleted(&self.draft, *number).err();
            self.rejected.insert(*number, by_owner.unwrap_or(verdict));
        }
        let mut ranked: Vec<Removal> = removals.removals;
        for removal in &mut ranked {
            removal.candidates.iter_mut().for_each(|one| *one = open[*one]);
        }
        ranked.sort_by(|a, b| self.compare(a, b));
        let (mut left, mut single): (Vec<(Vec<usize>, bool)>, _) = (Vec::new(), Vec::new());
        for removal in ranked {
            let is_deletion = removal.launches.is_empty() && removal.candidates.len() == 1;
            if is_deletion && !self.zones.is_empty() {
                single.push(removal);
            } else if !self.execute(&removal, &receivers) {
                let is_launching = !removal.launches.is_empty();
                left.push((removal.candidates, is_launching));
            }
        }
        self.delete_together(single, &receivers, &mut left);
        for (sources, is_launching) in left {
            self.retry(&sources, is_launching);
        }
    }

    /// Orders by saving per price of the moves, highest first.
    fn compare(&self, a: &Removal, b: &Removal) -> Ordering {
        let ratio = |removal: &Removal| {
            let price: f64 =
                removal.candidates.iter().map(|one| self.draft.candidates[*one].price_per_hour).sum();
            let launched: f64 = removal.launches.iter().map(|launch| launch.price_per_hour).sum();
            let disruption = disruption_price(&self.prices, self.draft.candidates, &removal.candidates);
            (price - launched) / disruption.max(1e-9)
        };
        ratio(b).total_cmp(&ratio(a)).then_with(|| a.candidates.cmp(&b.candidates))
    }

    /// Whether one command may remove these nodes: neither the budgets nor the limit per command are exceeded.
    fn is_within_budgets(&self, sources: &[usize]) -> bool {
        let mut nodes: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        for source in sources {
            *nodes.entry(&self.draft.candidates[*source].pool).or_default() += 1;
        }
        let is_within =
            |(pool, count): (&Arc<str>, u32)| self.budget_left.get(pool).is_none_or(|left| count <= *left);
        sources.len() <= NODES_PER_COMMAND_MAX && nodes.into_iter().all(is_within)
    }

    /// The effort of one simulation, in proportion to the number of removed nodes: fewer nodes need less search.
    fn effort_for(&self, sources: &[usize]) -> u64 {
        let nodes = (sources.len() as u64).min(FULL_EFFORT_NODES);
        (self.effort * nodes / FULL_EFFORT_NODES).max(1)
    }

    /// Simulates a removal as it was planned, and adds it to the plan if it is accepted.
    fn execute(&mut self, removal: &Removal, receivers: &[usize]) -> bool {
        if !self.is_within_budgets(&removal.candidates) {
            return false;
        }
        let mode = if removal.launches.is_empty() { Mode::Compat } else { Mode::Cost };
        let effort = self.effort_for(&removal.candidates);
        let found = self.draft.ask_targets(&removal.candidates, &removal.onto, receivers, mode, effort);
        found.is_some_and(|found| self.take(&found))
    }

    /// Adds a command to the plan if it saves enough, the NodePools' settings allow it, and it depends on no other command.
    fn take(&mut self, found: &Found) -> bool {
        // If the pods of these nodes may not be evicted together, `retry` plans smaller sets of the nodes.
        if found.one.sources.len() > 1 && !self.rules.may_go_together(&self.draft, &found.one) {
            return false;
        }
        if !self.is_worth(&found.one)
            || self.zones.standing(&self.draft, std::slice::from_ref(&found.one)) != [true]
        {
            return false;
        }
        self.draft.commit(found);
        self.zones.note(&mut self.draft, &found.one);
        self.add(found.one.clone());
        true
    }

    fn add(&mut self, one: Move) {
        one.sources.iter().for_each(|source| _ = self.rejected.remove(source));
        self.moves.push(one);
    }

    fn is_worth(&mut self, one: &Move) -> bool {
        let disruption = disruption_price(&self.prices, self.draft.candidates, &one.sources);
        // A node of unknown price counts as 0 $/h. Its deletion is accepted, because it cannot raise the price.
        let is_saving = one.saving_per_hour() > disruption + 1e-9
            || one.replacements.is_empty() && one.saving_per_hour() >= disruption;
        if !is_saving {
            return false;
        }
        match self.rules.accepts(&self.draft, one) {
            Ok(()) => true,
            Err(verdict) => {
                for source in &one.sources {
                    verdict.iter().for_each(|verdict| _ = self.rejected.insert(*source, verdict.clone()));
                }
                false
            }
        }
    }

    /// Plans deletions if some pods have constraints across nodes (spreads, affinities). All deletions are simulated
    /// together; those that depend on each other become one command.
    fn delete_together(
        &mut self,
        mut single: Vec<Removal>,
        receivers: &[usize],
        left: &mut Vec<(Vec<usize>, bool)>,
    ) {
        let mut dropped: Vec<usize> = Vec::new();
        while !single.is_empty() {
            let mut sources: Vec<usize> =
                single.iter().flat_map(|one| one.candidates.iter().copied()).collect();
            sources.sort_unstable();
            let targets: Vec<(BoundAt, usize)> =
                single.iter().flat_map(|one| one.onto.iter().copied()).collect();
            let found = self.draft.ask_targets(&sources, &targets, receivers, Mode::Compat, 0);
            let mut failed: BTreeSet<usize> = BTreeSet::new();
            if let Some(found) = &found {
                let of_source: BTreeMap<usize, usize> =
                    sources.iter().map(|source| (self.draft.node_of[*source], *source)).collect();
                let is_new = |to: &Destination| matches!(to, Destination::New(_));
                let without_target = found.one.moves.iter().filter(|(_, to)| is_new(to));
                failed.extend(without_target.filter_map(|(pod, _)| of_source.get(&(pod.node as usize))));
            } else {
                // Some pod is unschedulable: the deletion with the lowest saving ratio is planned by itself.
                failed.extend(single.last().into_iter().flat_map(|one| &one.candidates));
            }
            if let Some(found) = found.filter(|_| failed.is_empty()) {
                let parts: Vec<Move> =
                    single.iter().map(|one| part(&self.draft, &found.one, one.candidates[0])).collect();
                for one in &parts {
                    if !self.is_worth(one) {
                        failed.extend(&one.sources);
                    }
                }
                let may_go_together = |one: &Move| {
                    self.is_within_budgets(&one.sources) && self.rules.may_go_together(&self.draft, one)
                };
                if failed.is_empty() {
                    let (joined, apart) = self.zones.joined(&self.draft, &parts, may_go_together);
                    failed.extend(apart.iter().flat_map(|one| &one.sources));
                    if failed.is_empty() {
                        self.draft.commit(&found);
                        for one in joined {
                            self.zones.note(&mut self.draft, &one);
                            self.add(one);
                        }
                        break;
                    }
                }
            }
            single.retain(|one| !failed.contains(&one.candidates[0]));
            dropped.extend(failed);
        }
        left.extend(dropped.into_iter().map(|source| (vec![source], false)));
    }

    /// Plans the removal of nodes again whose planned removal was not accepted; pods may use any remaining free capacity.
    /// If the set is not accepted, each half of it is tried.
    fn retry(&mut self, sources: &[usize], is_launching: bool) {
        let mut sources: Vec<usize> =
            sources.iter().copied().filter(|source| self.draft.is_open[*source]).collect();
        sources.sort_unstable();
        if sources.is_empty() {
            return;
        }
        if self.is_within_budgets(&sources) {
            let receivers = self.draft.receivers();
            let modes = if is_launching { &[Mode::Cost, Mode::Compat][..] } else { &[Mode::Compat] };
            for mode in modes.iter().copied() {
                let found = self.draft.ask(&sources, &receivers, mode, self.effort_for(&sources));
                if found.is_some_and(|found| self.take(&found)) {
                    return;
                }
            }
        }
        if sources.len() > 1 {
            let (first, second) = sources.split_at(sources.len() / 2);
            self.retry(first, is_launching);
            self.retry(second, is_launching);
        }
    }
}

/// The part of a simulation that concerns one node.
fn part(draft: &Draft<'_>, all: &Move, source: usize) -> Move {
    let node = draft.node_of[source] as u32;
    Move::deletion(draft, source, all.moves.iter().filter(|(from, _)| from.node == node).copied().collect())
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
