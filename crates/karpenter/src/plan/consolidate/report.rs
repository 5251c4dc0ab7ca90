//! What a consolidation came to, as plain values: the shape that programs read, described in docs/plan-output.md.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::command::{Candidate, Command, Destination};
use karpenter_disruption::fleet::{Fleet, Machine};
use karpenter_disruption::propose::{Proposal, Why};
use karpenter_disruption::settings::Mode;
use karpenter_model::plan::PlannedNode;
use serde::Serialize;

use super::super::names::why_name;
use super::launched::Launched;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) now: String,
    pub(crate) mode: &'static str,
    pub(crate) commands: Vec<CommandReport>,
    pub(crate) staying: Vec<NodeReport>,
    pub(crate) cost: CostReport,
    pub(crate) stats: StatsReport,
    #[serde(skip)]
    pub(crate) launched: Launched,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandReport {
    pub(crate) round: u32,
    pub(crate) method: String,
    pub(crate) reason: &'static str,
    pub(crate) decision: &'static str,
    pub(crate) dry_run: bool,
    pub(crate) candidates: Vec<MachineReport>,
    pub(crate) replacements: Vec<ReplacementReport>,
    pub(crate) moves: Vec<MoveReport>,
    pub(crate) pods_moved: usize,
    pub(crate) hourly_before: f64,
    pub(crate) hourly_after: f64,
    pub(crate) saving: f64,
    pub(crate) saving_percent: f64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineReport {
    pub(crate) node: Option<String>,
    pub(crate) node_claim: String,
    pub(crate) node_pool: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    /// `None`: nobody knows what it costs.
    pub(crate) price: Option<f64>,
    /// Of the instance alone, without volumes and addresses.
    pub(crate) instance_price: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplacementReport {
    pub(crate) name: String,
    pub(crate) node_pool: String,
    pub(crate) instance_type: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    pub(crate) price: f64,
    pub(crate) instance_price: Option<f64>,
    pub(crate) instance_type_options: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct MoveReport {
    pub(crate) pod: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeReport {
    #[serde(flatten)]
    pub(crate) machine: MachineReport,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostReport {
    pub(crate) hourly_before: f64,
    pub(crate) hourly_after: f64,
    pub(crate) saving: f64,
    pub(crate) saving_percent: f64,
    pub(crate) lower_bound: Option<f64>,
    pub(crate) gap_percent: Option<f64>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatsReport {
    pub(crate) nodes_before: usize,
    pub(crate) nodes_after: usize,
    pub(crate) pods: usize,
    pub(crate) pods_moved: usize,
    pub(crate) rounds: u32,
    pub(crate) timings: TimingsReport,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimingsReport {
    read_ms: f64,
    assemble_ms: f64,
    decide_ms: f64,
    total_ms: f64,
}

/// Wall time of each stage of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    pub(crate) read: Duration,
    pub(crate) assemble: Duration,
    pub(crate) decide: Duration,
}

impl Report {
    pub(crate) fn new(fleet: &Fleet, now: Timestamp, mode: Mode) -> Self {
        let before = price_of(fleet);
        Self {
            now: now.to_string(),
            mode: match mode {
                Mode::Cost => "cost",
                Mode::Compat => "compat",
            },
            commands: Vec::new(),
            staying: Vec::new(),
            cost: CostReport { hourly_before: before, hourly_after: before, ..CostReport::default() },
            stats: StatsReport {
                nodes_before: standing(fleet).count(),
                nodes_after: standing(fleet).count(),
                pods: standing(fleet).map(moving_pods).sum(),
                ..StatsReport::default()
            },
            launched: Launched::default(),
        }
    }

    pub(crate) fn add_round(&mut self, number: u32, fleet: &Fleet, proposal: &Proposal) {
        if !proposal.commands.is_empty() {
            self.stats.rounds = number;
        }
        for command in &proposal.commands {
            self.cost.hourly_after -= command.saving_per_hour();
            // A static pool launches one for each from its template.
            let of_template = command.static_pool.as_ref().map_or(0, |_| command.candidates.len());
            self.stats.nodes_after += command.replacements.len() + of_template;
            self.stats.nodes_after -= command.candidates.len().min(self.stats.nodes_after);
            let report = command_report(number, false, fleet, command, &mut self.launched);
            if command.static_pool.is_none() {
                self.launched.launch(report.replacements.iter().map(|one| one.name.clone()));
            }
            self.stats.pods_moved += report.pods_moved;
            self.commands.push(report);
        }
        for command in &proposal.rehearsals {
            // The same rehearsal comes back in every round.
            let is_known = self.commands.iter().any(|known| {
                known.dry_run
                    && known
                        .candidates
                        .iter()
                        .map(|one| &*one.node_claim)
                        .eq(command.candidates.iter().map(|one| &*one.claim))
            });
            if !is_known {
                self.commands.push(command_report(number, true, fleet, command, &mut self.launched));
            }
        }
        // Only the first round is about the fleet as it is.
        if self.cost.lower_bound.is_none() {
            let bounds = proposal.outcomes.iter().filter_map(|outcome| outcome.lower_bound_per_hour);
            self.cost.lower_bound = bounds.filter(|bound| *bound > 0.0).reduce(f64::max);
        }
    }

    /// A bound for the fleet as it is, where no method that was asked had one.
    pub(crate) fn bound_by(&mut self, bound: impl FnOnce() -> Option<f64>) {
        if self.cost.lower_bound.is_none() {
            self.cost.lower_bound = bound();
        }
    }

    /// The fleet that the moves so far leave behind.
    pub(crate) fn carried_out(&mut self, fleet: &Fleet) {
        self.launched.arrive(fleet);
    }

    /// `fleet` and `proposal` are those of the last round.
    pub(crate) fn finish(&mut self, fleet: &Fleet, proposal: &Proposal) {
        for standing in &proposal.standings {
            if matches!(standing.why, Why::Chosen { .. }) {
                continue;
            }
            let Some(machine) = fleet.machines.get(standing.machine) else { continue };
            self.staying.push(NodeReport {
                machine: machine_report(fleet, machine, &self.launched),
                reason: why_name(&standing.why),
                message: standing.why.to_string(),
            });
        }
        let cost = &mut self.cost;
        cost.saving = cost.hourly_before - cost.hourly_after;
        cost.saving_percent = percent(cost.saving, cost.hourly_before);
        // A sum that leaves nodes out is no match for a bound that counts their pods.
        let bound = cost.lower_bound.filter(|_| unpriced(fleet).is_empty());
        cost.gap_percent = bound.map(|bound| rounded((cost.hourly_after / bound - 1.0) * 100.0, 3));
        for price in [&mut cost.hourly_before, &mut cost.hourly_after, &mut cost.saving] {
            *price = rounded(*price, 6);
        }
        cost.lower_bound = cost.lower_bound.map(|bound| rounded(bound, 6));
    }

    pub(crate) fn set_timings(&mut self, timings: &Timings) {
        let millis = |duration: Duration| rounded(duration.as_secs_f64() * 1000.0, 3);
        self.stats.timings = TimingsReport {
            read_ms: millis(timings.read),
            assemble_ms: millis(timings.assemble),
            decide_ms: millis(timings.decide),
            total_ms: millis(timings.read + timings.assemble + timings.decide),
        };
    }
}

/// Machines that are not on their way out.
fn standing(fleet: &Fleet) -> impl Iterator<Item = &Machine> {
    fleet.machines.iter().filter(|machine| !machine.is_leaving)
}

fn moving_pods(machine: &Machine) -> usize {
    machine.occupants.iter().filter(|occupant| occupant.is_reschedulable).count()
}

fn price_of(fleet: &Fleet) -> f64 {
    standing(fleet).map(|machine| machine.price_per_hour).sum()
}

fn command_report(
    round: u32,
    dry_run: bool,
    fleet: &Fleet,
    command: &Command,
    launched: &mut Launched,
) -> CommandReport {
    let replacements: Vec<ReplacementReport> = match &command.static_pool {
        Some(pool) => {
            command.candidates.iter().map(|one| template_report(launched.next(), pool, one)).collect()
        }
        None => {
            command.replacements.iter().map(|one| replacement_report(launched.next(), fleet, one)).collect()
        }
    };
    let launched = &*launched;
    let name_of =
        |node: usize| fleet.problem.nodes.get(node).map(|one| launched.called(&one.name)).unwrap_or_default();
    let occupants: std::collections::BTreeMap<usize, &Machine> =
        fleet.machines.iter().filter_map(|machine| Some((machine.at?, machine))).collect();
    let moves = command.moves.iter().map(|(from, to)| {
        let machine = occupants.get(&(from.node as usize));
        let occupant = machine.and_then(|machine| machine.occupants.get(from.pod as usize));
        MoveReport {
            pod: occupant.map(|occupant| occupant.name.to_string()).unwrap_or_default(),
            from: name_of(from.node as usize),
            to: match to {
                Destination::Existing(node) => name_of(*node),
                Destination::New(at) => replacements.get(*at).map(|one| one.name.clone()).unwrap_or_default(),
            },
        }
    });
    let saving = command.saving_per_hour();
    let machines = || command.candidates.iter().filter_map(|one| fleet.machines.get(one.machine));
    CommandReport {
        round,
        method: format!("{:?}", command.method),
        reason: command.method.reason().as_str(),
        decision: command.decision.label(),
        dry_run,
        candidates: machines().map(|machine| machine_report(fleet, machine, launched)).collect(),
        moves: moves.collect(),
        // Where pods of a static pool go is for its replacements to say; that they go is known.
        pods_moved: match command.static_pool {
            Some(_) => machines().map(moving_pods).sum(),
            None => command.pods_moved(),
        },
        replacements,
        hourly_before: rounded(command.price_before_per_hour, 6),
        hourly_after: rounded(command.price_after_per_hour, 6),
        saving: rounded(saving, 6),
        saving_percent: percent(saving, command.price_before_per_hour),
    }
}

/// Names of machines that count as free because nobody knows what they cost.
pub(crate) fn unpriced(fleet: &Fleet) -> Vec<&str> {
    let unknown = standing(fleet).filter(|machine| price_known(fleet, machine).is_none());
    unknown.map(|machine| machine.node.as_deref().unwrap_or(&machine.claim)).collect()
}

fn price_known(fleet: &Fleet, machine: &Machine) -> Option<f64> {
    let node = machine.at.and_then(|at| fleet.problem.nodes.get(at));
    let is_known = match node {
        Some(node) => node.price_per_hour.is_some_and(f64::is_finite),
        None => machine.price_per_hour > 0.0,
    };
    is_known.then_some(machine.price_per_hour)
}

fn machine_report(fleet: &Fleet, machine: &Machine, launched: &Launched) -> MachineReport {
    let text = |value: &Option<std::sync::Arc<str>>| value.as_ref().map(ToString::to_string);
    MachineReport {
        node: machine.node.as_ref().map(|name| launched.called(name)),
        node_claim: launched.called(&machine.claim),
        node_pool: text(&machine.pool),
        instance_type: text(&machine.instance_type),
        zone: text(&machine.zone),
        capacity_type: text(&machine.capacity_type),
        price: price_known(fleet, machine).map(|price| rounded(price, 6)),
        instance_price: instance_price(fleet, machine).map(|price| rounded(price, 6)),
    }
}

/// The price of the instance alone, of the offering that the node was launched as.
fn instance_price(fleet: &Fleet, machine: &Machine) -> Option<f64> {
    price_known(fleet, machine)?;
    let problem = &fleet.problem;
    let pool = problem.pools.iter().find(|pool| Some(&pool.name) == machine.pool.as_ref())?;
    let types = problem.catalogs.get(pool.catalog)?;
    let instance_type = types.iter().find(|one| Some(&one.name) == machine.instance_type.as_ref())?;
    let mut offerings = instance_type.offerings.iter();
    let offering = offerings.find(|one| {
        one.zone() == machine.zone.as_ref() && one.capacity_type() == machine.capacity_type.as_ref()
    })?;
    Some(offering.instance_price())
}

fn replacement_report(name: String, fleet: &Fleet, node: &PlannedNode) -> ReplacementReport {
    let problem = &fleet.problem;
    let pool = problem.pools.get(node.pool);
    let catalog = pool.and_then(|pool| problem.catalogs.get(pool.catalog));
    let instance_type = catalog.and_then(|types| types.get(node.instance_type));
    let offering = instance_type.and_then(|one| one.offerings.get(node.offering));
    let options = node.instance_type_options.iter().filter_map(|index| catalog?.get(*index));
    ReplacementReport {
        name,
        node_pool: pool.map(|pool| pool.name.to_string()).unwrap_or_default(),
        instance_type: instance_type.map(|one| one.name.to_string()),
        zone: offering.and_then(|one| one.zone()).map(ToString::to_string),
        capacity_type: offering.and_then(|one| one.capacity_type()).map(ToString::to_string),
        price: rounded(node.price_per_hour, 6),
        instance_price: offering.map(|one| rounded(one.instance_price(), 6)),
        instance_type_options: options.map(|one| one.name.to_string()).collect(),
    }
}

/// A static pool's replacement is made from the template; what it will be is for the provider to say.
fn template_report(name: String, pool: &str, replaced: &Candidate) -> ReplacementReport {
    ReplacementReport {
        name,
        node_pool: pool.to_owned(),
        instance_type: None,
        zone: None,
        capacity_type: None,
        price: rounded(replaced.price_per_hour, 6),
        instance_price: None,
        instance_type_options: Vec::new(),
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { rounded(part / whole * 100.0, 3) } else { 0.0 }
}

/// Sums of prices carry binary noise in the last digits, which nobody wants to diff.
fn rounded(number: f64, decimals: i32) -> f64 {
    let factor = 10_f64.powi(decimals);
    let scaled = (number * factor).round() / factor;
    // Minus zero is zero.
    if scaled.is_finite() { scaled + 0.0 } else { number }
}
