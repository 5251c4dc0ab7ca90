//! Computes a lower bound: a price that no valid fleet for the placed pods can go below.
//!
//! The bound holds for fleets with other zones, with other NodePools, and with other pods on existing nodes as well.
//! Its linear program has only these constraints: resources, labels, taints, required anti-affinity between equal pods,
//! the limits of hard hostname spreads (`limits`), and how evenly these spreads must distribute pods (`hosts`). So it
//! holds for plans of compat mode and of cost mode.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::problem::Problem;

use super::items::{self, Demands, Item};
use super::knapsack::{self, Order, PodCounts, Scratch};
use super::limits::Counted;
use super::merged::MergedRelaxation;
use super::relaxation::{Effort, Hint, Relaxation};
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector, covers};
use super::{blocks, farley, hosts};
use crate::bits::Bits;
use crate::ledger::Ledger;
use crate::states::ReqId;

/// A lower bound for the price of new nodes for the pods that the ledger has placed, some of which may be on existing
/// nodes.
pub(crate) fn lower_bound(ledger: &mut Ledger, effort: Effort, scratch: &mut Scratch) -> f64 {
    if ledger.claims.is_empty() || ledger.prepared.dimensions.len() > DIMENSIONS_MAX {
        return 0.0;
    }
    let everywhere = all_templates(ledger);
    let items = placed_items(ledger);
    let counted = Counted::of(ledger, &items, None);
    let mut demands = Demands::default();
    let rows = items::rows(ledger, &items, &mut demands, &everywhere, items::Purpose::Bound(&counted)).rows;
    let kinds = items::all_kinds(ledger, &everywhere, &demands.list);
    let Some(relaxed) = relaxed(&rows, &kinds, effort, scratch) else { return 0.0 };
    let nodes = node_kinds(ledger, demands.list.len());
    let bound = if nodes.is_empty() {
        relaxed.lower_bound
    } else {
        with_existing_nodes(&rows, &kinds, &nodes, &relaxed, scratch)
    };
    let known = known(&relaxed, bound);
    hosts::lower_bound(ledger, &items, &counted, &everywhere, &node_kinds, &known, effort, scratch)
}

/// Packs the relaxation without hostname spreads into the form that the bound with hostname spreads (`hosts`) starts
/// from.
fn known(relaxed: &Relaxation, bound: f64) -> hosts::KnownBound<'_> {
    hosts::KnownBound {
        bound,
        nodes: relaxed.columns.iter().map(|(_, _, amount)| amount).sum(),
        weights: &relaxed.resource_prices,
    }
}

/// The lower bound if some of the pods may run on existing nodes, which cost nothing.
fn with_existing_nodes(
    rows: &[Row],
    kinds: &[NodeKind],
    nodes: &[NodeKind],
    relaxed: &Relaxation,
    scratch: &mut Scratch,
) -> f64 {
    // Pods on existing nodes cost nothing. So the largest value, in dual prices, of the pods that fit on existing nodes
    // is subtracted from the bound.
    let resource_values: Vec<f64> =
        rows.iter().map(|row| knapsack::weigh(&relaxed.resource_prices, &row.requests)).collect();
    [&relaxed.duals, &resource_values]
        .into_iter()
        .map(|duals| {
            let order = Order::new(rows, duals, relaxed.resource_prices, |_| true);
            let worst = farley::max_value_ratio(rows, kinds, duals, &relaxed.resource_prices, 0, scratch);
            let total: f64 = rows.iter().zip(duals).map(|(row, dual)| dual * f64::from(row.count)).sum();
            let free: f64 = nodes.iter().map(|node| knapsack::upper_bound(rows, duals, &order, node)).sum();
            if worst > 0.0 { (total - free) / worst } else { 0.0 }
        })
        .fold(0.0, f64::max)
}

