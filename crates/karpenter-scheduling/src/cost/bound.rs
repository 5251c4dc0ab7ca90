//! A price that no valid fleet for the placed pods can undercut.
//!
//! Everything that might be decided otherwise is left open here: zones, pools, nodes that were not repacked, and which
//! pods go to existing nodes. Only resources, labels, taints, required anti-affinity between equals and the limit of hard
//! hostname spreads bind (`limits`), and then how even these spreads are (`hosts`), so the bound holds for plans of either
//! mode.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::problem::Problem;

use super::dealt::Merged;
use super::items::{self, Demands, Item};
use super::knapsack::{self, Order, Pattern, Scratch};
use super::limits::Counted;
use super::relaxation::{self, Effort, Hint, Relaxation};
use super::shapes::{DIMENSIONS_MAX, Kind, Row, Vector, covers};
use super::{blocks, hosts};
use crate::bits::Bits;
use crate::ledger::Ledger;
use crate::states::ReqId;

/// The lower bound for what the ledger has placed now.
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
        beside_nodes(&rows, &kinds, &nodes, &relaxed, scratch)
    };
    let known = known(&relaxed, bound);
    hosts::lower_bound(ledger, &items, &counted, &everywhere, &node_kinds, &known, effort, scratch)
}

/// What a relaxation without spreads over hosts tells the one with them.
fn known(relaxed: &Relaxation, bound: f64) -> hosts::Known<'_> {
    hosts::Known {
        bound,
        nodes: relaxed.columns.iter().map(|(_, _, amount)| amount).sum(),
        weights: &relaxed.fluid_weights,
    }
}

/// The bound where some of the pods may go to existing nodes.
fn beside_nodes(
    rows: &[Row],
    kinds: &[Kind],
    nodes: &[Kind],
    relaxed: &Relaxation,
    scratch: &mut Scratch,
) -> f64 {
    // What existing nodes can hold is free: take off the most it can be worth at feasible prices of the pods.
    let fluid: Vec<f64> =
        rows.iter().map(|row| knapsack::weigh(&relaxed.fluid_weights, &row.requests)).collect();
    [&relaxed.duals, &fluid]
        .into_iter()
        .map(|duals| {
            let order = Order::new(rows, duals, relaxed.fluid_weights, |_| true);
            let worst = relaxation::worst_ratio(rows, kinds, duals, &relaxed.fluid_weights, 0, scratch);
            let total: f64 = rows.iter().zip(duals).map(|(row, dual)| dual * f64::from(row.count)).sum();
            let free: f64 = nodes.iter().map(|node| knapsack::upper_bound(rows, duals, &order, node)).sum();
            if worst > 0.0 { (total - free) / worst } else { 0.0 }
        })
        .fold(0.0, f64::max)
}

/// A lower bound for all waiting pods on new nodes, and a price per class: no filling of a node is worth more than the
/// node. Classes that no pool takes have the price 0. The bound knows spreads over hosts, the prices do not.
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
        relaxation::worst_ratio(&rows, &kinds, &relaxed.duals, &relaxed.fluid_weights, nodes, scratch);
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

