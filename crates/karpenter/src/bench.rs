//! `karpenter bench`: measures the planner on generated workloads and compares price with the lower bound and speed
//! with upstream's scheduler. docs/bench.md explains the table.
//!
//! Workloads are generated from seeds, so only the measured times depend on the computer.

mod build;
mod catalogs;
mod consolidation;
mod measure;
mod reference;
mod report;
mod rng;
#[cfg(test)]
mod tests;
mod workloads;

use anyhow::Result;
use karpenter_disruption::settings::Mode as Savings;
use karpenter_model::problem::Mode;

use crate::cli::{BenchArguments, BenchFormat, ModeChoice};
use crate::render::terminal::Terminal;
use crate::{Outcome, diagnostics};
use measure::Run;
use workloads::Case;

pub(crate) fn run(arguments: &BenchArguments) -> Result<Outcome> {
    let modes: &[Mode] = match arguments.mode {
        Some(ModeChoice::Cost) => &[Mode::Cost],
        Some(ModeChoice::Compat) => &[Mode::Compat],
        None => &[Mode::Compat, Mode::Cost],
    };
    let cases: Vec<Case> = workloads::cases(arguments.seeds)
        .into_iter()
        .filter(|case| arguments.workloads.is_empty() || arguments.workloads.contains(&case.workload))
        .filter(|case| arguments.max_pods.is_none_or(|most| case.pods <= most))
        .filter(|case| is_wanted(arguments, &case.name))
        .collect();
    let mut runs: Vec<Run> = Vec::new();
    for case in &cases {
        for mode in modes {
            let run = measure::run(case, *mode, arguments.effort.0);
            for line in report::violation_lines(&run) {
                diagnostics::print_error(&line);
            }
            diagnostics::print_note(&format!(
                "{} seed {} {}: {:.0} ms",
                case.name, case.seed, run.mode, run.ms
            ));
            runs.push(run);
        }
    }
    let valid = runs.iter().all(|run| run.violation_count == 0);
    // The consolidation workload has a measurement of its own. It runs only on request, because upstream's rules are
    // slow.
    let fleets = if arguments.workloads.contains(&FLEETS) { consolidate(arguments) } else { Vec::new() };
    match arguments.output {
        BenchFormat::Json if runs.is_empty() && !fleets.is_empty() => consolidation::write_json(&fleets)?,
        BenchFormat::Json => report::write_json(&runs)?,
        BenchFormat::Table => {
            if !runs.is_empty() || fleets.is_empty() {
                report::write_table(&runs, &Terminal::of_stdout())?;
            }
            if !fleets.is_empty() {
                consolidation::write_table(&fleets, &Terminal::of_stdout())?;
            }
        }
    }
    Ok(if valid { Outcome::Done } else { Outcome::InternalError })
}

/// The consolidation workload W7.
const FLEETS: u8 = 7;

fn is_wanted(arguments: &BenchArguments, name: &str) -> bool {
    arguments.case.as_deref().is_none_or(|text| name.contains(text))
}

fn consolidate(arguments: &BenchArguments) -> Vec<consolidation::Run> {
    let modes: &[Savings] = match arguments.mode {
        Some(ModeChoice::Compat) => &[Savings::Compat],
        Some(ModeChoice::Cost) => &[Savings::Cost],
        None => &[Savings::Compat, Savings::Cost],
    };
    let mut runs = Vec::new();
    let cases = consolidation::cases(arguments.seeds, arguments.max_pods);
    for case in cases.iter().filter(|case| is_wanted(arguments, &case.name)) {
        for mode in modes {
            let run = consolidation::run(case, *mode, arguments.effort.0);
            diagnostics::print_note(&format!(
                "{} seed {} {}: {:.0} ms",
                run.name, run.seed, run.mode, run.total_ms
            ));
            runs.push(run);
        }
    }
    runs
}
