//! `karpenter bench`: the packing engine on generated workloads, timed and compared with its own lower bound and with
//! the Go original's measured speed. docs/bench.md says how to read the table.
//!
//! Workloads are generated from seeds; only the measured times depend on the machine.

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
    // Fleets are measured otherwise than plans, and only when asked for: upstream's rules take their time.
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

/// W7.
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
