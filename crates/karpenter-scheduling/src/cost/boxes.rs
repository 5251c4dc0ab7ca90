//! The box relaxation: nodes may be fractional and pods divisible, but a node holds no more pods of a row than would
//! fit on it as whole pods without pods of other rows.
//!
//! The box relaxation accounts for pods that do not fit on a kind, for limits per node, and for resources such as GPUs
//! of which a node has few units. It ignores only capacity that remains unused because whole pods of several rows do
//! not fill a node exactly. If node kinds differ in more than size, its bound is far above that of the resource
//! relaxation, and its dual prices are near those of the program with whole pods. It is solved by column generation;
//! its pricing problem is solved exactly (`fractional`), so that every round proves a bound.

use std::ops::Range;

use super::fractional::{FractionalNode, Scaled};
use super::knapsack::Scratch;
use super::shapes::{NodeKind, Row};
use super::simplex::{Column, Master};
use super::smoothing::Smoothing;

/// Column generation ends when the objective is within this factor of the bound.
const CONVERGED_RATIO: f64 = 1.0005;
/// A column improves the objective if its value is above its price by this factor.
const PAYS_RATIO: f64 = 1.0 + 1e-6;
/// The weight of the best dual prices. It is high, because the rounds start from dual prices of the resource
/// relaxation, which are far from those of the box relaxation.
const SMOOTHING: Range<f64> = 0.8..0.95;

pub(crate) struct BoxRelaxation {
    /// Dual prices at which no node is worth more than its price, even with divisible pods.
    pub(crate) duals: Vec<f64>,
    pub(crate) lower_bound: f64,
}

/// Solves the box relaxation from approximate dual prices and one column per row. Uses at most `work_max`
/// work units.
pub(crate) fn relax(
    rows: &[Row],
    kinds: &[NodeKind],
    start: &[Column],
    duals: &[f64],
    work_max: u64,
    scratch: &mut Scratch,
) -> BoxRelaxation {
    let demand: Vec<f64> = rows.iter().map(|row| f64::from(row.count)).collect();
    let total = |duals: &[f64]| -> f64 { duals.iter().zip(&demand).map(|(dual, count)| dual * count).sum() };
    let scaled = Scaled::new(rows, kinds);
    let mut nodes: Vec<FractionalNode> =
        kinds.iter().map(|kind| FractionalNode::new(rows, &scaled, kind)).collect();
    let mut pool: Vec<Column> = Vec::new();
    let mut master = Master::new(demand.clone(), start.to_vec());
    let work_end = scratch.work + work_max;
    let mut best = (0.0, duals.to_vec());
    let mut smoothing = Smoothing::new(SMOOTHING);
    let mut values = duals.to_vec();
    loop {
        let mut worst: f64 = 0.0;
        let mut found: Vec<(f64, usize)> = Vec::with_capacity(kinds.len());
        for (index, (node, kind)) in nodes.iter_mut().zip(kinds).enumerate() {
            let ratio = node.solve(&scaled, &values, &mut scratch.work) / kind.price;
            worst = worst.max(ratio);
            found.push((ratio, index));
        }
        let mut improved = false;
        if worst > 0.0 && total(&values) / worst > best.0 {
            best = (total(&values) / worst, values.iter().map(|value| value / worst).collect());
            improved = true;
        }
        for (ratio, index) in found {
            if ratio > PAYS_RATIO {
                let (price, entries) = (kinds[index].price, nodes[index].pods());
                pool.push(Column { price, entries, tag: 0 });
            }
        }
        let pivots = master.optimise(&pool, &mut scratch.work);
        if master.objective() <= best.0 * CONVERGED_RATIO
            || scratch.work >= work_end
            || (pivots == 0 && smoothing.is_off())
        {
            break;
        }
        smoothing.adapt(pivots > 0, improved);
        values = smoothing.between(&master.duals, &best.1);
    }
    BoxRelaxation { duals: best.1, lower_bound: best.0 }
}
