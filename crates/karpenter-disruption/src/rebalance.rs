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
use karpenter_scheduling::simulate::{BoundAt, Removal, RemovalCandidate, RemovalRequest, Simulator, Terms};

use crate::cluster::Cluster;
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::EvaluationContext;
use crate::disruption_price::DisruptionPrices;
use crate::lower_bound;
use crate::rebalance_commands::restrict_to_cheaper_options;
use crate::settings::Settings;
use crate::verdict::Verdict;
use draft::{Draft, Found, Move};
use order::Zones;
use rules::Rules;

/// The state after one command of the plan and all commands before it: the price of all nodes, and the number of pods
/// that these commands move in total.
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

/// The maximum number of times that the program is solved for one plan. If no removal of a solution is accepted, these
/// nodes stay in the next one.
const SOLUTIONS_MAX: usize = 3;

struct Planner<'a> {
    context: &'a EvaluationContext<'a>,
    draft: Draft<'a>,
    zones: Zones,
    rules: Rules<'a>,
    prices: DisruptionPrices,
    budget_left: &'a BTreeMap<Arc<str>, u32>,
    moves: Vec<Move>,
    /// By candidate, as of the last solution that could have removed it.
    terms: BTreeMap<usize, Terms>,
    /// Candidates whose removal was simulated and not accepted.
    refused: BTreeMap<usize, Verdict>,
}

pub fn plan(
    cluster: &Cluster,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    budget_left: &BTreeMap<Arc<str>, u32>,
    settings: &Settings,
) -> Rebalancing {
    let context = EvaluationContext::new(cluster, settings);
    let bound = lower_bound::lower_bound(cluster, settings.effort);
    let draft = Draft::new(&context, simulator, candidates);
    let mut planner = Planner {
        context: &context,
        zones: Zones::new(&draft),
        draft,
        rules: Rules::new(cluster),
        prices: DisruptionPrices::new(cluster, &context.totals, &bound, settings.saving_ratio),
        budget_left,
        moves: Vec::new(),
        terms: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    for _ in 0..SOLUTIONS_MAX {
        if planner.solve() == 0 || !planner.moves.is_empty() {
            break;
        }
    }
    let staying = cluster.state_nodes.iter().filter(|one| !one.is_marked_for_deletion);
    let price_now: f64 = staying.map(|one| one.price_per_hour).sum();
    let mut plan = Rebalancing {
        price_now_per_hour: price_now,
        lower_bound_per_hour: bound.per_hour,
        refused: planner.verdicts(),
        ..Rebalancing::default()
    };
    let mut moves = std::mem::take(&mut planner.moves);
    let ratio = |one: &Move| one.saving_per_hour() / planner.disruption_price(&one.sources).max(1e-9);
    moves.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)).then_with(|| a.sources.cmp(&b.sources)));
    let (mut price, mut pods_moved) = (price_now, 0);
    for one in moves {
        price -= one.saving_per_hour();
        pods_moved += one.moves.len();
        plan.steps.push(Step { pods_moved, price_per_hour: price });
        plan.commands.push(planner.command(one));
    }
    plan.price_after_all_per_hour = price;
    plan
}

