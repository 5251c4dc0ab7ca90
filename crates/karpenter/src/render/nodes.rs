//! Prints node tables: planned nodes, grouped or one by one, and existing nodes that get pods.

use std::collections::BTreeMap;
use std::io::{self, Write};

use karpenter_model::labels;
use karpenter_model::plan::PodRun;
use karpenter_model::resources::{CPU, MEMORY};

use super::bar;
use super::columns::{Align, Cell, Column, Columns};
use super::terminal::Terminal;
use super::view::{NodeView, View, count, counted, group_label, grouped_digits};

/// If the table would have more rows than this, nodes that differ only in utilisation share a row.
const EXACT_ROWS_MAX: usize = 24;
/// Layouts from wide to narrow: the number of cells per bar, and the highest rank of the columns that must fit.
const LAYOUTS: [(usize, u8); 5] = [(10, RANK_MAX), (5, RANK_MAX), (5, 3), (5, 1), (0, 0)];
const RANK_MAX: u8 = 5;

/// One row: nodes with the same NodePool, instance type, zone and capacity type.
struct Row<'a> {
    first: NodeView<'a>,
    nodes: u64,
    pods_min: u64,
    pods_max: u64,
    options_min: usize,
    /// The sums over the nodes, one per resource column.
    utilisation: Vec<Option<f64>>,
}

pub(crate) fn write_grouped(view: &View<'_>, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    if view.plan.new_nodes.is_empty() {
        return Ok(());
    }
    let resources = resource_columns(view);
    let mut rows = rows_of(view, &resources, true);
    if rows.len() > EXACT_ROWS_MAX {
        rows = rows_of(view, &resources, false);
    }
    rows.sort_by(|a, b| {
        let cost = |row: &Row<'_>| row.nodes as f64 * row.first.node.price_per_hour;
        let pool = |row: &Row<'_>| row.first.node.pool;
        pool(a).cmp(&pool(b)).then(cost(b).total_cmp(&cost(a)))
    });
    writeln!(out)?;
    let shown = Shown { several_pools: view.problem.pools.len() > 1, attachments: view.has_attachments() };
    for (bar_cells, rank) in LAYOUTS {
        let table = grouped_table(&rows, &resources, bar_cells, shown, terminal);
        if bar_cells == 0 || table.width_up_to(rank) <= terminal.width {
            return table.write(terminal, out);
        }
    }
    Ok(())
}

fn resource_columns<'a>(view: &'a View<'_>) -> Vec<&'a str> {
    let mut resources = vec![CPU, MEMORY];
    resources.extend(view.extended_resources());
    resources
}

fn rows_of<'a>(view: &'a View<'_>, resources: &[&str], exact: bool) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    let mut positions = BTreeMap::new();
    for node in view.nodes() {
        let planned = node.node;
        let load: Vec<(u32, u32)> =
            if exact { planned.pods.iter().map(|run| (run.group, run.count)).collect() } else { Vec::new() };
        let options = if exact { planned.instance_type_options.len() } else { 0 };
        let key = (
            planned.pool,
            planned.instance_type,
            node.zone(),
            node.capacity_type(),
            planned.price_per_hour.to_bits(),
            options,
            load,
        );
        let allocatable = node.allocatable();
        let utilisation = resources.iter().map(|name| node.utilisation(name, &allocatable));
        let pods = node.pod_count();
        match positions.get(&key) {
            None => {
                positions.insert(key, rows.len());
                rows.push(Row {
                    first: node,
                    nodes: 1,
                    pods_min: pods,
                    pods_max: pods,
                    options_min: planned.instance_type_options.len(),
                    utilisation: utilisation.collect(),
                });
            }
            Some(position) => {
                let row = &mut rows[*position];
                row.nodes += 1;
                row.pods_min = row.pods_min.min(pods);
                row.pods_max = row.pods_max.max(pods);
                row.options_min = row.options_min.min(planned.instance_type_options.len());
                for (sum, share) in row.utilisation.iter_mut().zip(utilisation) {
                    *sum = sum.zip(share).map(|(sum, share)| sum + share);
                }
            }
        }
    }
    rows
}

/// Which optional columns a table has.
#[derive(Clone, Copy)]
struct Shown {
    several_pools: bool,
    /// Whether some node costs more than its instance, because of volumes or addresses.
    attachments: bool,
}

