//! A small revised simplex method for covering problems: minimise price·x subject to A·x ≥ demand, x ≥ 0. Here x is how
//! many nodes use each column (a set of pods), and demand is the number of pods of each row.
//!
//! Columns are added one at a time (column generation), and the dual prices are read after every pivot. The basis
//! inverse is dense, because there are only as many rows as groups of equal pods. The solver is written by hand because
//! LP crates in pure Rust either expose no dual prices or cannot continue from a solution after a column is added;
//! docs/adr has the measurements.

/// Coefficients below this count as zero.
const EPSILON: f64 = 1e-9;

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) price: f64,
    /// (row, coefficient)
    pub(crate) entries: Vec<(u32, f64)>,
    /// The caller's identifier of the column.
    pub(crate) tag: u32,
}

/// The linear program with the columns known so far (the restricted master problem), and its current basis.
pub(crate) struct Master {
    rows: usize,
    demand: Vec<f64>,
    /// The inverse of the basis matrix, stored row by row.
    inverse: Vec<f64>,
    basis: Vec<Column>,
    values: Vec<f64>,
    pub(crate) duals: Vec<f64>,
    pivots_since_refactor: usize,
}

impl Master {
    /// Starts from one column per row, which covers only that row.
    pub(crate) fn new(demand: Vec<f64>, start: Vec<Column>) -> Self {
        let rows = demand.len();
        let mut inverse = vec![0.0; rows * rows];
        let mut values = vec![0.0; rows];
        for (row, column) in start.iter().enumerate() {
            let coefficient = column.entries[0].1;
            inverse[row * rows + row] = 1.0 / coefficient;
            values[row] = demand[row] / coefficient;
        }
        let mut master = Self {
            rows,
            demand,
            inverse,
            basis: start,
            values,
            duals: vec![0.0; rows],
            pivots_since_refactor: 0,
        };
        master.compute_duals();
        master
    }

    pub(crate) fn objective(&self) -> f64 {
        self.basis.iter().zip(&self.values).map(|(column, value)| column.price * value).sum()
    }

    /// The columns of the solution, each with the number of nodes that use it.
    pub(crate) fn solution(&self) -> impl Iterator<Item = (&Column, f64)> {
        self.basis.iter().zip(self.values.iter().copied()).filter(|(_, value)| *value > EPSILON)
    }

    pub(crate) fn value_of(&self, entries: &[(u32, f64)]) -> f64 {
        entries.iter().map(|(row, coefficient)| self.duals[*row as usize] * coefficient).sum()
    }

    /// Enters a column with negative reduced cost into the basis. Returns false if it would not improve the
    /// objective.
    pub(crate) fn enter(&mut self, column: Column) -> bool {
        if self.value_of(&column.entries) <= column.price * (1.0 + 1e-9) + EPSILON {
            return false;
        }
        self.pivot(column)
    }

    /// Optimises over a pool of columns. Returns the number of pivots.
    pub(crate) fn optimise(&mut self, pool: &[Column], work: &mut u64) -> usize {
        const PIVOTS_MAX: usize = 400;
        for pivots in 0..PIVOTS_MAX {
            let mut best: Option<(f64, usize)> = None;
            for (position, column) in pool.iter().enumerate() {
                let gain = self.value_of(&column.entries) - column.price;
                // Columns are chosen by gain per price, which gives good columns for nodes of every size; by gain
                // alone, large nodes would always win.
                let gain = gain / column.price;
                if gain > 1e-7 && best.is_none_or(|best| gain > best.0) {
                    best = Some((gain, position));
                }
            }
            *work += pool.len() as u64 / 2 + (self.rows * self.rows) as u64 / 16;
            let entered = best.is_some_and(|(_, position)| self.enter(pool[position].clone()));
            self.drop_negative_duals();
            if !entered {
                return pivots;
            }
        }
        PIVOTS_MAX
    }

