//! Measures one run of `schedule`, including its set-up, and records properties of the plan.

use std::time::Instant;

use karpenter_model::plan::Plan;
use karpenter_model::problem::Mode;
use serde::Serialize;

use super::workloads::Case;

const VIOLATIONS_KEPT_MAX: usize = 20;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) workload: String,
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) mode: &'static str,
    pub(crate) pods: u32,
    pub(crate) classes: u32,
    /// The duration of the call of the planner, from the problem to the plan.
    pub(crate) ms: f64,
    pub(crate) pods_per_second: f64,
    pub(crate) validate_ms: f64,
    /// The number of violations that the validator found; any violation is a bug.
    pub(crate) violation_count: usize,
    /// The first violations.
    pub(crate) violations: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) unschedulable: u64,
    pub(crate) hourly: f64,
    pub(crate) lower_bound: f64,
    pub(crate) gap_percent: Option<f64>,
    pub(crate) options_min: usize,
    pub(crate) options_median: usize,
    /// Peak memory of the process since the run started, if the system can reset it.
    pub(crate) peak_rss_mib: Option<f64>,
    /// Pods per second, divided by the highest measured rate of upstream.
    pub(crate) times_reference: Option<f64>,
}

pub(crate) fn run(case: &Case, mode: Mode, effort: u64) -> Run {
    let mut problem = case.problem();
    problem.options.mode = mode;
    problem.options.effort = effort;
    reset_peak_rss();
    let started = Instant::now();
    let plan = karpenter_scheduling::schedule(&problem);
    let seconds = started.elapsed().as_secs_f64();
    let peak_rss_mib = peak_rss_mib();
    let started = Instant::now();
    let violations = karpenter_scheduling::validate::validate(&problem, &plan);
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
        violation_count: violations.len(),
        violations: violations.iter().take(VIOLATIONS_KEPT_MAX).map(ToString::to_string).collect(),
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

/// The minimum and the median number of instance type options per planned node.
fn options(plan: &Plan) -> (usize, usize) {
    let mut counts: Vec<usize> = plan.new_nodes.iter().map(|node| node.instance_type_options.len()).collect();
    counts.sort_unstable();
    (counts.first().copied().unwrap_or(0), counts.get(counts.len() / 2).copied().unwrap_or(0))
}

/// Resets the peak memory of the process. This works on Linux only. On other systems the measured peak is missing or is
/// that of the whole process lifetime.
pub(crate) fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

pub(crate) fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}