/// A lower bound for new nodes for all pending pods, and a dual price per class of pods. At these prices, no set of
/// pods that fits on a node is worth more than the node costs. Classes that no NodePool accepts have the price 0. The
/// bound accounts for hostname spreads; the dual prices do not.
pub(crate) fn class_prices(
    ledger: &mut Ledger,
    fleet: &Problem,
    effort: Effort,
    scratch: &mut Scratch,
) -> (f64, Vec<f64>) {
    let mut prices = vec![0.0; ledger.classes.classes.len()];
    if ledger.prepared.dimensions.len() > DIMENSIONS_MAX {
        return (0.0, prices);
    }
    let Waiting { items, counted, rows, behind, kinds } = waiting(ledger, fleet);
    let Some(relaxed) = relaxed(&rows, &kinds, effort, scratch) else { return (0.0, prices) };
    let nodes = effort.search_nodes;
    let worst =
        farley::max_value_ratio(&rows, &kinds, &relaxed.duals, &relaxed.resource_prices, nodes, scratch);
    for (dual, members) in relaxed.duals.iter().zip(&behind).filter(|_| worst > 0.0) {
        for item in members {
            prices[ledger.classes.variants[items[*item].variant].class] = dual / worst;
        }
    }
    let taken: BTreeSet<usize> = behind.into_iter().flatten().collect();
    let items: Vec<Item> = taken.into_iter().map(|item| items[item].clone()).collect();
    let everywhere = all_templates(ledger);
    let known = known(&relaxed, relaxed.lower_bound);
    let nothing = |_: &Ledger, _: usize| Vec::new();
    let bound = hosts::lower_bound(ledger, &items, &counted, &everywhere, &nothing, &known, effort, scratch);
    (bound, prices)
}

/// Pending pods that some NodePool accepts.
struct Waiting {
    items: Vec<Item>,
    counted: Counted,
    rows: Vec<Row>,
    /// For each row (group of equal pods): the indexes of its items.
    behind: Vec<Vec<usize>>,
    kinds: Vec<NodeKind>,
}

fn waiting(ledger: &mut Ledger, fleet: &Problem) -> Waiting {
    let everywhere = all_templates(ledger);
    let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
    for run in &ledger.classes.queue {
        // The last variant of a class has all preferences dropped and so the fewest constraints; the bound must hold
        // for it.
        *counts.entry(ledger.classes.classes[run.class].variants.end - 1).or_insert(0) += run.count;
    }
    let items = items_of(ledger, counts.into_iter().map(|(variant, count)| (variant, 0, count)).collect());
    let counted = Counted::of(ledger, &items, Some(fleet));
    let mut demands = Demands::default();
    let all = items::rows(ledger, &items, &mut demands, &everywhere, items::Purpose::Bound(&counted));
    let kinds = items::all_kinds(ledger, &everywhere, &demands.list);
    let (mut rows, mut behind) = (Vec::new(), Vec::new());
    for (row, members) in all.rows.into_iter().zip(all.items) {
        if kinds.iter().any(|kind| kind.takes(&row) && covers(&kind.free, &row.requests)) {
            rows.push(row);
            behind.push(members);
        }
    }
    Waiting { items, counted, rows, behind, kinds }
}

/// Solves the relaxation; returns the dual price of each group of equal pods, and the lower bound.
fn relaxed(rows: &[Row], kinds: &[NodeKind], effort: Effort, scratch: &mut Scratch) -> Option<Relaxation> {
    let with_limits = blocks::relax_blocks(rows, kinds, effort, scratch)?;
    // Merging groups of equal pods without regard to their limits per node gives a smaller linear program, which is
    // often solved closer to its optimum than the program with limits. The higher of the two bounds is used.
    let without = merged(rows, kinds, effort, scratch).map(|merged| merged.for_original_rows());
    let is_better = |without: &Relaxation| without.lower_bound > with_limits.lower_bound;
    Some(without.filter(is_better).unwrap_or(with_limits))
}

/// Dual prices become imprecise if there are more rows (groups of equal pods) than this.
const ROWS_MANY: usize = 64;