    /// While some dual price is negative, lets the surplus variable of that row enter the basis. The dual prices then
    /// stay feasible even if a row is covered more than required.
    pub(crate) fn drop_negative_duals(&mut self) {
        for _ in 0..self.rows {
            let Some(row) = (0..self.rows)
                .filter(|row| self.duals[*row] < -1e-9)
                .min_by(|a, b| self.duals[*a].total_cmp(&self.duals[*b]).then(a.cmp(b)))
            else {
                return;
            };
            let surplus = Column { price: 0.0, entries: vec![(row as u32, -1.0)], tag: u32::MAX };
            if !self.pivot(surplus) {
                return;
            }
        }
    }

    fn pivot(&mut self, column: Column) -> bool {
        let rows = self.rows;
        let mut direction = vec![0.0; rows];
        for (row, coefficient) in &column.entries {
            let row = *row as usize;
            for (position, value) in direction.iter_mut().enumerate() {
                *value += self.inverse[position * rows + row] * coefficient;
            }
        }
        let mut leaving: Option<(f64, usize)> = None;
        for (position, step) in direction.iter().enumerate() {
            if *step <= 1e-7 {
                continue;
            }
            let ratio = self.values[position].max(0.0) / step;
            let better = match leaving {
                None => true,
                // Among nearly equal ratios, the larger pivot element is chosen, because it is numerically safer.
                Some((best, at)) => ratio < best - 1e-12 || (ratio <= best + 1e-12 && *step > direction[at]),
            };
            if better {
                leaving = Some((ratio, position));
            }
        }
        let Some((ratio, position)) = leaving else { return false };
        let pivot = direction[position];
        for value in &mut self.inverse[position * rows..(position + 1) * rows] {
            *value /= pivot;
        }
        let (before, rest) = self.inverse.split_at_mut(position * rows);
        let (pivot_row, after) = rest.split_at_mut(rows);
        for (other, row) in before
            .chunks_exact_mut(rows)
            .enumerate()
            .chain(after.chunks_exact_mut(rows).enumerate().map(|(other, row)| (other + position + 1, row)))
        {
            let factor = direction[other];
            if factor != 0.0 {
                for (value, of_pivot) in row.iter_mut().zip(pivot_row.iter()) {
                    *value -= factor * of_pivot;
                }
            }
        }
        for (other, step) in direction.iter().enumerate() {
            if other != position {
                self.values[other] -= ratio * step;
            }
        }
        self.values[position] = ratio;
        self.basis[position] = column;
        self.pivots_since_refactor += 1;
        if self.pivots_since_refactor >= 120 {
            self.refactor();
        }
        self.compute_duals();
        true
    }

    fn compute_duals(&mut self) {
        let rows = self.rows;
        self.duals.iter_mut().for_each(|dual| *dual = 0.0);
        for (position, column) in self.basis.iter().enumerate() {
            if column.price == 0.0 {
                continue;
            }
            let row = &self.inverse[position * rows..(position + 1) * rows];
            for (dual, value) in self.duals.iter_mut().zip(row) {
                *dual += column.price * value;
            }
        }
    }