impl Planner<'_> {
    /// Solves the program for the candidates that may still be removed, and adds what it removes to the plan. Returns the
    /// number of nodes whose removal was not accepted.
    fn solve(&mut self) -> usize {
        let candidates = self.draft.candidates;
        let open: Vec<usize> = (0..candidates.len())
            .filter(|one| self.draft.is_open[*one] && !self.refused.contains_key(one))
            .collect();
        let wanted: Vec<RemovalCandidate> = open
            .iter()
            .map(|number| RemovalCandidate {
                node: self.draft.node_of[*number],
                price_per_hour: candidates[*number].price_per_hour,
                disruption_price_per_hour: self.prices.of(&candidates[*number]),
            })
            .collect();
        let receivers = self.draft.receivers();
        let effort = self.context.settings.effort;
        let removals =
            self.draft.simulator.removals(&RemovalRequest { candidates: &wanted, onto: &receivers, effort });
        let mut removable: BTreeSet<usize> = BTreeSet::new();
        for ((number, terms), one) in open.iter().zip(&removals.terms).zip(&wanted) {
            self.terms.insert(*number, *terms);
            if !is_staying(one, terms) {
                removable.insert(*number);
            }
        }
        let mut ranked: Vec<Removal> = removals.removals;
        for removal in &mut ranked {
            removal.candidates.iter_mut().for_each(|one| *one = open[*one]);
            removal.candidates.iter().for_each(|one| _ = removable.remove(one));
        }
        ranked.sort_by(|a, b| self.compare(a, b));
        let refused = self.refused.len();
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
        // Nodes whose price is above the sum of their terms, but which the rounded solution keeps. If there are commands,
        // they are left to the next plan, which may remove them together with others.
        for number in removable {
            if self.moves.is_empty() {
                self.retry(&[number], true);
            }
        }
        self.refused.len() - refused
    }

    /// Why each remaining candidate is not removed.
    fn verdicts(&self) -> BTreeMap<usize, Verdict> {
        let verdict = |number: usize| {
            let candidate = &self.draft.candidates[number];
            if let Err(verdict) = self.rules.may_be_deleted(&self.draft, number) {
                return verdict;
            }
            let wanted = RemovalCandidate {
                node: self.draft.node_of[number],
                price_per_hour: candidate.price_per_hour,
                disruption_price_per_hour: self.prices.of(candidate),
            };
            match (self.refused.get(&number), self.terms.get(&number)) {
                (Some(verdict), _) => verdict.clone(),
                (None, Some(terms)) if is_staying(&wanted, terms) => {
                    self.stays(number, terms.pods_elsewhere_per_hour, terms.free_capacity_per_hour)
                }
                _ => Verdict::NotNow,
            }
        };
        let removed: BTreeSet<usize> =
            self.moves.iter().flat_map(|one| one.sources.iter().copied()).collect();
        let remaining = (0..self.draft.candidates.len()).filter(|number| !removed.contains(number));
        remaining.map(|number| (number, verdict(number))).collect()
    }

    fn stays(&self, number: usize, pods_elsewhere_per_hour: f64, free_capacity_per_hour: f64) -> Verdict {
        let candidate = &self.draft.candidates[number];
        Verdict::Stays {
            price_per_hour: candidate.price_per_hour,
            pods_elsewhere_per_hour,
            free_capacity_per_hour,
            pods: self.draft.movable_pods(number),
            disruption_price_per_hour: self.prices.of(candidate),
        }
    }

    fn disruption_price(&self, sources: &[usize]) -> f64 {
        sources.iter().map(|source| self.prices.of(&self.draft.candidates[*source])).sum()
    }

    fn command(&self, one: Move) -> Command {
        let disruption_price_per_hour = self.disruption_price(&one.sources);
        Command { disruption_price_per_hour, ..command(self.draft.candidates, one) }
    }

    /// Orders by saving per price of the moves, highest first.
    fn compare(&self, a: &Removal, b: &Removal) -> Ordering {
        let ratio = |removal: &Removal| {
            let price: f64 =
                removal.candidates.iter().map(|one| self.draft.candidates[*one].price_per_hour).sum();
            let launched: f64 = removal.launches.iter().map(|launch| launch.price_per_hour).sum();
            (price - launched) / self.disruption_price(&removal.candidates).max(1e-9)
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
        (self.context.settings.effort * sources.len() as u64 / NODES_PER_COMMAND_MAX as u64).max(1)
    }

    /// Simulates a removal as it was planned, and adds it to the plan if it is accepted.
    fn execute(&mut self, removal: &Removal, receivers: &[usize]) -> bool {
        if !self.is_within_budgets(&removal.candidates) {
            return false;
        }
        let mode = if removal.launches.is_empty() { Mode::Compat } else { Mode::Cost };
        let effort = self.effort_for(&removal.candidates);
        let found = self.draft.simulate_targets(&removal.candidates, &removal.onto, receivers, mode, effort);
        found.is_ok_and(|found| self.take(&found).is_ok())
    }

    /// Adds a command to the plan if it saves enough, the NodePools' settings allow it, and it depends on no other command.
    fn take(&mut self, found: &Found) -> Result<(), Verdict> {
        // If the pods of these nodes may not be evicted together, `retry` plans smaller sets of the nodes.
        if found.one.sources.len() > 1 && !self.rules.may_go_together(&self.draft, &found.one) {
            return Err(Verdict::NotNow);
        }
        self.accept(&found.one)?;
        if self.zones.are_independent(&self.draft, std::slice::from_ref(&found.one)) != [true] {
            return Err(Verdict::NotNow);
        }
        self.draft.commit(found);
        self.zones.record(&mut self.draft, &found.one);
        self.moves.push(found.one.clone());
        Ok(())
    }

    /// Checks that a move saves more than it is priced at, and that rules and settings allow it.
    fn accept(&self, one: &Move) -> Result<(), Verdict> {
        let disruption = self.disruption_price(&one.sources);
        // A node of unknown price counts as 0 $/h. Its deletion is accepted, because it cannot raise the price.
        let is_saving = one.saving_per_hour() > disruption + 1e-9
            || one.replacements.is_empty() && one.saving_per_hour() >= disruption;
        let is_new = one.replacements.is_empty() || !self.rules.launches_same_nodes(&self.draft, one);
        if !is_saving || !is_new {
            return Err(self.stays(one.sources[0], one.price_after_per_hour, 0.0));
        }
        self.rules.accepts(&self.draft, one)?;
        restrict_to_cheaper_options(self.context, &mut self.command(one.clone()))
    }

    /// Plans deletions if some pods have constraints across nodes (spreads, affinities). All deletions are simulated
    /// together; those that depend on each other become one command.
    fn delete_together(
        &mut self,
        mut single: Vec<Removal>,
        receivers: &[usize],
        left: &mut Vec<(Vec<usize>, bool)>,
    ) {
        while !single.is_empty() {
            let sources: BTreeSet<usize> =
                single.iter().flat_map(|one| one.candidates.iter().copied()).collect();
            let sources: Vec<usize> = sources.into_iter().collect();
            let targets: Vec<(BoundAt, usize)> =
                single.iter().flat_map(|one| one.onto.iter().copied()).collect();
            let failed = match self.draft.simulate_targets(&sources, &targets, receivers, Mode::Compat, 0) {
                Ok(found) => match self.take_parts(&found) {
                    Ok(()) => return,
                    Err(failed) => failed,
                },
                Err(unplaced) => unplaced,
            };
            left.extend(failed.iter().map(|source| (vec![*source], false)));
            single.retain(|one| !failed.contains(&one.candidates[0]));
            // The simulation failed for another reason than these nodes.
            if failed.is_empty() {
                left.extend(single.drain(..).map(|one| (one.candidates, false)));
            }
        }
    }

    /// Adds the deletions of one simulation to the plan if all of them are accepted; otherwise returns those that are not.
    fn take_parts(&mut self, found: &Found) -> Result<(), BTreeSet<usize>> {
        let parts: Vec<Move> =
            found.one.sources.iter().map(|source| part(&self.draft, &found.one, *source)).collect();
        let mut failed = self.draft.launching(&found.one);
        failed.extend(parts.iter().filter(|one| self.accept(one).is_err()).flat_map(|one| &one.sources));
        if !failed.is_empty() {
            return Err(failed);
        }
        let may_go_together =
            |one: &Move| self.is_within_budgets(&one.sources) && self.rules.may_go_together(&self.draft, one);
        let (merged, dependent) = self.zones.merge_dependent(&self.draft, &parts, may_go_together);
        failed.extend(dependent.iter().flat_map(|one| &one.sources));
        if !failed.is_empty() {
            return Err(failed);
        }
        self.draft.commit(found);
        for one in merged {
            self.zones.record(&mut self.draft, &one);
            self.moves.push(one);
        }
        Ok(())
    }

    /// Plans the removal of nodes again whose planned removal was not accepted; pods may use any remaining free capacity.
    /// If the set is not accepted, each half of it is tried.
    fn retry(&mut self, sources: &[usize], is_launching: bool) {
        let mut sources: Vec<usize> =
            sources.iter().copied().filter(|source| self.draft.is_open[*source]).collect();
        sources.sort_unstable();
        let mut verdict = Verdict::NotNow;
        if !sources.is_empty() && self.is_within_budgets(&sources) {
            let receivers = self.draft.receivers();
            let modes = if is_launching { &[Mode::Cost, Mode::Compat][..] } else { &[Mode::Compat] };
            for mode in modes.iter().copied() {
                let found = self.draft.simulate(&sources, &receivers, mode, self.effort_for(&sources));
                match found.and_then(|found| self.take(&found)) {
                    Ok(()) => return,
                    Err(found) => verdict = found,
                }
            }
        }
        match &sources[..] {
            [] => {}
            [only] => _ = self.refused.insert(*only, verdict),
            several => {
                let (first, second) = several.split_at(several.len() / 2);
                self.retry(first, is_launching);
                self.retry(second, is_launching);
            }
        }
    }
}

/// Whether the node's price is at most the sum of the terms, so that the program keeps it.
fn is_staying(candidate: &RemovalCandidate, terms: &Terms) -> bool {
    let sum =
        terms.pods_elsewhere_per_hour + terms.free_capacity_per_hour + candidate.disruption_price_per_hour;
    candidate.price_per_hour <= sum + 1e-9
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
        disruption_price_per_hour: 0.0,
        termination_grace_period_secs: None,
    }
}
