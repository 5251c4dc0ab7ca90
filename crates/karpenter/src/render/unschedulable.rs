//! Prints unschedulable pods: one block per group of pods, one line per NodePool with the reason, and a hint.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::AnsiColor;
use karpenter_api::error::one_line;
use karpenter_explain::hints::{distance, hint};
use karpenter_model::reason::{Refusal, Scope};

use super::terminal::Terminal;
use super::view::{View, counted, group_label};

const BLOCKS_MAX: usize = 25;
const REASONS_MAX: usize = 8;

struct Block<'a> {
    label: String,
    pods: u64,
    reasons: &'a [Refusal],
}

pub(crate) fn write(view: &View<'_>, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let blocks = blocks_of(view);
    if blocks.is_empty() {
        return Ok(());
    }
    let bold = terminal.bold();
    let red = terminal.coloured(AnsiColor::Red);
    writeln!(out)?;
    writeln!(out, "{bold}DO NOT FIT{bold:#}")?;
    for block in blocks.iter().take(BLOCKS_MAX) {
        writeln!(out, "{red}{}{red:#} ({})", block.label, counted(block.pods, "pod"))?;
        write_reasons(block.reasons, terminal, out)?;
    }
    if blocks.len() > BLOCKS_MAX {
        let rest = &blocks[BLOCKS_MAX..];
        let pods = rest.iter().map(|block| block.pods).sum();
        writeln!(
            out,
            "and {} more ({}); -o json lists them all",
            counted(rest.len() as u64, "group"),
            counted(pods, "pod")
        )?;
    }
    Ok(())
}

fn blocks_of<'a>(view: &View<'a>) -> Vec<Block<'a>> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    let mut positions: BTreeMap<(String, &[Refusal]), usize> = BTreeMap::new();
    for left in &view.plan.unschedulable {
        let label = group_label(view.group(&left.pods));
        let pods = u64::from(left.pods.count);
        match positions.get(&(label.clone(), left.reasons.as_slice())) {
            Some(position) => blocks[*position].pods += pods,
            None => {
                positions.insert((label.clone(), &left.reasons), blocks.len());
                blocks.push(Block { label, pods, reasons: &left.reasons });
            }
        }
    }
    blocks
}

fn write_reasons(reasons: &[Refusal], terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let mut ordered: Vec<&Refusal> = reasons.iter().collect();
    // The sort is stable, so the planner's order is kept otherwise. Reasons of existing nodes come last, because users
    // can rarely change them.
    ordered.sort_by_key(|refusal| {
        (matches!(refusal.scope, Scope::ExistingNodes { .. }), distance(&refusal.reason))
    });
    let dim = terminal.dim();
    for refusal in ordered.iter().take(REASONS_MAX) {
        writeln!(out, "  {}", one_line(&refusal.to_string()))?;
    }
    if ordered.len() > REASONS_MAX {
        writeln!(
            out,
            "  and {} more; -o json lists them all",
            counted((ordered.len() - REASONS_MAX) as u64, "reason")
        )?;
    }
    if let Some(text) = ordered.iter().find_map(|refusal| hint(refusal)) {
        writeln!(out, "  {dim}hint: {}{dim:#}", one_line(&text))?;
    }
    Ok(())
}
