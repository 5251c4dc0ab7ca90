//! The result of `karpenter plan --consolidate` as plain values: the JSON and YAML output described in docs/plan-output.md.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::cluster::{Cluster, StateNode};
use karpenter_disruption::command::{Candidate, Command, Destination};
use karpenter_disruption::evaluate::{Evaluation, Verdict};
use karpenter_disruption::settings::Mode;
use karpenter_explain::verdict_names::verdict_name;
use karpenter_model::plan::PlannedNode;
use serde::Serialize;

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
    pub(crate) candidates: Vec<NodeFacts>,
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
pub(crate) struct NodeFacts {
    pub(crate) node: Option<String>,
    pub(crate) node_claim: String,
    pub(crate) node_pool: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    /// The price of the node; `None` if it is unknown.
    pub(crate) price: Option<f64>,
    /// The price of the instance alone, without volumes and addresses.
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
    pub(crate) facts: NodeFacts,
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

/// The wall time of each stage.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    pub(crate) read: Duration,
    pub(crate) assemble: Duration,
    pub(crate) decide: Duration,
}

impl Report {
    pub(crate) fn new(cluster: &Cluster, now: Timestamp, mode: Mode) -> Self {
        let before = price_of(cluster);
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
                nodes_before: remaining_nodes(cluster).count(),
                nodes_after: remaining_nodes(cluster).count(),
                pods: remaining_nodes(cluster).map(moving_pods).sum(),
                ..StatsReport::default()
            },
            launched: Launched::default(),
        }
    }

    pub(crate) fn add_round(&mut self, number: u32, cluster: &Cluster, evaluation: &Evaluation) {
        if !evaluation.commands.is_empty() {
            self.stats.rounds = number;
        }
        for command in &evaluation.commands {
            self.cost.hourly_after -= command.saving_per_hour();
            // A static NodePool launches one node for each candidate.
            let of_template = command.static_pool.as_ref().map_or(0, |_| command.candidates.len());
            self.stats.nodes_after += command.replacements.len() + of_template;
            self.stats.nodes_after -= command.candidates.len().min(self.stats.nodes_after);
            let report = command_report(number, false, cluster, command, &mut self.launched);
            if command.static_pool.is_none() {
                self.launched.launch(report.replacements.iter().map(|one| one.name.clone()));
            }
            self.stats.pods_moved += report.pods_moved;
            self.commands.push(report);
        }
        for command in &evaluation.dry_run_commands {
            // Commands of the dry run are found again in every round, so they are reported once.
            let is_known = self.commands.iter().any(|known| {
                known.dry_run
                    && known
                        .candidates
                        .iter()
                        .map(|one| &*one.node_claim)
                        .eq(command.candidates.iter().map(|one| &*one.claim))
            });
            if !is_known {
                self.commands.push(command_report(number, true, cluster, command, &mut self.launched));
            }
        }
        // The lower bound is that of the cluster in the dump.
        if self.cost.lower_bound.is_none() {
            let bounds = evaluation.outcomes.iter().filter_map(|outcome| outcome.lower_bound_per_hour);
            self.cost.lower_bound = bounds.filter(|bound| *bound > 0.0).reduce(f64::max);
        }
    }

    /// Sets the lower bound of the cluster in the dump, if no method computed one.
    pub(crate) fn bound_by(&mut self, bound: impl FnOnce() -> Option<f64>) {
        if self.cost.lower_bound.is_none() {
            self.cost.lower_bound = bound();
        }
    }

    /// Updates names with the cluster after the commands so far.
    pub(crate) fn apply(&mut self, cluster: &Cluster) {
        self.launched.arrive(cluster);
    }

    /// Completes the report. `cluster` and `evaluation` are those of the last round.
    pub(crate) fn finish(&mut self, cluster: &Cluster, evaluation: &Evaluation) {
        for node_verdict in &evaluation.verdicts {
            if matches!(node_verdict.verdict, Verdict::Chosen { .. }) {
                continue;
            }
            let Some(state_node) = cluster.state_nodes.get(node_verdict.state_node) else { continue };
            self.staying.push(NodeReport {
                facts: node_facts(cluster, state_node, &self.launched),
                reason: verdict_name(&node_verdict.verdict),
                message: node_verdict.verdict.to_string(),
            });
        }
        let cost = &mut self.cost;
        cost.saving = cost.hourly_before - cost.hourly_after;
        cost.saving_percent = percent(cost.saving, cost.hourly_before);
        // If the price of some node is unknown, there is no gap: the price excludes such nodes, but the lower bound
        // includes their pods.
        let bound = cost.lower_bound.filter(|_| unpriced_nodes(cluster).is_empty());
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

/// Nodes that are not being deleted.
fn remaining_nodes(cluster: &Cluster) -> impl Iterator<Item = &StateNode> {
    cluster.state_nodes.iter().filter(|state_node| !state_node.is_marked_for_deletion)
}

fn moving_pods(state_node: &StateNode) -> usize {
    state_node.pods.iter().filter(|node_pod| node_pod.is_reschedulable).count()
}

fn price_of(cluster: &Cluster) -> f64 {
    remaining_nodes(cluster).map(|state_node| state_node.price_per_hour).sum()
}

fn command_report(
    round: u32,
    dry_run: bool,
    cluster: &Cluster,
    command: &Command,
    launched: &mut Launched,
) -> CommandReport {
    let replacements: Vec<ReplacementReport> = match &command.static_pool {
        Some(pool) => {
            command.candidates.iter().map(|one| template_report(launched.next(), pool, one)).collect()
        }
        None => {
            command.replacements.iter().map(|one| replacement_report(launched.next(), cluster, one)).collect()
        }
    };
    let launched = &*launched;
    let name_of = |node: usize| {
        cluster.problem.nodes.get(node).map(|one| launched.called(&one.name)).unwrap_or_default()
    };
    let state_node_of: std::collections::BTreeMap<usize, &StateNode> =
        cluster.state_nodes.iter().filter_map(|state_node| Some((state_node.at?, state_node))).collect();
    let moves = command.moves.iter().map(|(from, to)| {
        let state_node = state_node_of.get(&(from.node as usize));
        let node_pod = state_node.and_then(|state_node| state_node.pods.get(from.pod as usize));
        MoveReport {
            pod: node_pod.map(|node_pod| node_pod.name.to_string()).unwrap_or_default(),
            from: name_of(from.node as usize),
            to: match to {
                Destination::Existing(node) => name_of(*node),
                Destination::New(at) => replacements.get(*at).map(|one| one.name.clone()).unwrap_or_default(),
            },
        }
    });
    let saving = command.saving_per_hour();
    let state_nodes = || command.candidates.iter().filter_map(|one| cluster.state_nodes.get(one.state_node));
    CommandReport {
        round,
        method: format!("{:?}", command.method),
        reason: command.method.reason().as_str(),
        decision: command.decision.label(),
        dry_run,
        candidates: state_nodes().map(|state_node| node_facts(cluster, state_node, launched)).collect(),
        moves: moves.collect(),
        // The targets of a static NodePool's pods are not planned, only counted.
        pods_moved: match command.static_pool {
            Some(_) => state_nodes().map(moving_pods).sum(),
            None => command.pods_moved(),
        },
        replacements,
        hourly_before: rounded(command.price_before_per_hour, 6),
        hourly_after: rounded(command.price_after_per_hour, 6),
        saving: rounded(saving, 6),
        saving_percent: percent(saving, command.price_before_per_hour),
    }
}

/// Names of nodes without a known price; they count as 0.
pub(crate) fn unpriced_nodes(cluster: &Cluster) -> Vec<&str> {
    let unknown = remaining_nodes(cluster).filter(|state_node| price_known(cluster, state_node).is_none());
    unknown.map(|state_node| state_node.node.as_deref().unwrap_or(&state_node.claim)).collect()
}

fn price_known(cluster: &Cluster, state_node: &StateNode) -> Option<f64> {
    let node = state_node.at.and_then(|at| cluster.problem.nodes.get(at));
    let is_known = match node {
        Some(node) => node.price_per_hour.is_some_and(f64::is_finite),
        None => state_node.price_per_hour > 0.0,
    };
    is_known.then_some(state_node.price_per_hour)
}

fn node_facts(cluster: &Cluster, state_node: &StateNode, launched: &Launched) -> NodeFacts {
    let text = |value: &Option<std::sync::Arc<str>>| value.as_ref().map(ToString::to_string);
    NodeFacts {
        node: state_node.node.as_ref().map(|name| launched.called(name)),
        node_claim: launched.called(&state_node.claim),
        node_pool: text(&state_node.pool),
        instance_type: text(&state_node.instance_type),
        zone: text(&state_node.zone),
        capacity_type: text(&state_node.capacity_type),
        price: price_known(cluster, state_node).map(|price| rounded(price, 6)),
        instance_price: instance_price(cluster, state_node).map(|price| rounded(price, 6)),
    }
}

/// The price of the instance alone, for the offering with which the node was launched.
fn instance_price(cluster: &Cluster, state_node: &StateNode) -> Option<f64> {
    price_known(cluster, state_node)?;
    let problem = &cluster.problem;
    let pool = problem.pools.iter().find(|pool| Some(&pool.name) == state_node.pool.as_ref())?;
    let types = problem.catalogs.get(pool.catalog)?;
    let instance_type = types.iter().find(|one| Some(&one.name) == state_node.instance_type.as_ref())?;
    let mut offerings = instance_type.offerings.iter();
    let offering = offerings.find(|one| {
        one.zone() == state_node.zone.as_ref() && one.capacity_type() == state_node.capacity_type.as_ref()
    })?;
    Some(offering.instance_price())
}

fn replacement_report(name: String, cluster: &Cluster, node: &PlannedNode) -> ReplacementReport {
    let problem = &cluster.problem;
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

/// The instance type of a static NodePool's replacement is chosen by the provider at launch.
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

/// Rounds away errors of binary fractions, so that outputs can be compared.
fn rounded(number: f64, decimals: i32) -> f64 {
    let factor = 10_f64.powi(decimals);
    let scaled = (number * factor).round() / factor;
    // Turns -0.0 into 0.0.
    if scaled.is_finite() { scaled + 0.0 } else { number }
}
