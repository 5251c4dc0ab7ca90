//! The orders in which greedy heuristics add rows (groups of equal pods) to a node.

use super::knapsack::Order;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};

/// Orders of groups of equal pods that work well for most instance types: by value per resource at the resource prices,
/// and one order per resource in which that resource has more weight.
pub(crate) fn shared_orders(rows: &[Row], values: &[f64], weights: &[f64; DIMENSIONS_MAX]) -> Vec<Order> {
    shared_orders_of(rows, values, weights, |_| true)
}

/// Like [`shared_orders`], but only with groups of equal pods for which `present` returns true.
pub(crate) fn shared_orders_of(
    rows: &[Row],
    values: &[f64],
    weights: &[f64; DIMENSIONS_MAX],
    present: impl Fn(usize) -> bool,
) -> Vec<Order> {
    let mut orders = vec![Order::new(rows, values, *weights, &present)];
    let active: Vec<usize> = (0..2).filter(|dimension| weights[*dimension] > 0.0).collect();
    if active.len() > 1 {
        for favoured in active {
            let mut leaning = *weights;
            leaning[favoured] *= 4.0;
            orders.push(Order::new(rows, values, leaning, &present));
        }
    }
    orders
}

/// Weights each resource by how scarce it is on the instance type.
pub(crate) fn inverse_weights(
    kind: &NodeKind,
    resource_values: &[f64; DIMENSIONS_MAX],
) -> [f64; DIMENSIONS_MAX] {
    let mut weights = [0.0; DIMENSIONS_MAX];
    for dimension in 0..DIMENSIONS_MAX {
        if kind.free[dimension] > 0 {
            let share = resource_values[dimension] * kind.free[dimension] as f64 / kind.price;
            weights[dimension] = (0.25 + share) / kind.free[dimension] as f64;
        }
    }
    weights
}
