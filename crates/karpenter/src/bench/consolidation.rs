//! Workload W7: consolidation of clusters that were packed well and have lost pods since.
//!
//! Each pass evaluates a snapshot of the cluster like the disruption controller. The commands of a pass are applied to
//! the snapshot at once. The passes end when no command is left. Budgets, delays and PodDisruptionBudgets do not apply.

mod fleets;
mod table;

use std::time::Instant;

use karpenter_disruption::apply;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::{Mode, Settings};
use serde::Serialize;

use super::measure::{peak_rss_mib, reset_peak_rss};
pub(crate) use fleets::{Case, cases};
pub(crate) use table::{write_json, write_table};

/// The maximum number of passes. Upstream's rules execute one command per pass, and a cluster of 1,000 nodes needs more
/// than 60 passes.
const PASSES_MAX: usize = 400;
/// The gap at which upstream's consolidation ends: about 7 % above the lower bound.
const REFERENCE_GAP: f64 = 1.07;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) mode: &'static str,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// The longest evaluation of the whole cluster. The first evaluation is often short, because it finds only empty
    /// nodes.
    pub(crate) longest_pass_ms: f64,
    /// The duration of all passes, including the last one without a command.
    pub(crate) total_ms: f64,
    pub(crate) passes: usize,
    /// Whether no command was left; false if the maximum number of passes was reached before.
    pub(crate) is_at_rest: bool,
    pub(crate) commands: usize,
    pub(crate) pods_moved: usize,
    /// The number of pods that were moved until the cluster's price was at most 7 % above the lower bound.
    pub(crate) pods_moved_to_reference: Option<usize>,
    pub(crate) nodes_after: usize,
    pub(crate) hourly_before: f64,
    pub(crate) hourly_after: f64,
    pub(crate) lower_bound: f64,
    pub(crate) gap_before_percent: f64,
    pub(crate) gap_after_percent: f64,
    pub(crate) peak_rss_mib: Option<f64>,
    /// The number of pods moved so far and the price of the cluster, after each pass.
    pub(crate) curve: Vec<(usize, f64)>,
}

pub(crate) fn run(case: &Case, mode: Mode, effort: u64) -> Run {
    let mut cluster = case.cluster();
    let lower_bound = fleets::lower_bound(&cluster);
    let settings = Settings { mode, effort, ..Settings::default() };
    let (nodes, pods, hourly_before) = (cluster.state_nodes.len(), pods(&cluster), price(&cluster));
    let over = |price: f64| if lower_bound > 0.0 { (price / lower_bound - 1.0) * 100.0 } else { 0.0 };
    let mut run = Run {
        name: case.name.clone(),
        seed: case.seed,
        mode: match mode {
            Mode::Cost => "cost",
            Mode::Compat => "compat",
        },
        nodes,
        pods,
        longest_pass_ms: 0.0,
        total_ms: 0.0,
        passes: 0,
        is_at_rest: false,
        commands: 0,
        pods_moved: 0,
        pods_moved_to_reference: None,
        nodes_after: nodes,
        hourly_before,
        hourly_after: hourly_before,
        lower_bound,
        gap_before_percent: over(hourly_before),
        gap_after_percent: 0.0,
        peak_rss_mib: None,
        curve: vec![(0, hourly_before)],
    };
    reset_peak_rss();
    while run.passes < PASSES_MAX {
        case.allow(&mut cluster);
        let started = Instant::now();
        let evaluation = evaluate(&cluster, &settings);
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        run.passes += 1;
        run.total_ms += ms;
        run.longest_pass_ms = run.longest_pass_ms.max(ms);
        if evaluation.commands.is_empty() {
            run.is_at_rest = true;
            break;
        }
        for command in &evaluation.commands {
            run.hourly_after -= command.saving_per_hour();
            run.pods_moved += command.pods_moved();
            run.curve.push((run.pods_moved, run.hourly_after));
            if run.hourly_after <= lower_bound * REFERENCE_GAP && run.pods_moved_to_reference.is_none() {
                run.pods_moved_to_reference = Some(run.pods_moved);
            }
        }
        run.commands += evaluation.commands.len();
        cluster = apply::after(&cluster, &evaluation.commands);
    }
    run.peak_rss_mib = peak_rss_mib();
    run.nodes_after = cluster.state_nodes.len();
    run.hourly_after = price(&cluster);
    run.gap_after_percent = over(run.hourly_after);
    run
}

fn price(cluster: &Cluster) -> f64 {
    cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum()
}

fn pods(cluster: &Cluster) -> usize {
    cluster.problem.nodes.iter().map(|node| node.pods.len()).sum()
}
