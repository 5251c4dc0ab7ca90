//! The resource relaxation: the weakest linear program for the packing problem. Pods are divisible, and only the sums
//! of their requests count. It has one constraint per resource, and its dual prices are prices of resources.

use super::knapsack;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};
use super::simplex::{Column, Master};

/// The price of one unit of each resource in the resource relaxation.
pub(crate) fn resource_prices(rows: &[Row], kinds: &[NodeKind]) -> [f64; DIMENSIONS_MAX] {
    ResourceRelaxation::solve(rows, kinds).weights
}

pub(crate) struct ResourceRelaxation {
    /// The price of one unit of each resource.
    pub(crate) weights: [f64; DIMENSIONS_MAX],
    pub(crate) bound: f64,
}

impl ResourceRelaxation {
    /// The cheapest combination of instance types whose total capacity covers the total requests of every resource.
    pub(crate) fn solve(rows: &[Row], kinds: &[NodeKind]) -> Self {
        let mut totals = [0.0; DIMENSIONS_MAX];
        for row in rows {
            for (total, request) in totals.iter_mut().zip(&row.requests) {
                *total += *request as f64 * f64::from(row.count);
            }
        }
        let used: Vec<usize> = (0..DIMENSIONS_MAX).filter(|dimension| totals[*dimension] > 0.0).collect();
        // Requests enter as shares of the total, so that cores and bytes have the same scale.
        let share =
            |kind: &NodeKind, dimension: usize| kind.free[dimension].max(0) as f64 / totals[dimension];
        let start: Option<Vec<Column>> = used
            .iter()
            .enumerate()
            .map(|(row, dimension)| {
                let best = kinds.iter().filter(|kind| kind.free[*dimension] > 0).min_by(|a, b| {
                    (a.price / share(a, *dimension)).total_cmp(&(b.price / share(b, *dimension)))
                })?;
                Some(Column {
                    price: best.price,
                    entries: vec![(row as u32, share(best, *dimension))],
                    tag: 0,
                })
            })
            .collect();
        let mut weights = [0.0; DIMENSIONS_MAX];
        let Some(start) = start.filter(|start| !start.is_empty()) else {
            return Self { weights, bound: 0.0 };
        };
        let mut master = Master::new(vec![1.0; used.len()], start);
        for _ in 0..200 {
            let entries = |kind: &NodeKind| -> Vec<(u32, f64)> {
                used.iter()
                    .enumerate()
                    .map(|(row, dimension)| (row as u32, share(kind, *dimension)))
                    .collect()
            };
            let mut best: Option<(f64, usize)> = None;
            for (index, kind) in kinds.iter().enumerate() {
                let value: f64 = used
                    .iter()
                    .enumerate()
                    .map(|(row, dimension)| master.duals[row] * share(kind, *dimension))
                    .sum();
                let ratio = value / kind.price;
                if best.is_none_or(|best| ratio > best.0) {
                    best = Some((ratio, index));
                }
            }
            let Some((_, index)) = best else { break };
            let entered =
                master.enter(Column { price: kinds[index].price, entries: entries(&kinds[index]), tag: 0 });
            master.drop_negative_duals();
            if !entered {
                break;
            }
        }
        for (row, dimension) in used.iter().enumerate() {
            weights[*dimension] = master.duals[row].max(0.0) / totals[*dimension];
        }
        // The resource prices are scaled down until the resources of no instance type are worth more than its price, so
        // the bound holds despite rounding errors.
        let worst = kinds
            .iter()
            .map(|kind| knapsack::weigh(&weights, &kind.free.map(|amount| amount.max(0))) / kind.price)
            .fold(0.0, f64::max);
        if worst > 1.0 {
            weights.iter_mut().for_each(|weight| *weight /= worst);
        }
        let bound = (0..DIMENSIONS_MAX).map(|dimension| weights[dimension] * totals[dimension]).sum();
        Self { weights, bound }
    }
}
