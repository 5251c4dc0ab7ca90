//! Pods that no node could hold together are no single problem: teams with pools of their own, architectures, zones.
//!
//! Each block is relaxed and packed by itself. Solved as one program they are more rows than a relaxation has time for, and
//! what one of them leaves unproved is taken off the bound of all.

use super::knapsack::{Pattern, Scratch};
use super::pack::Share;
use super::relaxation::{Effort, Hint, Relaxation, fluid_weights, relax_from};
use super::shapes::{Kind, Row};

/// Rows and kinds, by number, that have nothing to do with the rest.
pub(crate) struct Block {
    pub(crate) rows: Vec<usize>,
    pub(crate) kinds: Vec<usize>,
}

impl Block {
    /// What it is of all rows and kinds.
    pub(crate) fn of(&self, rows: &[Row], kinds: &[Kind]) -> (Vec<Row>, Vec<Kind>) {
        let own_rows = self.rows.iter().map(|row| rows[*row].clone()).collect();
        (own_rows, self.kinds.iter().map(|kind| kinds[*kind].clone()).collect())
    }

    /// Those of some fillings that are its own, in its own numbers.
    pub(crate) fn columns(&self, columns: &[Share]) -> Vec<Share> {
        let own = |(kind, pattern, amount): &Share| {
            let (kind, pattern) = self.own(*kind, pattern)?;
            Some((kind, pattern, *amount))
        };
        columns.iter().filter_map(own).collect()
    }

    /// A filling in its own numbers, if it is its own.
    fn own(&self, kind: usize, pattern: &Pattern) -> Option<(usize, Pattern)> {
        let own_row = |row: u32| self.rows.binary_search(&(row as usize)).ok().map(|row| row as u32);
        let kind = self.kinds.binary_search(&kind).ok()?;
        let pattern: Option<Pattern> =
            pattern.iter().map(|(row, count)| Some((own_row(*row)?, *count))).collect();
        Some((kind, pattern?))
    }

    fn hint(&self, hint: &Hint) -> Hint {
        let fillings = hint.fillings.iter().filter_map(|(kind, pattern)| self.own(*kind, pattern));
        Hint { duals: self.rows.iter().map(|row| hint.duals[*row]).collect(), fillings: fillings.collect() }
    }

    /// A filling of its own rows as one of all rows.
    pub(crate) fn widened(&self, mut pattern: Pattern) -> Pattern {
        pattern.iter_mut().for_each(|(row, _)| *row = self.rows[*row as usize] as u32);
        pattern
    }
}

/// As [`relax_from`], block by block.
pub(crate) fn relax_blocks(
    rows: &[Row],
    kinds: &[Kind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    relax_blocks_from(rows, kinds, effort, None, scratch)
}

/// The same from what is known already.
pub(crate) fn relax_blocks_from(
    rows: &[Row],
    kinds: &[Kind],
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
        lower_bound: 0.0,
        objective: 0.0,
        likely: 0.0,
        columns: Vec::new(),
        fluid_weights: fluid_weights(rows, kinds),
    };
    let work_start = scratch.work;
    let mut rows_so_far = 0;
    for block in blocks {
        // What blocks before left of their share is there for the next.
        rows_so_far += block.rows.len() as u64;
        let work_end = work_start + effort.work_max * rows_so_far / rows.len() as u64;
        let effort = Effort { work_max: work_end.saturating_sub(scratch.work), ..effort };
        let (own_rows, own_kinds) = block.of(rows, kinds);
        let own_hint = hint.as_ref().map(|hint| block.hint(hint));
        let relaxed = relax_from(&own_rows, &own_kinds, effort, own_hint, scratch)?;
        whole.lower_bound += relaxed.lower_bound;
        whole.objective += relaxed.objective;
        whole.likely += relaxed.likely;
        for (row, dual) in block.rows.iter().zip(relaxed.duals) {
            whole.duals[*row] = dual;
        }
        let columns = relaxed.columns.into_iter();
        whole.columns.extend(
            columns.map(|(kind, pattern, amount)| (block.kinds[kind], block.widened(pattern), amount)),
        );
    }
    Some(whole)
}

