//! Renders a simulated consolidation as text: the commands with their moves, then one line per node that is not
//! disrupted. JSON and YAML print the report itself.

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use anyhow::Result;

use super::columns::{Align, Cell, Column, Columns};
use super::machine::{write_value_json, write_value_yaml};
use super::summary::{dollars, dollars_rounded};
use super::terminal::Terminal;
use super::view::{HOURS_PER_MONTH, counted};
use crate::cli::OutputFormat;
use crate::plan::consolidate::report::{CommandReport, NodeFacts, ReplacementReport, Report};

pub(crate) fn write_report(
    report: &Report,
    format: OutputFormat,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        OutputFormat::Json => write_value_json(report, out),
        OutputFormat::Yaml => write_value_yaml(report, out),
        OutputFormat::Table => Ok(write_table(report, false, terminal, out)?),
        OutputFormat::Wide => Ok(write_table(report, true, terminal, out)?),
    }
}

/// Writes the table. With `every_pod`, it also prints the target of each pod.
fn write_table(report: &Report, every_pod: bool, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    write_summary(report, terminal, out)?;
    for (number, command) in report.commands.iter().enumerate() {
        writeln!(out)?;
        write_command(number + 1, command, every_pod, terminal, out)?;
    }
    if !report.staying.is_empty() {
        writeln!(out)?;
        write_staying(report, terminal, out)?;
    }
    Ok(())
}

fn write_summary(report: &Report, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let bold = terminal.bold();
    let (cost, stats) = (&report.cost, &report.stats);
    let made = report.commands.iter().filter(|command| !command.dry_run);
    let (mut commands, mut disrupted, mut launched) = (0, 0, 0);
    for command in made {
        commands += 1;
        disrupted += command.candidates.len() as u64;
        launched += command.replacements.len() as u64;
    }
    let headline = if commands == 0 {
        format!("nothing to do for {}", counted(stats.nodes_before as u64, "node"))
    } else {
        let rounds = match stats.rounds {
            0 | 1 => String::new(),
            rounds => format!(" in {rounds} passes"),
        };
        format!(
            "{}{rounds}: {disrupted} of {} disrupted, {launched} new, {} rescheduled",
            counted(commands, "command"),
            counted(stats.nodes_before as u64, "node"),
            counted(stats.pods_moved as u64, "pod"),
        )
    };
    writeln!(out, "{bold}{headline}{bold:#}")?;
    let monthly = |hourly: f64| dollars_rounded(hourly * HOURS_PER_MONTH);
    writeln!(out, "cost now     {}/h  {}/month", dollars(cost.hourly_before), monthly(cost.hourly_before))?;
    if commands > 0 {
        // The saving may be negative: a mandatory replacement, such as for drift, may be more expensive.
        let (percent, what) = match cost.saving_percent {
            saved if saved < 0.0 => (-saved, "more"),
            saved => (saved, "saved"),
        };
        let (after, month) = (dollars(cost.hourly_after), monthly(cost.hourly_after));
        writeln!(out, "afterwards   {after}/h  {month}/month  {percent:.1}% {what}")?;
    }
    write_rehearsed(report, out)?;
    if let Some(bound) = cost.lower_bound {
        let verdict = match cost.gap_percent {
            None => "of all pods; nodes without a known price are not counted above".to_owned(),
            Some(gap) if gap < 0.05 => "nothing can be cheaper".to_owned(),
            Some(gap) => format!("at most {gap:.1}% above the cheapest possible"),
        };
        writeln!(out, "lower bound  {}/h  {verdict}", dollars(bound))?;
    }
    writeln!(out, "as of        {}", report.now)
}

/// Writes the saving of the commands of the consolidation dry run, which the simulation does not apply.
fn write_rehearsed(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let rehearsed: Vec<&CommandReport> = report.commands.iter().filter(|command| command.dry_run).collect();
    if rehearsed.is_empty() {
        return Ok(());
    }
    let saving: f64 = rehearsed.iter().map(|command| command.saving).sum();
    let commands = counted(rehearsed.len() as u64, "command");
    writeln!(
        out,
        "dry run      {}/h  would be saved by {commands} of NodePools with a dry run",
        dollars(saving)
    )
}