    /// Computes the inverse from the basis columns again, which removes accumulated rounding errors.
    fn refactor(&mut self) {
        self.pivots_since_refactor = 0;
        let rows = self.rows;
        let width = 2 * rows;
        let mut work = vec![0.0; rows * width];
        for (position, column) in self.basis.iter().enumerate() {
            for (row, coefficient) in &column.entries {
                work[*row as usize * width + position] = *coefficient;
            }
        }
        for row in 0..rows {
            work[row * width + rows + row] = 1.0;
        }
        for step in 0..rows {
            let best = (step..rows).max_by(|a, b| {
                work[a * width + step].abs().total_cmp(&work[b * width + step].abs()).then(b.cmp(a))
            });
            let Some(best) = best else { return };
            if work[best * width + step].abs() < 1e-11 {
                return; // Numerically singular: add_column the updated inverse rather than a worse one.
            }
            if best != step {
                for column in 0..width {
                    work.swap(best * width + column, step * width + column);
                }
            }
            let pivot = work[step * width + step];
            for column in step..width {
                work[step * width + column] /= pivot;
            }
            let pivot_row: Vec<f64> = work[step * width..(step + 1) * width].to_vec();
            for row in 0..rows {
                let factor = work[row * width + step];
                if row != step && factor != 0.0 {
                    for column in step..width {
                        work[row * width + column] -= factor * pivot_row[column];
                    }
                }
            }
        }
        for row in 0..rows {
            self.inverse[row * rows..(row + 1) * rows]
                .copy_from_slice(&work[row * width + rows..(row + 1) * width]);
        }
        for position in 0..rows {
            let row = &self.inverse[position * rows..(position + 1) * rows];
            self.values[position] = row.iter().zip(&self.demand).map(|(value, demand)| value * demand).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(price: f64, entries: &[(u32, f64)]) -> Column {
        Column { price, entries: entries.to_vec(), tag: 0 }
    }

    /// The test minimises 3·x1 + 2·x2 + 4·x3 where each column covers several rows; weak duality below checks the
    /// result.
    #[test]
    fn primal_and_dual_objectives_are_equal() {
        let demand = vec![7.0, 5.0, 3.0];
        let start = (0..3).map(|row| column(10.0, &[(row, 1.0)])).collect();
        let mut master = Master::new(demand.clone(), start);
        let pool = [
            column(3.0, &[(0, 2.0), (1, 1.0)]),
            column(2.0, &[(1, 1.0), (2, 1.0)]),
            column(4.0, &[(0, 1.0), (1, 1.0), (2, 2.0)]),
            column(1.0, &[(0, 1.0)]),
        ];
        for _ in 0..50 {
            let best = pool.iter().max_by(|a, b| {
                (master.value_of(&a.entries) - a.price).total_cmp(&(master.value_of(&b.entries) - b.price))
            });
            let entered = best.is_some_and(|best| master.enter(best.clone()));
            master.drop_negative_duals();
            if !entered {
                break;
            }
        }
        let dual: f64 = master.duals.iter().zip(&demand).map(|(dual, demand)| dual * demand).sum();
        assert!((master.objective() - dual).abs() < 1e-9, "{} against {dual}", master.objective());
        for candidate in &pool {
            assert!(
                master.value_of(&candidate.entries) <= candidate.price + 1e-9,
                "{candidate:?} prices out"
            );
        }
        let mut covered = [0.0; 3];
        for (column, amount) in master.solution() {
            for (row, coefficient) in &column.entries {
                covered[*row as usize] += amount * coefficient;
            }
        }
        assert!(
            covered.iter().zip(&demand).all(|(covered, demand)| covered + 1e-9 >= *demand),
            "{covered:?}"
        );
    }

    #[test]
    fn many_pivots_stay_accurate() {
        let rows = 12u32;
        let demand: Vec<f64> = (0..rows).map(|row| 10.0 + f64::from(row)).collect();
        let start = (0..rows).map(|row| column(5.0, &[(row, 1.0)])).collect();
        let mut master = Master::new(demand.clone(), start);
        let mut seed = 7u64;
        for _ in 0..600 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (a, b) = ((seed >> 33) as u32 % rows, (seed >> 40) as u32 % rows);
            let price = 3.0 + (seed >> 50) as f64 / 16384.0;
            if a != b {
                master.enter(column(price, &[(a, 1.0 + f64::from(b % 3)), (b, 1.0)]));
                master.drop_negative_duals();
            }
        }
        let dual: f64 = master.duals.iter().zip(&demand).map(|(dual, demand)| dual * demand).sum();
        assert!((master.objective() - dual).abs() < 1e-6 * dual, "{} against {dual}", master.objective());
    }
}