/// Blocks in the order of their first rows. A row that no kind takes is one of its own.
pub(crate) fn blocks(rows: &[Row], kinds: &[Kind]) -> Vec<Block> {
    let demands = rows.iter().map(|row| row.demand + 1).max().unwrap_or(0);
    // Of each demand, one that it shares kinds with and that comes no later; itself if there is none.
    let mut first: Vec<usize> = (0..demands).collect();
    let mut is_asked = vec![false; demands];
    rows.iter().for_each(|row| is_asked[row.demand] = true);
    let served = |kind: &Kind| -> Vec<usize> {
        kind.demands.iter().filter(|demand| *demand < demands && is_asked[*demand]).collect()
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

    fn kind(cpu: i64, price: f64, demands: &[usize]) -> Kind {
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1]) = (cpu, 100);
        let mut bits = Bits::empty(5);
        demands.iter().for_each(|demand| bits.insert(*demand));
        Kind { template: 0, instance_type: 0, free, price, demands: bits, is_spot: false }
    }

    const EFFORT: Effort = Effort {
        rounds: 40,
        search_nodes: 100,
        deep_passes: 10,
        rows_max: 2,
        work_max: 1_000_000,
        has_tables: false,
        proofs: 0,
    };

    #[test]
    fn what_shares_a_kind_even_by_way_of_others_is_one_block() {
        let rows = [row(1, 4, 1), row(1, 0, 1), row(2, 2, 1), row(1, 1, 1)];
        // Nobody asks for the fourth demand, so it holds nothing together.
        let kinds =
            [kind(4, 1.0, &[0, 2]), kind(4, 1.0, &[3, 4]), kind(4, 1.0, &[1, 2, 3]), kind(4, 1.0, &[3])];
        let found: Vec<_> =
            blocks(&rows, &kinds).into_iter().map(|block| (block.rows, block.kinds)).collect();
        assert_eq!(found, [(vec![0], vec![1]), (vec![1, 2, 3], vec![0, 2])]);
    }

    #[test]
    fn blocks_cost_together_what_they_cost_apart() {
        let rows = [row(7, 0, 300), row(4, 1, 100), row(3, 0, 200), row(6, 1, 50)];
        let kinds = [kind(16, 1.0, &[0]), kind(8, 1.0, &[1]), kind(16, 1.5, &[1])];
        let whole = relax_blocks(&rows, &kinds, EFFORT, &mut Scratch::default()).unwrap();
        let part = |rows: &[Row], kinds: &[Kind]| {
            relax(rows, kinds, EFFORT, &mut Scratch::default()).expect("every row fits")
        };
        let first = part(&[rows[0].clone(), rows[2].clone()], &kinds[..1]);
        let second = part(&[rows[1].clone(), rows[3].clone()], &kinds[1..]);
        assert!((whole.lower_bound - first.lower_bound - second.lower_bound).abs() < 1e-9);
        assert!((whole.objective - first.objective - second.objective).abs() < 1e-9);
        assert_eq!(whole.duals, [first.duals[0], second.duals[0], first.duals[1], second.duals[1]]);
        // Every filling holds what its kind takes, and all of them together hold every pod.
        let mut held = vec![0.0; rows.len()];
        for (kind, pattern, amount) in &whole.columns {
            for (row, count) in pattern {
                assert!(kinds[*kind].takes(&rows[*row as usize]));
                held[*row as usize] += amount * f64::from(*count);
            }
        }
        for (held, row) in held.iter().zip(&rows) {
            assert!(*held >= f64::from(row.count) - 1e-6, "{held} of {}", row.count);
        }
        // Four rows are more than are solved at once.
        let as_one = relax(&rows, &kinds, EFFORT, &mut Scratch::default()).unwrap();
        assert!(as_one.columns.is_empty() && as_one.lower_bound < whole.lower_bound);
    }

    #[test]
    fn a_row_that_fits_nowhere_is_no_relaxation() {
        let rows = [row(7, 0, 3), row(4, 1, 1)];
        assert!(relax_blocks(&rows, &[kind(16, 1.0, &[0])], EFFORT, &mut Scratch::default()).is_none());
    }
}
