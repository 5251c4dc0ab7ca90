//! Diving: rounds the relaxation step by step. Each step fixes the whole part of every column (set of pods for one
//! node; if it is used by 2.3 nodes, two are fixed), rounds up columns that are nearly whole, and solves the relaxation
//! again for the remaining pods.
//!
//! If all columns (sets of pods for one node) were rounded at once, many pods would be left without a node, because the
//! relaxation had placed them on fractions of nodes. Solving the relaxation again packs these pods with each other. A
//! dive stops when its work units are used up.

use super::knapsack::PodCounts;
use super::pack::{Bin, ColumnUse, Packer};
use super::relaxation::{Effort, Hint, relax_from};
use super::shapes::Row;

/// The effort of solving the relaxation again in one step; it is small, because few pods remain.
const STEP: Effort =
    Effort { rounds: 30, search_nodes: 100, rows_max: usize::MAX, work_max: 200_000, box_work: 0, proofs: 0 };

impl Packer<'_> {
    /// Packs all rows (groups of equal pods), starting from the columns (sets of pods for one node) of the relaxation.
    /// A column is rounded up if its fraction is at least `nearly_whole`; below that, solving again saves more than
    /// rounding up wastes. `None` if no packing is found.
    pub(super) fn dive(
        &mut self,
        columns: &[ColumnUse],
        nearly_whole: f64,
        work_end: u64,
    ) -> Option<Vec<Bin>> {
        let mut remaining: Vec<u32> = self.rows.iter().map(|row| row.count).collect();
        let mut bins: Vec<Bin> = Vec::new();
        let mut columns = columns.to_vec();
        let mut duals = self.values.clone();
        loop {
            columns.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)).then_with(|| a.1.cmp(&b.1)));
            let whole = self.take_whole(&columns, nearly_whole, &mut remaining, &mut bins);
            if !whole {
                // Every step fixes at least one node, so the dive ends.
                let nearest = columns.iter().max_by(|a, b| a.2.fract().total_cmp(&b.2.fract()))?;
                self.take_clipped(nearest.0, &nearest.1, &mut remaining, &mut bins);
            }
            let (rows, numbers): (Vec<Row>, Vec<u32>) = self
                .rows
                .iter()
                .zip(&remaining)
                .enumerate()
                .filter(|(_, (_, left))| **left > 0)
                .map(|(number, (row, left))| (Row { count: *left, ..row.clone() }, number as u32))
                .unzip();
            if rows.is_empty() {
                return Some(bins);
            }
            if self.scratch.work > work_end {
                return self.greedy_rest(&mut remaining, &mut bins).then_some(bins);
            }
            let hint = hint(&duals, &columns, &remaining, &numbers);
            let relaxed = relax_from(&rows, self.kinds, STEP, Some(hint), self.scratch)?;
            columns = relaxed.columns;
            for (row, dual) in numbers.iter().zip(&relaxed.center) {
                duals[*row as usize] = *dual;
            }
            for (_, pod_counts, _) in &mut columns {
                pod_counts.iter_mut().for_each(|(row, _)| *row = numbers[*row as usize]);
            }
        }
    }

    /// Fixes the whole part of every column (set of pods for one node), plus one node if the remaining fraction is at
    /// least `nearly_whole`. Returns whether any node was fixed.
    fn take_whole(
        &mut self,
        columns: &[ColumnUse],
        nearly_whole: f64,
        remaining: &mut [u32],
        bins: &mut Vec<Bin>,
    ) -> bool {
        let mut any = false;
        for (kind, pod_counts, amount) in columns {
            let wanted = (amount + 1.0 - nearly_whole).floor() as u32;
            let fitting = pod_counts.iter().map(|(row, count)| remaining[*row as usize] / count).min();
            let copies = fitting.unwrap_or(0).min(wanted);
            if copies > 0 {
                for (row, count) in pod_counts {
                    remaining[*row as usize] -= count * copies;
                }
                bins.push(Bin { kind: *kind, pod_counts: pod_counts.clone(), copies });
                any = true;
            }
        }
        any
    }

    /// Fixes one node of a column (set of pods for one node) with those of its pods that are not placed yet; other pods
    /// fill its free capacity.
    fn take_clipped(
        &mut self,
        kind: usize,
        pod_counts: &PodCounts,
        remaining: &mut [u32],
        bins: &mut Vec<Bin>,
    ) {
        let clipped: PodCounts = pod_counts
            .iter()
            .map(|(row, count)| (*row, (*count).min(remaining[*row as usize])))
            .filter(|(_, count)| *count > 0)
            .collect();
        let filled = self.filled_up(kind, clipped, remaining);
        for (row, count) in &filled {
            remaining[*row as usize] -= count;
        }
        let total = self.total(&filled);
        let kind = self.cheapest_for(&total, &filled).unwrap_or(kind);
        if !filled.is_empty() {
            bins.push(Bin { kind, pod_counts: filled, copies: 1 });
        }
    }
}

/// The start for the relaxation of the remaining pods: the last dual prices, and every column (set of pods for one
/// node) reduced to remaining pods. `numbers` maps a group of equal pods (row) to its index among the rows that remain.
fn hint(duals: &[f64], columns: &[ColumnUse], remaining: &[u32], numbers: &[u32]) -> Hint {
    let clipped = |(kind, pod_counts, _): &ColumnUse| {
        let left = pod_counts.iter().filter_map(|(row, count)| {
            let position = numbers.binary_search(row).ok()?;
            Some((position as u32, (*count).min(remaining[*row as usize])))
        });
        (*kind, left.collect::<PodCounts>())
    };
    Hint {
        duals: numbers.iter().map(|row| duals[*row as usize]).collect(),
        columns: columns.iter().map(clipped).collect(),
    }
}
