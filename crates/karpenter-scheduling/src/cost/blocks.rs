//! Splits a packing problem into independent blocks. Pods of different blocks can never share a node, for example
//! because teams have their own NodePools, architectures or zones.
//!
//! The relaxation of each block is solved separately, and each block is packed separately. One linear program for all
//! blocks would have more rows than the work units allow, and an inexact solution for one block would lower the bound
//! of all.

use super::knapsack::{PodCounts, Scratch};
use super::pack::ColumnUse;
use super::relaxation::{Effort, Hint, Relaxation, relax_from};
use super::resources::resource_prices;
use super::shapes::{NodeKind, Row};

/// The indexes of the rows (groups of equal pods) and node kinds (instance types of a NodePool) of one block. No other
/// block contains any of them.
pub(crate) struct Block {
    pub(crate) rows: Vec<usize>,
    pub(crate) kinds: Vec<usize>,
}

impl Block {
    /// The groups of equal pods and instance types of the block.
    pub(crate) fn of(&self, rows: &[Row], kinds: &[NodeKind]) -> (Vec<Row>, Vec<NodeKind>) {
        let own_rows = self.rows.iter().map(|row| rows[*row].clone()).collect();
        (own_rows, self.kinds.iter().map(|kind| kinds[*kind].clone()).collect())
    }

    /// The columns (sets of pods for one node) that belong to this block, renumbered: groups of equal pods and instance
    /// types get their index within the block.
    pub(crate) fn columns(&self, columns: &[ColumnUse]) -> Vec<ColumnUse> {
        let own = |(kind, pod_counts, amount): &ColumnUse| {
            let (kind, pod_counts) = self.own(*kind, pod_counts)?;
            Some((kind, pod_counts, *amount))
        };
        columns.iter().filter_map(own).collect()
    }

    /// One column (set of pods for one node), renumbered to the indexes within the block; `None` if the column belongs
    /// to another block.
    fn own(&self, kind: usize, pod_counts: &PodCounts) -> Option<(usize, PodCounts)> {
        let own_row = |row: u32| self.rows.binary_search(&(row as usize)).ok().map(|row| row as u32);
        let kind = self.kinds.binary_search(&kind).ok()?;
        let pod_counts: Option<PodCounts> =
            pod_counts.iter().map(|(row, count)| Some((own_row(*row)?, *count))).collect();
        Some((kind, pod_counts?))
    }

    fn hint(&self, hint: &Hint) -> Hint {
        let columns = hint.columns.iter().filter_map(|(kind, pod_counts)| self.own(*kind, pod_counts));
        Hint { duals: self.rows.iter().map(|row| hint.duals[*row]).collect(), columns: columns.collect() }
    }

    /// The pods of a column (set of pods for one node), where each row (group of equal pods) is identified by its index
    /// in the whole problem instead of that in the block.
    pub(crate) fn widened(&self, mut pod_counts: PodCounts) -> PodCounts {
        pod_counts.iter_mut().for_each(|(row, _)| *row = self.rows[*row as usize] as u32);
        pod_counts
    }
}

/// Solves the relaxation of each block with [`relax_from`] and joins the results.
pub(crate) fn relax_blocks(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    relax_blocks_from(rows, kinds, effort, None, scratch)
}

/// Like [`relax_blocks`], but starts from `hint`: dual prices and columns (sets of pods for one node) that are already
/// known.
pub(crate) fn relax_blocks_from(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    hint: Option<Hint>,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    let blocks = blocks(rows, kinds);
    if blocks.len() <= 1 {
        return relax_from(rows, kinds, effort, hint, scratch);
    }
    let mut whole = Relaxation {
        duals: vec![0.0; rows.len()],
        center: vec![0.0; rows.len()],
        lower_bound: 0.0,
        objective: 0.0,
        estimate: 0.0,
        columns: Vec::new(),
        resource_prices: resource_prices(rows, kinds),
    };
    let work_start = scratch.work;
    let mut rows_so_far = 0;
    for block in blocks {
        // Work units that earlier blocks did not use are added to the share of later blocks.
        rows_so_far += block.rows.len() as u64;
        let work_end = work_start + effort.work_max * rows_so_far / rows.len() as u64;
        let effort = Effort { work_max: work_end.saturating_sub(scratch.work), ..effort };
        let (own_rows, own_kinds) = block.of(rows, kinds);
        let own_hint = hint.as_ref().map(|hint| block.hint(hint));
        let relaxed = relax_from(&own_rows, &own_kinds, effort, own_hint, scratch)?;
        whole.lower_bound += relaxed.lower_bound;
        whole.objective += relaxed.objective;
        whole.estimate += relaxed.estimate;
        for (row, (dual, center)) in block.rows.iter().zip(relaxed.duals.into_iter().zip(relaxed.center)) {
            (whole.duals[*row], whole.center[*row]) = (dual, center);
        }
        let columns = relaxed.columns.into_iter();
        whole.columns.extend(
            columns.map(|(kind, pod_counts, amount)| (block.kinds[kind], block.widened(pod_counts), amount)),
        );
    }
    Some(whole)
}