fn write_command(
    number: usize,
    command: &CommandReport,
    every_pod: bool,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> io::Result<()> {
    let bold = terminal.bold();
    let rehearsed = if command.dry_run { " (dry run)" } else { "" };
    let round = if command.round > 1 { format!(" in pass {}", command.round) } else { String::new() };
    let what = match (command.decision, command.replacements.len()) {
        ("reboot", _) => "rebooted".to_owned(),
        ("terminate-first", _) => "removed, then replaced".to_owned(),
        (_, 0) => "removed".to_owned(),
        (_, count) => format!("replaced by {count}"),
    };
    let saving = match command.saving {
        0.0 => String::new(),
        more if more < 0.0 => {
            format!(", costs {}/h more ({:.1}%)", dollars(-more), -command.saving_percent)
        }
        saving => format!(", saves {}/h ({:.1}%)", dollars(saving), command.saving_percent),
    };
    writeln!(
        out,
        "{bold}{number}  {}{rehearsed}{bold:#}: {} {what}{round}{saving}, {} moved",
        command.reason,
        counted(command.candidates.len() as u64, "node"),
        counted(command.pods_moved as u64, "pod"),
    )?;
    let mut columns = Columns::new(vec![
        Column::new(" ", Align::Left, 0),
        Column::new("NODE", Align::Left, 0),
        Column::new("NODEPOOL", Align::Left, 2),
        Column::new("TYPE", Align::Left, 0),
        Column::new("ZONE", Align::Left, 4),
        Column::new("CAPACITY", Align::Left, 3),
        Column::new("$/H", Align::Right, 1),
    ]);
    for facts in &command.candidates {
        columns.push(node_row("-", facts));
    }
    for node in &command.replacements {
        columns.push(replacement_row(node));
    }
    columns.write(terminal, out)?;
    if every_pod {
        for one in &command.moves {
            writeln!(out, "     {}  {} -> {}", one.pod, one.from, one.to)?;
        }
    }
    Ok(())
}

fn text(value: Option<&String>) -> Cell {
    Cell::plain(value.map_or("-", String::as_str))
}

fn price(hourly: Option<f64>) -> Cell {
    Cell::plain(hourly.map_or_else(|| "-".to_owned(), dollars))
}

fn node_row(sign: &str, facts: &NodeFacts) -> Vec<Cell> {
    vec![
        Cell::plain(sign),
        Cell::plain(facts.node.as_ref().unwrap_or(&facts.node_claim)),
        text(facts.node_pool.as_ref()),
        text(facts.instance_type.as_ref()),
        text(facts.zone.as_ref()),
        text(facts.capacity_type.as_ref()),
        price(facts.price),
    ]
}

fn replacement_row(node: &ReplacementReport) -> Vec<Cell> {
    let others = node.instance_type_options.len().saturating_sub(1);
    let kind = match (&node.instance_type, others) {
        (Some(name), 0) => name.clone(),
        (Some(name), others) => format!("{name} or {}", counted(others as u64, "other")),
        (None, _) => "as its template says".to_owned(),
    };
    vec![
        Cell::plain("+"),
        Cell::plain(&node.name),
        Cell::plain(&node.node_pool),
        Cell::plain(kind),
        text(node.zone.as_ref()),
        text(node.capacity_type.as_ref()),
        price(Some(node.price)),
    ]
}

fn write_staying(report: &Report, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let mut columns = Columns::new(vec![
        Column::new("STAYS", Align::Left, 0),
        Column::new("NODEPOOL", Align::Left, 3),
        Column::new("TYPE", Align::Left, 2),
        Column::new("$/H", Align::Right, 1),
        Column::new("WHY", Align::Left, 0),
    ]);
    for node in &report.staying {
        let facts = &node.facts;
        columns.push(vec![
            Cell::plain(facts.node.as_ref().unwrap_or(&facts.node_claim)),
            text(facts.node_pool.as_ref()),
            text(facts.instance_type.as_ref()),
            price(facts.price),
            Cell::plain(node.message.replace('\n', " ")),
        ]);
    }
    columns.write(terminal, out)
}
