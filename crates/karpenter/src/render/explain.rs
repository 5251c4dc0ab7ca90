//! Prints the output of `--explain`: for each group of pods where it was planned, and why other NodePools were not
//! used.
//!
//! The planner does not record rejected options, so this module derives the reasons from each NodePool's taints, labels
//! and largest instance types. It does not take the other pods of the plan into account.

use std::collections::BTreeMap;
use std::io::{self, Write};

use karpenter_model::instance_type::InstanceType;
use karpenter_model::plan::PodRun;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{NodePool, PodGroup, Problem};
use karpenter_model::reason::Reason;
use karpenter_model::requirements::Requirements;
use karpenter_model::taints::first_untolerated;

use super::terminal::Terminal;
use super::view::{View, counted, group_label, resources_text};

#[derive(Default)]
struct Placed {
    /// The number of (nodes, pods) for each pair of a NodePool and a text "type in zone, capacity type at price".
    new: BTreeMap<(usize, String), (u64, u64)>,
    existing: BTreeMap<usize, u64>,
    left: u64,
}

pub(crate) fn write(view: &View<'_>, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let placed = placements(view);
    let bold = terminal.bold();
    writeln!(out)?;
    writeln!(out, "{bold}WHY{bold:#}")?;
    for (index, group) in view.problem.pods.iter().enumerate() {
        let nothing = Placed::default();
        let placed = placed.get(&(index as u32)).unwrap_or(&nothing);
        write_group(view, group, placed, terminal, out)?;
    }
    Ok(())
}

fn placements(view: &View<'_>) -> BTreeMap<u32, Placed> {
    let mut placed: BTreeMap<u32, Placed> = BTreeMap::new();
    let by_group = |runs: &[PodRun]| {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for run in runs {
            *sums.entry(run.group).or_default() += u64::from(run.count);
        }
        sums
    };
    for node in view.nodes() {
        let kind = format!(
            "{} in {}, {} at ${:.4}/h",
            node.instance_type().name,
            node.zone().unwrap_or("any zone"),
            node.capacity_type().unwrap_or("any capacity"),
            node.node.price_per_hour
        );
        for (group, pods) in by_group(&node.node.pods) {
            let sums =
                placed.entry(group).or_default().new.entry((node.node.pool, kind.clone())).or_default();
            sums.0 += 1;
            sums.1 += pods;
        }
    }
    for placement in &view.plan.existing {
        for (group, pods) in by_group(&placement.pods) {
            *placed.entry(group).or_default().existing.entry(placement.node).or_default() += pods;
        }
    }
    for left in &view.plan.unschedulable {
        placed.entry(left.pods.group).or_default().left += u64::from(left.pods.count);
    }
    placed
}

fn write_group(
    view: &View<'_>,
    group: &PodGroup,
    placed: &Placed,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> io::Result<()> {
    let bold = terminal.bold();
    writeln!(
        out,
        "{bold}{}{bold:#} ({}, each {})",
        group_label(group),
        counted(u64::from(group.count()), "pod"),
        resources_text(&group.spec.requests)
    )?;
    for (node, pods) in &placed.existing {
        writeln!(out, "  {} on existing node {}", counted(*pods, "pod"), view.problem.nodes[*node].name)?;
    }
    for ((pool, kind), (nodes, pods)) in &placed.new {
        writeln!(
            out,
            "  {} on {} of NodePool {}: {kind}",
            counted(*pods, "pod"),
            counted(*nodes, "new node"),
            view.problem.pools[*pool].name
        )?;
    }
    if placed.left > 0 {
        writeln!(out, "  {} unschedulable, see above", counted(placed.left, "pod"))?;
    }
    let dim = terminal.dim();
    let used = |pool: usize| placed.new.keys().any(|(used, _)| *used == pool);
    for (index, pool) in view.problem.pools.iter().enumerate().filter(|(index, _)| !used(*index)) {
        // If none of the pods was planned, the planner's reasons are printed above.
        if placed.left == u64::from(group.count()) {
            break;
        }
        let why = match refusal(view.problem, pool, &group.spec) {
            Some(reason) => karpenter_api::error::one_line(&reason.to_string()).into_owned(),
            None => possible_elsewhere(view.problem, index, placed),
        };
        writeln!(out, "  {dim}not NodePool {}: {why}{dim:#}", pool.name)?;
    }
    Ok(())
}

fn possible_elsewhere(problem: &Problem, index: usize, placed: &Placed) -> String {
    if placed.new.is_empty() {
        return "existing nodes had capacity".to_owned();
    }
    let weight_used = placed.new.keys().map(|(pool, _)| problem.pools[*pool].weight).min().unwrap_or(0);
    if problem.pools[index].weight < weight_used {
        format!("possible, but its weight {} is below {weight_used}", problem.pools[index].weight)
    } else {
        "possible, but not cheaper".to_owned()
    }
}

/// The first reason why no node of the NodePool, not even an empty one, can run such a pod.
fn refusal(problem: &Problem, pool: &NodePool, spec: &PodSpec) -> Option<Reason> {
    if let Some(taint) = first_untolerated(&pool.taints, &spec.tolerations) {
        return Some(Reason::Taint(taint.clone()));
    }
    let mut offered = pool.requirements.clone();
    offered.extend(&Requirements::from_labels(&pool.labels));
    let alternatives: Vec<Requirements> = if spec.required_terms.is_empty() {
        vec![spec.node_selector.clone()]
    } else {
        let with_selector = |term: &Requirements| {
            let mut wanted = spec.node_selector.clone();
            wanted.extend(term);
            wanted
        };
        spec.required_terms.iter().map(with_selector).collect()
    };
    let mut last = None;
    for wanted in &alternatives {
        match offered.compatible(wanted, &problem.well_known) {
            Err(incompatible) => last = Some(incompatible.into()),
            Ok(()) => {
                let mut both = offered.clone();
                both.extend(wanted);
                match fitting_type(problem, pool, &both, spec) {
                    None => return None,
                    Some(reason) => last = Some(reason),
                }
            }
        }
    }
    last
}

fn fitting_type(problem: &Problem, pool: &NodePool, both: &Requirements, spec: &PodSpec) -> Option<Reason> {
    let matching: Vec<&InstanceType> = problem.catalogs[pool.catalog]
        .iter()
        .filter(|instance_type| instance_type.requirements.intersects(both))
        .filter(|instance_type| {
            instance_type
                .offerings
                .iter()
                .any(|offering| offering.is_launchable() && offering.requirements.intersects(both))
        })
        .collect();
    if matching.is_empty() {
        return Some(Reason::NoInstanceTypeMatches { wanted: spec.node_selector.iter().cloned().collect() });
    }
    let mut largest = karpenter_model::resources::ResourceList::new();
    for instance_type in &matching {
        let overridden = instance_type.offerings.iter().filter(|offering| offering.overrides.is_some());
        let overridden = overridden.map(|offering| instance_type.allocatable_of(offering));
        for allocatable in std::iter::once(instance_type.allocatable()).chain(overridden) {
            if allocatable.holds(&spec.requests) {
                return None;
            }
            for (name, amount) in allocatable.iter() {
                largest.set(name.clone(), largest.get(name).max(amount));
            }
        }
    }
    let short_of = spec
        .requests
        .iter()
        .filter(|(name, amount)| *amount > largest.get(name))
        .map(|(name, _)| name.clone())
        .collect();
    Some(Reason::TooLarge { requests: spec.requests.clone(), largest, short_of })
}