/// The relaxation after merging groups of equal pods (rows) that differ only in how many of their pods a node may hold,
/// as if there were no such limit; `None` if merging does not reduce the number of rows enough.
///
/// Deployments whose pods exclude each other are separate groups of equal pods that differ only in this limit. A lower
/// bound without the limits is a lower bound with them as well.
pub(crate) fn merged_relaxation(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<MergedRelaxation> {
    if rows.len() <= ROWS_MANY { None } else { merged(rows, kinds, effort, scratch) }
}

/// Like [`merged_relaxation`], but for any number of groups of equal pods.
fn merged(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<MergedRelaxation> {
    let (fewer, of_row) = merge_limited_rows(rows);
    if fewer.len() == rows.len() {
        return None;
    }
    let (merge_equal_rows, of_fewer) = merge_equal_rows(&fewer);
    let first = blocks::relax_blocks(&merge_equal_rows, kinds, effort, scratch)?;
    let hint = hint(&first, &fewer, &of_fewer);
    // Proofs ignore limits per node, so a proof for the merged groups of equal pods (rows) would only repeat the result
    // of the proof for the original rows.
    let effort = Effort { proofs: 0, ..effort };
    let mut relaxed = blocks::relax_blocks_from(&fewer, kinds, effort, Some(hint), scratch)?;
    relaxed.lower_bound = relaxed.lower_bound.max(first.lower_bound);
    Some(MergedRelaxation { relaxed, of_row })
}

/// Merges groups of equal pods (rows) that differ only in how many of their pods a node may hold. Returns the merged
/// rows, and the index of the merged row for each row. Rows without such a limit are merged separately from rows with
/// one. The limit of a merged row is the sum of the limits of its rows.
fn merge_limited_rows(rows: &[Row]) -> (Vec<Row>, Vec<usize>) {
    let mut index: BTreeMap<(Vector, usize, bool), usize> = BTreeMap::new();
    let mut fewer: Vec<Row> = Vec::new();
    // Groups of equal pods (rows) of one exclusion group share one limit, so a merged row adds this limit once for the
    // whole group.
    let mut excluded: BTreeMap<(usize, u16), u32> = BTreeMap::new();
    let of_row: Vec<usize> = rows
        .iter()
        .map(|row| {
            let is_limited = row.cap < u32::MAX || row.exclusion.is_some();
            let position = *index.entry((row.requests, row.demand, is_limited)).or_insert_with(|| {
                let cap = if is_limited { 0 } else { u32::MAX };
                fewer.push(Row { count: 0, cap, exclusion: None, ..row.clone() });
                fewer.len() - 1
            });
            let joined = &mut fewer[position];
            joined.count += row.count;
            let more = match row.exclusion {
                None => row.cap,
                Some((group, cap)) => {
                    let so_far = excluded.entry((position, group)).or_insert(0);
                    let before = *so_far;
                    *so_far = before.saturating_add(row.cap).min(cap);
                    *so_far - before
                }
            };
            joined.cap = joined.cap.saturating_add(more);
            position
        })
        .collect();
    (fewer, of_row)
}

/// Like [`merge_limited_rows`], but also merges groups of equal pods (rows) that have a limit with rows that have none.
fn merge_equal_rows(rows: &[Row]) -> (Vec<Row>, Vec<usize>) {
    let mut index: BTreeMap<(Vector, usize), usize> = BTreeMap::new();
    let mut fewer: Vec<Row> = Vec::new();
    let of_row: Vec<usize> = rows
        .iter()
        .map(|row| {
            let position = *index.entry((row.requests, row.demand)).or_insert_with(|| {
                fewer.push(Row { count: 0, cap: u32::MAX, exclusion: None, ..row.clone() });
                fewer.len() - 1
            });
            fewer[position].count += row.count;
            position
        })
        .collect();
    (fewer, of_row)
}

/// Turns a relaxation of groups of equal pods (rows) that [`merge_equal_rows`] merged into a hint for the original
/// rows. The dual prices are copied. Each column (set of pods for one node) becomes three: with as many pods as
/// possible of the rows that have a limit, with none of them, and in proportion to the numbers of pods.
fn hint(relaxed: &Relaxation, rows: &[Row], of_row: &[usize]) -> Hint {
    let mut behind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (row, merge_equal_rows) in of_row.iter().enumerate() {
        behind.entry(*merge_equal_rows).or_default().push(row);
    }
    // Limited groups of equal pods come first, so that columns (sets of pods for one node) hold as many limited pods as
    // possible.
    behind.values_mut().for_each(|members| members.sort_by_key(|row| rows[*row].cap));
    let split = |pod_counts: &PodCounts, limited_share: &dyn Fn(f64) -> f64| -> PodCounts {
        let mut split = PodCounts::new();
        for (merge_equal_rows, count) in pod_counts {
            let members = &behind[&(*merge_equal_rows as usize)];
            let of_all: f64 = members.iter().map(|row| f64::from(rows[*row].count)).sum();
            let mut left = *count;
            for row in members {
                let data = &rows[*row];
                let is_last = Some(row) == members.last();
                let wanted = if is_last {
                    left
                } else {
                    (f64::from(*count) * limited_share(f64::from(data.count) / of_all)).round() as u32
                };
                let taken = wanted.min(left).min(data.cap).min(data.count);
                left -= taken;
                if taken > 0 {
                    split.push((*row as u32, taken));
                }
            }
        }
        split
    };
    let mut columns = Vec::new();
    for (kind, pod_counts, _) in &relaxed.columns {
        let shares: [&dyn Fn(f64) -> f64; 3] = [&|_| 1.0, &|share| share, &|_| 0.0];
        columns.extend(shares.map(|share| (*kind, split(pod_counts, share))));
    }
    columns.retain(|(_, pod_counts)| !pod_counts.is_empty());
    Hint { duals: of_row.iter().map(|row| relaxed.center[*row]).collect(), columns }
}

fn all_templates(ledger: &Ledger) -> Bits {
    let mut everywhere = Bits::empty(ledger.prepared.templates.len());
    (0..ledger.prepared.templates.len()).for_each(|template| everywhere.insert(template));
    everywhere
}

fn placed_items(ledger: &mut Ledger) -> Vec<Item> {
    let claims = ledger.claims.iter().flat_map(|claim| claim.content.iter().copied());
    let nodes = ledger.nodes.iter().flat_map(|node| node.content.iter().map(|(v, count)| (*v, 0, *count)));
    let placed = claims.chain(nodes).collect();
    items_of(ledger, placed)
}

/// Converts (variant, volume alternative, count) entries to items (groups of interchangeable pods).
fn items_of(ledger: &mut Ledger, pods: Vec<(usize, u8, u32)>) -> Vec<Item> {
    let mut merged: BTreeMap<(usize, u8, ReqId), u32> = BTreeMap::new();
    for (variant, alternative, count) in pods {
        // If there are several volume alternatives or required terms, any of them may hold, so labels are not a
        // constraint of the bound.
        let data = &ledger.classes.variants[variant];
        let as_written = &ledger.classes.classes[data.class].spec;
        let added = if data.alternatives.len() > 1 || as_written.required_terms.len() > 1 {
            ReqId::NONE
        } else {
            let (added, volume) = (data.added, data.alternatives[alternative as usize]);
            ledger.states.join(added, volume)
        };
        *merged.entry((variant, alternative, added)).or_insert(0) += count;
    }
    merged
        .into_iter()
        .map(|((variant, alternative, added), count)| Item {
            variant,
            alternative,
            added,
            added_without_zone: added,
            count,
        })
        .collect()
}

/// Existing nodes with free capacity, as instance types that accept every demand (constraints on labels and taints).
/// The price is not used.
fn node_kinds(ledger: &Ledger, demands: usize) -> Vec<NodeKind> {
    let mut all = Bits::empty(demands);
    (0..demands).for_each(|demand| all.insert(demand));
    ledger
        .present
        .iter()
        .map(|node| items::vector(&ledger.free_before_plan(node)))
        .filter(|free| free.iter().all(|amount| *amount >= 0) && free[0] > 0)
        .map(|free| NodeKind {
            template: 0,
            instance_type: 0,
            free,
            price: 1.0,
            demands: all.clone(),
            is_spot: false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_only_in_limits_are_merged() {
        let row = |cpu: i64, demand: usize, count: u32, cap: u32, exclusion: Option<(u16, u32)>| {
            let mut requests = [0; DIMENSIONS_MAX];
            requests[0] = cpu;
            Row { requests, demand, count, cap, exclusion }
        };
        let many = u32::MAX;
        let rows = [
            row(1, 0, 3, 1, None),
            row(2, 0, 5, many, None),
            row(1, 0, 4, 2, None),
            row(1, 1, 7, 1, None),
            row(1, 0, 9, many, None),
            // A node holds at most two pods of both groups of equal pods (rows) together, and at most one pod of the
            // first row.
            row(1, 0, 2, 1, Some((0, 2))),
            row(1, 0, 2, many, Some((0, 2))),
        ];
        let (fewer, of_row) = merge_limited_rows(&rows);
        assert_eq!(of_row, [0, 1, 0, 2, 3, 0, 0]);
        let seen: Vec<_> =
            fewer.iter().map(|row| (row.requests[0], row.demand, row.count, row.cap)).collect();
        assert_eq!(seen, [(1, 0, 11, 5), (2, 0, 5, many), (1, 1, 7, 1), (1, 0, 9, many)]);
        assert!(fewer.iter().all(|row| row.exclusion.is_none()));
    }
}
