//! Prints the results of workload W7, either as a table with one row per run, or as JSON, which also has the price
//! after each pass.

use std::io::{self, BufWriter, Write};

use anyhow::Result;

use super::Run;
use crate::render::columns::{Align, Cell, Column, Columns};
use crate::render::terminal::Terminal;
use crate::render::view::grouped_digits;

pub(crate) fn write_json(runs: &[Run]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, runs)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

pub(crate) fn write_table(runs: &[Run], terminal: &Terminal) -> Result<()> {
    let headers = [
        ("CASE", Align::Left),
        ("SEED", Align::Right),
        ("MODE", Align::Left),
        ("NODES", Align::Right),
        ("PODS", Align::Right),
        ("LONGEST MS", Align::Right),
        ("TOTAL MS", Align::Right),
        ("PASSES", Align::Right),
        ("COMMANDS", Align::Right),
        ("MOVED", Align::Right),
        ("MOVED TO 7%", Align::Right),
        ("NODES AFTER", Align::Right),
        ("GAP BEFORE", Align::Right),
        ("GAP AFTER", Align::Right),
        ("RSS MIB", Align::Right),
    ];
    let columns = headers.into_iter().map(|(header, align)| Column::new(header, align, 0));
    let mut table = Columns::new(columns.collect());
    for run in runs {
        table.push(row(run).into_iter().map(Cell::plain).collect());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    table.write(&Terminal { width: usize::MAX, ..*terminal }, &mut out)?;
    out.flush()?;
    Ok(())
}

fn row(run: &Run) -> Vec<String> {
    let count = |number: usize| grouped_digits(number as u64);
    vec![
        format!("W7 {}", run.name),
        run.seed.to_string(),
        run.mode.to_owned(),
        count(run.nodes),
        count(run.pods),
        format!("{:.0}", run.longest_pass_ms),
        format!("{:.0}", run.total_ms),
        format!("{}{}", run.passes, if run.is_at_rest { "" } else { "+" }),
        count(run.commands),
        count(run.pods_moved),
        run.pods_moved_to_reference.map_or("-".to_owned(), count),
        count(run.nodes_after),
        format!("{:.2}%", run.gap_before_percent),
        format!("{:.2}%", run.gap_after_percent),
        run.peak_rss_mib.map_or("-".to_owned(), |mib| format!("{mib:.0}")),
    ]
}
