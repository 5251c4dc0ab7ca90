//! Rounding the relaxation step by step: keep what it uses whole, round up what it uses nearly whole, solve it again
//! for the pods that are left, and so on to the last pod.
//!
//! Rounding everything at once strands pods that the relaxation had matched with fractions of other nodes; solving
//! again matches them anew. Everything is counted in work units, so a dive that takes too long is given up.

use super::knapsack::Pattern;
use super::pack::{Bin, Packer, Share};
use super::relaxation::{Effort, relax};
use super::shapes::Row;

/// One step of the dive; small, because what is left is small.
const STEP: Effort = Effort {
    rounds: 30,
    search_nodes: 100,
    deep_passes: 2,
    rows_max: usize::MAX,
    work_max: 200_000,
    has_tables: false,
    proofs: 0,
};

/// Above this part of a node, rounding up wastes less than solving again would find.
const NEARLY_WHOLE: f64 = 0.85;

impl Packer<'_> {
    /// Packs all rows, starting from the relaxation's columns. `None` if the work runs out first.
    pub(super) fn dive(&mut self, columns: &[Share], work_end: u64) -> Option<Vec<Bin>> {
        let mut remaining: Vec<u32> = self.rows.iter().map(|row| row.count).collect();
        let mut bins: Vec<Bin> = Vec::new();
        let mut columns = columns.to_vec();
        loop {
            columns.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)).then_with(|| a.1.cmp(&b.1)));
            let whole = self.take_whole(&columns, &mut remaining, &mut bins);
            if !whole {
                // At least one node per step, so that every step brings the end nearer.
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
            let relaxed = relax(&rows, self.kinds, STEP, self.scratch)?;
            columns = relaxed.columns;
            for (_, pattern, _) in &mut columns {
                pattern.iter_mut().for_each(|(row, _)| *row = numbers[*row as usize]);
            }
        }
    }

    /// Buys the whole part of every column, and one more of what is nearly whole. Returns whether anything was bought.
    fn take_whole(&mut self, columns: &[Share], remaining: &mut [u32], bins: &mut Vec<Bin>) -> bool {
        let mut any = false;
        for (kind, pattern, amount) in columns {
            let wanted = (amount + 1.0 - NEARLY_WHOLE).floor() as u32;
            let fitting = pattern.iter().map(|(row, count)| remaining[*row as usize] / count).min();
            let copies = fitting.unwrap_or(0).min(wanted);
            if copies > 0 {
                for (row, count) in pattern {
                    remaining[*row as usize] -= count * copies;
                }
                bins.push(Bin { kind: *kind, pattern: pattern.clone(), copies });
                any = true;
            }
        }
        any
    }

    /// Buys one node with as much of a filling as is left; what room that leaves goes to other pods.
    fn take_clipped(&mut self, kind: usize, pattern: &Pattern, remaining: &mut [u32], bins: &mut Vec<Bin>) {
        let clipped: Pattern = pattern
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
            bins.push(Bin { kind, pattern: filled, copies: 1 });
        }
    }
}
