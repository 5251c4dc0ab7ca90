//! Renders a plan: tables for people, JSON and YAML for programs.
//!
//! All data is in the [`View`]. The output is streamed, because a plan may have a million pods.

mod bar;
pub(crate) mod columns;
pub(crate) mod consolidation;
mod explain;
mod machine;
mod nodes;
mod summary;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;
mod unschedulable;
pub(crate) mod view;

use std::io::{self, Write};

use anyhow::Result;

use crate::cli::OutputFormat;
pub(crate) use machine::{write_value_json, write_value_yaml};
pub(crate) use summary::dollars;
use terminal::Terminal;
pub(crate) use view::{Timings, View};

/// The level of detail of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Whether there is one row per node with its pods, instead of one row for equal nodes.
    pub(crate) every_node: bool,
    pub(crate) explain: bool,
}

/// Writes the plan in the chosen format.
pub(crate) fn write_plan(
    view: &View<'_>,
    format: OutputFormat,
    explain: bool,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        OutputFormat::Json => machine::write_json(view, out),
        OutputFormat::Yaml => machine::write_yaml(view, out),
        OutputFormat::Table => Ok(write_table(view, Detail { every_node: false, explain }, terminal, out)?),
        OutputFormat::Wide => Ok(write_table(view, Detail { every_node: true, explain }, terminal, out)?),
    }
}

fn write_table(view: &View<'_>, detail: Detail, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    summary::write(view, terminal, out)?;
    if detail.every_node {
        nodes::write_every_node(view, terminal, out)?;
    } else {
        nodes::write_grouped(view, terminal, out)?;
    }
    nodes::write_existing(view, detail.every_node, terminal, out)?;
    unschedulable::write(view, terminal, out)?;
    if detail.explain {
        explain::write(view, terminal, out)?;
    }
    Ok(())
}