/// What all waiting pods cost at the prices of the relaxation's own fillings. Whether there are better ones is not asked,
/// so it is no bound.
pub(crate) fn guess(
    ledger: &mut Ledger,
    fleet: &Problem,
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<f64> {
    if ledger.prepared.dimensions.len() > DIMENSIONS_MAX {
        return None;
    }
    let Waiting { rows, kinds, .. } = waiting(ledger, fleet);
    // Limits per node take too long for a guess.
    let rows = if rows.len() > ROWS_MANY { alike(&rows).0 } else { rows };
    Some(blocks::relax_blocks(&rows, &kinds, effort, scratch)?.likely)
}

/// Pods that wait and that some pool takes.
struct Waiting {
    items: Vec<Item>,
    counted: Counted,
    rows: Vec<Row>,
    /// By row: the items.
    behind: Vec<Vec<usize>>,
    kinds: Vec<Kind>,
}

fn waiting(ledger: &mut Ledger, fleet: &Problem) -> Waiting {
    let everywhere = all_templates(ledger);
    let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
    for run in &ledger.classes.queue {
        // The last level states the least.
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

/// Prices of the rows and what they add up to at least.
fn relaxed(rows: &[Row], kinds: &[Kind], effort: Effort, scratch: &mut Scratch) -> Option<Relaxation> {
    let with_limits = blocks::relax_blocks(rows, kinds, effort, scratch)?;
    // Rows that only limits tell apart are solved less far than one row for all of them.
    let without = merged(rows, kinds, effort, scratch).map(|merged| merged.unfolded());
    let is_better = |without: &Relaxation| without.lower_bound > with_limits.lower_bound;
    Some(without.filter(is_better).unwrap_or(with_limits))
}

/// With more rows than this, prices are rough.
const ROWS_MANY: usize = 64;

/// The same as if nodes could hold any number of each: `None` where that would be no help.
///
/// Limits per node tell rows apart that are the same otherwise, one for every Deployment that keeps its pods apart. What
/// bounds the pods without these limits bounds them with the limits too.
pub(crate) fn relaxed_without_limits(
    rows: &[Row],
    kinds: &[Kind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Merged> {
    if rows.len() <= ROWS_MANY { None } else { merged(rows, kinds, effort, scratch) }
}

/// The same for any number of rows.
fn merged(rows: &[Row], kinds: &[Kind], effort: Effort, scratch: &mut Scratch) -> Option<Merged> {
    let (fewer, of_row) = without_limits(rows);
    if fewer.len() == rows.len() {
        return None;
    }
    let (alike, of_fewer) = alike(&fewer);
    let first = blocks::relax_blocks(&alike, kinds, effort, scratch)?;
    let hint = hint(&first, &fewer, &of_fewer);
    // Limits per node do not bind where bounds are proved, so there is nothing more to prove.
    let effort = Effort { has_tables: false, proofs: 0, ..effort };
    let mut relaxed = blocks::relax_blocks_from(&fewer, kinds, effort, Some(hint), scratch)?;
    relaxed.lower_bound = relaxed.lower_bound.max(first.lower_bound);
    Some(Merged { relaxed, of_row })
}

/// Rows that differ only in how many of them a node may hold as one, and which of them each became. Those without a limit are
/// one of their own; a node may hold as many of the others as of all of them together.
fn without_limits(rows: &[Row]) -> (Vec<Row>, Vec<usize>) {
    let mut index: BTreeMap<(Vector, usize, bool), usize> = BTreeMap::new();
    let mut fewer: Vec<Row> = Vec::new();
    // What each exclusion adds to the limit of a row: once, however many rows share it.
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

/// The same with those that have a limit and those that have none as one.
fn alike(rows: &[Row]) -> (Vec<Row>, Vec<usize>) {
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

/// What a relaxation of rows that are `alike` says of these rows: the same prices, and each filling with as many of those that
/// have a limit as may be, with none of them, and with their share.
fn hint(relaxed: &Relaxation, rows: &[Row], of_row: &[usize]) -> Hint {
    let mut behind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (row, alike) in of_row.iter().enumerate() {
        behind.entry(*alike).or_default().push(row);
    }
    // Those with a limit come first.
    behind.values_mut().for_each(|members| members.sort_by_key(|row| rows[*row].cap));
    let split = |pattern: &Pattern, limited_share: &dyn Fn(f64) -> f64| -> Pattern {
        let mut split = Pattern::new();
        for (alike, count) in pattern {
            let members = &behind[&(*alike as usize)];
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
    let mut fillings = Vec::new();
    for (kind, pattern, _) in &relaxed.columns {
        let shares: [&dyn Fn(f64) -> f64; 3] = [&|_| 1.0, &|share| share, &|_| 0.0];
        fillings.extend(shares.map(|share| (*kind, split(pattern, share))));
    }
    fillings.retain(|(_, pattern)| !pattern.is_empty());
    Hint { duals: of_row.iter().map(|row| relaxed.duals[*row]).collect(), fillings }
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

/// Items for (variant, volume alternative, count).
fn items_of(ledger: &mut Ledger, pods: Vec<(usize, u8, u32)>) -> Vec<Item> {
    let mut merged: BTreeMap<(usize, u8, ReqId), u32> = BTreeMap::new();
    for (variant, alternative, count) in pods {
        // Any of several volume alternatives, or any required term, might serve: then labels do not bind.
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
            added_anywhere: added,
            count,
        })
        .collect()
}

/// Existing nodes with room, as kinds that cost nothing and take everything.
fn node_kinds(ledger: &Ledger, demands: usize) -> Vec<Kind> {
    let mut all = Bits::empty(demands);
    (0..demands).for_each(|demand| all.insert(demand));
    ledger
        .present
        .iter()
        .map(|node| items::vector(&ledger.free_before(node)))
        .filter(|free| free.iter().all(|amount| *amount >= 0) && free[0] > 0)
        .map(|free| Kind {
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
    fn rows_that_only_limits_tell_apart_become_one() {
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
            // No more than two of these, whichever, and at most one of the first.
            row(1, 0, 2, 1, Some((0, 2))),
            row(1, 0, 2, many, Some((0, 2))),
        ];
        let (fewer, of_row) = without_limits(&rows);
        assert_eq!(of_row, [0, 1, 0, 2, 3, 0, 0]);
        let seen: Vec<_> =
            fewer.iter().map(|row| (row.requests[0], row.demand, row.count, row.cap)).collect();
        assert_eq!(seen, [(1, 0, 11, 5), (2, 0, 5, many), (1, 1, 7, 1), (1, 0, 9, many)]);
        assert!(fewer.iter().all(|row| row.exclusion.is_none()));
    }
}
