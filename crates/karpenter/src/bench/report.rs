//! Prints the results: one table row per case and mode, averaged over seeds; JSON has every run.

use std::io::{self, BufWriter, Write};

use anyhow::Result;

use super::measure::Run;
use crate::render::columns::{Align, Cell, Column, Columns};
use crate::render::terminal::Terminal;
use crate::render::view::grouped_digits;

/// The maximum number of violations that are printed per case; a case may violate the same rule thousands of times.
const VIOLATIONS_SHOWN_MAX: usize = 3;

pub(crate) fn violation_lines(run: &Run) -> Vec<String> {
    let shown = run.violations.iter().take(VIOLATIONS_SHOWN_MAX);
    let mut lines: Vec<String> =
        shown.map(|violation| format!("internal: {} {}: {violation}", run.name, run.mode)).collect();
    if run.violation_count > lines.len() {
        lines.push(format!("... and {} more", run.violation_count - lines.len()));
    }
    lines
}

pub(crate) fn write_json(runs: &[Run]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, runs)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

pub(crate) fn write_table(runs: &[Run], terminal: &Terminal) -> Result<()> {
    let mut table = Columns::new(
        [
            ("CASE", Align::Left),
            ("MODE", Align::Left),
            ("PODS", Align::Right),
            ("CLASSES", Align::Right),
            ("MS", Align::Right),
            ("PODS/S", Align::Right),
            ("NODES", Align::Right),
            ("$/H", Align::Right),
            ("GAP", Align::Right),
            ("WORST", Align::Right),
            ("OPTIONS", Align::Right),
            ("LEFT", Align::Right),
            ("RSS MIB", Align::Right),
            ("VS GO", Align::Right),
        ]
        .into_iter()
        .map(|(header, align)| Column::new(header, align, 0))
        .collect(),
    );
    for row in rows(runs) {
        table.push(row.into_iter().map(Cell::plain).collect());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    table.write(&Terminal { width: usize::MAX, ..*terminal }, &mut out)?;
    out.flush()?;
    Ok(())
}

/// One row of text per (case, mode), in the order of first appearance.
pub(crate) fn rows(runs: &[Run]) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        let same = |group: &&mut Vec<&Run>| {
            let first = group[0];
            (&first.workload, &first.name, first.mode) == (&run.workload, &run.name, run.mode)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().map(|group| row(group)).collect()
}

fn row(group: &[&Run]) -> Vec<String> {
    let first = group[0];
    let mean = |value: fn(&Run) -> f64| group.iter().map(|run| value(run)).sum::<f64>() / group.len() as f64;
    let gaps: Vec<f64> = group.iter().filter_map(|run| run.gap_percent).collect();
    let worst = gaps.iter().copied().max_by(f64::total_cmp);
    let mean_gap = (!gaps.is_empty()).then(|| gaps.iter().sum::<f64>() / gaps.len() as f64);
    let percent = |gap: Option<f64>| gap.map_or("-".to_owned(), |gap| format!("{gap:.2}%"));
    let ms = mean(|run| run.ms);
    let rate = f64::from(first.pods) / (ms / 1000.0).max(1e-9);
    let peak = group.iter().filter_map(|run| run.peak_rss_mib).max_by(f64::total_cmp);
    // The rate in the table is computed from the mean duration, and so is its ratio to upstream's rate.
    let ratio = first.times_reference.map(|ratio| ratio / first.pods_per_second * rate);
    vec![
        format!("{} {}", first.workload, first.name),
        first.mode.to_owned(),
        grouped_digits(u64::from(first.pods)),
        format!("{:.0}", mean(|run| f64::from(run.classes))),
        if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.0}") },
        grouped_digits(rate as u64),
        format!("{:.0}", mean(|run| run.nodes as f64)),
        format!("{:.2}", mean(|run| run.hourly)),
        percent(mean_gap),
        percent(worst),
        format!(
            "{}/{:.0}",
            group.iter().map(|run| run.options_min).min().unwrap_or(0),
            mean(|run| run.options_median as f64)
        ),
        format!("{:.0}", mean(|run| run.unschedulable as f64)),
        peak.map_or("-".to_owned(), |mib| format!("{mib:.0}")),
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.1}x")),
    ]
}