fn grouped_table(
    rows: &[Row<'_>],
    resources: &[&str],
    bar_cells: usize,
    shown: Shown,
    terminal: &Terminal,
) -> Columns {
    let mut columns = vec![
        Column::new("NODES", Align::Right, 0),
        Column::new("TYPE", Align::Left, 0),
        Column::new("ZONE", Align::Left, 2),
        Column::new("CAPACITY", Align::Left, 3),
        Column::new("$/H EACH", Align::Right, 0),
    ];
    if shown.attachments {
        columns.push(Column::new("INSTANCE", Align::Right, 4));
    }
    columns.extend(resources.iter().map(|name| Column::new(short_name(name), Align::Left, 0)));
    columns.extend([
        Column::new("PODS EACH", Align::Right, 1),
        Column::new("OTHER TYPES", Align::Right, RANK_MAX),
    ]);
    if shown.several_pools {
        columns.push(Column::new("NODEPOOL", Align::Left, 4));
    }
    let mut table = Columns::new(columns);
    for row in rows {
        let node = row.first;
        let mut cells = vec![
            Cell::styled(format!("{}{}", terminal.times(), grouped_digits(row.nodes)), terminal.bold()),
            Cell::plain(&*node.instance_type().name),
            Cell::plain(node.zone().unwrap_or("-")),
            Cell::plain(node.capacity_type().unwrap_or("-")),
            Cell::plain(price(node.node.price_per_hour)),
        ];
        if shown.attachments {
            cells.push(Cell::plain(price(node.instance_price())));
        }
        let nodes = row.nodes as f64;
        cells.extend(
            row.utilisation.iter().map(|sum| bar::cell(sum.map(|sum| sum / nodes), bar_cells, terminal)),
        );
        let pods = if row.pods_min == row.pods_max {
            row.pods_min.to_string()
        } else {
            format!("{}-{}", row.pods_min, row.pods_max)
        };
        cells.extend([Cell::plain(pods), Cell::plain(row.options_min.saturating_sub(1).to_string())]);
        if shown.several_pools {
            cells.push(Cell::plain(&*node.pool().name));
        }
        table.push(cells);
    }
    table
}

/// One row per node, followed by the names of its pods on the same line.
pub(crate) fn write_every_node(view: &View<'_>, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    if view.plan.new_nodes.is_empty() {
        return Ok(());
    }
    let resources = resource_columns(view);
    let name_width = view.nodes().map(|node| node.name.chars().count()).max().unwrap_or(0).max(4);
    let type_width = view.nodes().map(|node| node.instance_type().name.len()).max().unwrap_or(0).max(4);
    let zone_width = view.nodes().map(|node| node.zone().map_or(1, str::len)).max().unwrap_or(0).max(4);
    let shares: String = resources.iter().map(|name| format!("  {:>6}", short_name(name))).collect();
    let bold = terminal.bold();
    let has_attachments = view.has_attachments();
    let instance = if has_attachments { "  INSTANCE" } else { "" };
    writeln!(out)?;
    writeln!(
        out,
        "{bold}{:name_width$}  {:type_width$}  {:zone_width$}  {:9}  {:>8}{instance}{shares}  {:>5}  PODS{bold:#}",
        "NODE", "TYPE", "ZONE", "CAPACITY", "$/H", "OTHER"
    )?;
    for node in view.nodes() {
        write!(
            out,
            "{:name_width$}  {:type_width$}  {:zone_width$}  {:9}  {:>8}",
            node.name,
            node.instance_type().name,
            node.zone().unwrap_or("-"),
            node.capacity_type().unwrap_or("-"),
            price(node.node.price_per_hour),
        )?;
        if has_attachments {
            write!(out, "  {:>8}", price(node.instance_price()))?;
        }
        let allocatable = node.allocatable();
        for name in &resources {
            match node.utilisation(name, &allocatable) {
                Some(share) => write!(out, "  {:>5.0}%", share * 100.0)?,
                None => write!(out, "  {:>6}", "-")?,
            }
        }
        write!(out, "  {:>5}  ", node.node.instance_type_options.len().saturating_sub(1))?;
        write_names(view, &node.node.pods, out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_names(view: &View<'_>, runs: &[PodRun], out: &mut dyn Write) -> io::Result<()> {
    for (position, name) in view.pod_names(runs).enumerate() {
        if position > 0 {
            out.write_all(b",")?;
        }
        out.write_all(name.as_bytes())?;
    }
    Ok(())
}

pub(crate) fn write_existing(
    view: &View<'_>,
    every_name: bool,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> io::Result<()> {
    if view.plan.existing.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Columns::new(vec![
        Column::new("EXISTING NODE", Align::Left, 0),
        Column::new("TYPE", Align::Left, 1),
        Column::new("ZONE", Align::Left, 2),
        Column::new("TAKES", Align::Right, 0),
        Column::new("PODS", Align::Left, 0),
    ]);
    for placement in &view.plan.existing {
        let node = &view.problem.nodes[placement.node];
        let label = |key| node.labels.get(key).map_or("-", |value| &**value);
        let pods = if every_name {
            view.pod_names(&placement.pods).collect::<Vec<_>>().join(",")
        } else {
            workloads_text(view, &placement.pods, terminal)
        };
        table.push(vec![
            Cell::plain(&*node.name),
            Cell::plain(label(labels::INSTANCE_TYPE)),
            Cell::plain(label(labels::ZONE)),
            Cell::plain(counted(count(&placement.pods), "pod")),
            Cell::plain(pods),
        ]);
    }
    table.write(terminal, out)
}

/// The workloads with their numbers of pods, as in `web ×3, api ×1`, in the order of the groups.
pub(crate) fn workloads_text(view: &View<'_>, runs: &[PodRun], terminal: &Terminal) -> String {
    const SHOWN_MAX: usize = 6;
    let mut by_group: BTreeMap<u32, u64> = BTreeMap::new();
    for run in runs {
        *by_group.entry(run.group).or_default() += u64::from(run.count);
    }
    let mut parts: Vec<String> = by_group
        .iter()
        .take(SHOWN_MAX)
        .map(|(group, pods)| {
            format!("{} {}{pods}", group_label(&view.problem.pods[*group as usize]), terminal.times())
        })
        .collect();
    if by_group.len() > SHOWN_MAX {
        parts.push(format!("{} more", by_group.len() - SHOWN_MAX));
    }
    parts.join(", ")
}

/// The name of a column: `nvidia.com/gpu` becomes GPU.
fn short_name(resource: &str) -> String {
    let short = resource.rsplit('/').next().unwrap_or(resource);
    short.to_ascii_uppercase()
}

fn price(dollars: f64) -> String {
    format!("{dollars:.4}")
}
