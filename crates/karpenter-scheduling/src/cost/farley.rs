//! Farley's bound turns any dual prices into a lower bound. If no column (the pods of one node) is worth more than
//! `ratio` times its node's price, then the value of all pods divided by `ratio` is a lower bound for the price of any
//! fleet.

use super::fractional::{FractionalNode, Scaled};
use super::knapsack::{self, Scratch};
use super::orders::shared_orders;
use super::pricing::Pricing;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};

/// Farley's bound: the value of all pods at these dual prices, divided by the highest ratio of value to price over all
/// instance types.
pub(crate) fn farley_bound(
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let total: f64 = rows.iter().zip(duals).map(|(row, dual)| dual * f64::from(row.count)).sum();
    let worst = max_value_ratio(rows, kinds, duals, resource_values, exact_nodes, scratch);
    if worst <= 0.0 { 0.0 } else { total / worst }
}

/// An upper bound, at these dual prices, for the ratio of value to price of every column (set of pods for one node).
pub(crate) fn max_value_ratio(
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    max_value_ratio_with(0.0, rows, kinds, duals, resource_values, exact_nodes, scratch)
}

/// Like [`max_value_ratio`], but every node already holds pods worth `held`, whose requests are already deducted from
/// its capacity.
pub(crate) fn max_value_ratio_with(
    held: f64,
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let shared = shared_orders(rows, duals, resource_values);
    let mut cheap: Vec<(f64, usize)> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let bounds = shared.iter().map(|order| knapsack::upper_bound(rows, duals, order, kind));
            ((held + bounds.fold(f64::MAX, f64::min)) / kind.price, index)
        })
        .collect();
    scratch.work += (rows.len() * kinds.len() * 3) as u64;
    // The costlier second bound is computed only for instance types whose first bound exceeds the highest ratio so far.
    cheap.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let scaled = Scaled::new(rows, kinds);
    let mut worst: f64 = 0.0;
    for (ratio, index) in cheap {
        if ratio <= worst {
            break;
        }
        let kind = &kinds[index];
        let mut bound = ratio * kind.price;
        if ratio > 1.0 {
            let mut node = FractionalNode::new(rows, &scaled, kind);
            bound = bound.min(held + node.solve(&scaled, duals, &mut scratch.work));
            let enough = kind.price * worst.max(1.0);
            if exact_nodes > 0 && bound > enough && enough > held {
                let target = enough - held;
                let pricing = Pricing { node: &node, scaled: &scaled, rows, values: duals, kind, target };
                bound = bound.min(held + pricing.most_valuable(exact_nodes, scratch).at_most);
            }
        }
        worst = worst.max(bound / kind.price);
    }
    worst
}
