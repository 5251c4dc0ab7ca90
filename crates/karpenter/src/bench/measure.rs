//! One timed run: `schedule` from a problem to a plan, set-up included, and what the plan looks like.

use std::time::Instant;

use karpenter_model::plan::Plan;
use karpenter_model::problem::Mode;
use serde::Serialize;

use super::workloads::Case;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub workload: String,
    pub name: String,
    pub seed: u64,
    pub mode: &'static str,
    pub pods: u32,
    pub classes: u32,
    /// The whole call, from the problem to the plan.
    pub ms: f64,
    pub pods_per_second: f64,
    pub validate_ms: f64,
    /// Rules that the independent validator found broken; anything but 0 is a bug.
    pub violations: usize,
    pub nodes: usize,
    pub unschedulable: u64,
    pub hourly: f64,
    pub lower_bound: f64,
    pub gap_percent: Option<f64>,
    pub options_min: usize,
    pub options_median: usize,
    /// The process's peak since the run started, where the system lets it be reset.
    pub peak_rss_mib: Option<f64>,
    /// The run's pods per second over the best that the Go original was measured at.
    pub times_reference: Option<f64>,
}

pub fn run(case: &Case, mode: Mode, effort: u64) -> Run {
    let mut problem = case.problem();
    problem.options.mode = mode;
    problem.options.effort = effort;
    reset_peak_rss();
    let started = Instant::now();
    let plan = karpenter_scheduling::schedule(&problem);
    let seconds = started.elapsed().as_secs_f64();
    let peak_rss_mib = peak_rss_mib();
    let started = Instant::now();
    let violations = karpenter_scheduling::validate::validate(&problem, &plan).len();
    let validate_ms = started.elapsed().as_secs_f64() * 1000.0;
    let (options_min, options_median) = options(&plan);
    let pods_per_second = f64::from(case.pods) / seconds.max(1e-9);
    let gap = (plan.lower_bound_per_hour > 0.0)
        .then(|| (plan.price_per_hour / plan.lower_bound_per_hour - 1.0) * 100.0);
    Run {
        workload: format!("W{}", case.workload),
        name: case.name.clone(),
        seed: case.seed,
        mode: match mode {
            Mode::Cost => "cost",
            Mode::Compat => "compat",
        },
        pods: case.pods,
        classes: plan.stats.classes,
        ms: seconds * 1000.0,
        pods_per_second,
        validate_ms,
        violations,
        nodes: plan.new_nodes.len(),
        unschedulable: plan.unschedulable.iter().map(|left| u64::from(left.pods.count)).sum(),
        hourly: plan.price_per_hour,
        lower_bound: plan.lower_bound_per_hour,
        gap_percent: gap,
        options_min,
        options_median,
        peak_rss_mib,
        times_reference: case.reference.map(|reference| pods_per_second / reference.highest),
    }
}

/// Instance types per planned node: the fewest, and the median.
fn options(plan: &Plan) -> (usize, usize) {
    let mut counts: Vec<usize> = plan.new_nodes.iter().map(|node| node.instance_type_options.len()).collect();
    counts.sort_unstable();
    (counts.first().copied().unwrap_or(0), counts.get(counts.len() / 2).copied().unwrap_or(0))
}

/// Linux only; elsewhere the figure stays empty or covers the whole process.
fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}
