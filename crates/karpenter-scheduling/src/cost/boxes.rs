//! The box relaxation: a linear program with fractional nodes and divisible pods, in which a node holds at most as many
//! pods of a row (group of equal pods) as would fit as whole pods on an otherwise empty node.
//!
//! Compared with the resource relaxation, it accounts for pods that do not fit on an instance type, for limits per
//! node, and for resources such as GPUs of which a node has few units. What it ignores is capacity that stays unused
//! because whole pods of several groups of equal pods do not fill a node exactly. If instance types differ in more than
//! size, its bound is far above that of the resource relaxation, and its dual prices are near those of the program with
//! whole pods. It is solved by column generation; the pricing problem is solved exactly (`fractional`), so every round
//! proves a lower bound.

use std::ops::Range;

use super::fractional::{FractionalNode, Scaled};
use super::knapsack::Scratch;
use super::shapes::{NodeKind, Row};
use super::simplex::{Column, Master};
use super::smoothing::Smoothing;

/// Column generation ends when the objective is at most this multiple of the lower bound.
const CONVERGED_RATIO: f64 = 1.0005;
/// A column (the pods of one node) improves the objective if its value at the dual prices is above its price by this
/// factor.
const PAYS_RATIO: f64 = 1.0 + 1e-6;
/// Each round prices columns (sets of pods for one node) at a mix of the current dual prices and those of the best
/// bound; this is the range of the weight of the latter. It is high, because the first dual prices come from the
/// resource relaxation and differ much from those of the box relaxation.
const SMOOTHING: Range<f64> = 0.8..0.95;

pub(crate) struct BoxRelaxation {
    /// Dual prices at which no node, even filled with divisible pods, is worth more than its price.
    pub(crate) duals: Vec<f64>,
    pub(crate) lower_bound: f64,
}

/// Solves the box relaxation with at most `work_max` work units, starting from approximate dual prices and one column
/// (set of pods for one node) per group of equal pods.
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