/// The blocks, ordered by their first group of equal pods (row). If no instance type accepts a row, the row is a block
/// by itself.
pub(crate) fn blocks(rows: &[Row], kinds: &[NodeKind]) -> Vec<Block> {
    let demands = rows.iter().map(|row| row.demand + 1).max().unwrap_or(0);
    // Union-find over demands (requirements on labels and taints). Each demand points to a demand with a lower number
    // that some instance type satisfies as well, or to itself.
    let mut first: Vec<usize> = (0..demands).collect();
    let mut is_simulating = vec![false; demands];
    rows.iter().for_each(|row| is_simulating[row.demand] = true);
    let served = |kind: &NodeKind| -> Vec<usize> {
        kind.demands.iter().filter(|demand| *demand < demands && is_simulating[*demand]).collect()
    };
    for kind in kinds {
        let served = served(kind);
        for pair in served.windows(2) {
            let (one, other) = (root(&first, pair[0]), root(&first, pair[1]));
            first[one.max(other)] = one.min(other);
        }
    }
    let mut block_of = vec![usize::MAX; demands];
    let mut blocks: Vec<Block> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let block = &mut block_of[root(&first, row.demand)];
        if *block == usize::MAX {
            *block = blocks.len();
            blocks.push(Block { rows: Vec::new(), kinds: Vec::new() });
        }
        blocks[*block].rows.push(number);
    }
    for (number, kind) in kinds.iter().enumerate() {
        if let Some(demand) = served(kind).first() {
            blocks[block_of[root(&first, *demand)]].kinds.push(number);
        }
    }
    blocks
}

fn root(first: &[usize], mut demand: usize) -> usize {
    while first[demand] != demand {
        demand = first[demand];
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::super::relaxation::relax;
    use super::*;
    use crate::bits::Bits;
    use crate::cost::shapes::DIMENSIONS_MAX;

    fn row(cpu: i64, demand: usize, count: u32) -> Row {
        let mut requests = [0; DIMENSIONS_MAX];
        (requests[0], requests[1]) = (cpu, 1);
        Row { requests, demand, count, cap: u32::MAX, exclusion: None }
    }

    fn kind(cpu: i64, price: f64, demands: &[usize]) -> NodeKind {
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1]) = (cpu, 100);
        let mut bits = Bits::empty(5);
        demands.iter().for_each(|demand| bits.insert(*demand));
        NodeKind { template: 0, instance_type: 0, free, price, demands: bits, is_spot: false }
    }

    const EFFORT: Effort =
        Effort { rounds: 40, search_nodes: 100, rows_max: 2, work_max: 1_000_000, box_work: 0, proofs: 0 };

    #[test]
    fn rows_connected_by_kinds_form_one_block() {
        let rows = [row(1, 4, 1), row(1, 0, 1), row(2, 2, 1), row(1, 1, 1)];
        // No row has the fourth demand (constraints on labels and taints), so a node kind that satisfies it does not
        // connect two blocks.
        let kinds =
            [kind(4, 1.0, &[0, 2]), kind(4, 1.0, &[3, 4]), kind(4, 1.0, &[1, 2, 3]), kind(4, 1.0, &[3])];
        let found: Vec<_> =
            blocks(&rows, &kinds).into_iter().map(|block| (block.rows, block.kinds)).collect();
        assert_eq!(found, [(vec![0], vec![1]), (vec![1, 2, 3], vec![0, 2])]);
    }

    #[test]
    fn relaxation_of_blocks_is_sum_of_relaxations() {
        let rows = [row(7, 0, 300), row(4, 1, 100), row(3, 0, 200), row(6, 1, 50)];
        let kinds = [kind(16, 1.0, &[0]), kind(8, 1.0, &[1]), kind(16, 1.5, &[1])];
        let whole = relax_blocks(&rows, &kinds, EFFORT, &mut Scratch::default()).unwrap();
        let part = |rows: &[Row], kinds: &[NodeKind]| {
            relax(rows, kinds, EFFORT, &mut Scratch::default()).expect("every row fits")
        };
        let first = part(&[rows[0].clone(), rows[2].clone()], &kinds[..1]);
        let second = part(&[rows[1].clone(), rows[3].clone()], &kinds[1..]);
        assert!((whole.lower_bound - first.lower_bound - second.lower_bound).abs() < 1e-9);
        assert!((whole.objective - first.objective - second.objective).abs() < 1e-9);
        assert_eq!(whole.duals, [first.duals[0], second.duals[0], first.duals[1], second.duals[1]]);
        // Every column (set of pods for one node) holds pods that its instance type accepts, and all columns together
        // cover every pod.
        let mut held = vec![0.0; rows.len()];
        for (kind, pod_counts, amount) in &whole.columns {
            for (row, count) in pod_counts {
                assert!(kinds[*kind].takes(&rows[*row as usize]));
                held[*row as usize] += amount * f64::from(*count);
            }
        }
        for (held, row) in held.iter().zip(&rows) {
            assert!(*held >= f64::from(row.count) - 1e-6, "{held} of {}", row.count);
        }
        // The four rows (groups of equal pods) together are more than `rows_max`.
        let as_one = relax(&rows, &kinds, EFFORT, &mut Scratch::default()).unwrap();
        assert!(as_one.columns.is_empty() && as_one.lower_bound < whole.lower_bound);
    }

    #[test]
    fn row_without_kind_has_no_relaxation() {
        let rows = [row(7, 0, 3), row(4, 1, 1)];
        assert!(relax_blocks(&rows, &[kind(16, 1.0, &[0])], EFFORT, &mut Scratch::default()).is_none());
    }
}
