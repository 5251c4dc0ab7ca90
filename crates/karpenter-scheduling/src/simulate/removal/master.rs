//! The restricted master problem of the consolidation program, solved by the simplex method with generalized
//! upper bounds: minimise cost·x subject to A·x ≥ demand, x ≥ 0, and for every set of columns Σ x = 1.
//!
//! A set is an existing node; its columns are the contents that the node may have, its slack means that the node
//! is removed (or takes no pods). Each set has one key variable in the basis, so the basis that is factorised has
//! only as many rows as there are classes of pods, however many nodes there are.
//!
//! Dantzig, Van Slyke: Generalized upper bounding techniques (1967).

/// Values below this count as zero.
const EPSILON: f64 = 1e-9;
/// A column with a reduced cost above minus this value does not improve the objective.
const TOLERANCE: f64 = 1e-7;
/// The minimum number of pivots between two factorisations; more for large programs.
const REFACTOR_PIVOTS: usize = 150;
/// Columns that enter between two passes over all columns.
const ENTER_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Column {
    /// `None`: the column belongs to no set and may be used any number of times.
    pub(super) set: Option<u32>,
    pub(super) cost: f64,
    /// (row, coefficient)
    pub(super) entries: Vec<(u32, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variable {
    Column(u32),
    /// The slack of a set.
    Slack(u32),
    /// The surplus of a row.
    Surplus(u32),
}

pub(super) struct Master {
    demand: Vec<f64>,
    columns: Vec<Column>,
    /// By set.
    key: Vec<Variable>,
    key_values: Vec<f64>,
    /// Positions of further basic variables of a set.
    others: Vec<Vec<u32>>,
    /// By position.
    basis: Vec<Variable>,
    values: Vec<f64>,
    /// Row-major inverse of the basis in which every column of a set is reduced by the key of the set.
    inverse: Vec<f64>,
    pub(super) duals: Vec<f64>,
    is_basic: Vec<bool>,
    /// Pivots since the last factorisation, and all.
    pivots: usize,
    all_pivots: usize,
    pub(super) work: u64,
}

impl Master {
    /// Starts from one column per row, without a set, that covers only that row; all sets are slack.
    pub(super) fn new(demand: Vec<f64>, sets: usize, start: Vec<Column>) -> Self {
        let rows = demand.len();
        let mut master = Self {
            key: (0..sets).map(|set| Variable::Slack(set as u32)).collect(),
            key_values: vec![1.0; sets],
            others: vec![Vec::new(); sets],
            basis: (0..rows).map(|row| Variable::Column(row as u32)).collect(),
            values: vec![0.0; rows],
            inverse: vec![0.0; rows * rows],
            duals: vec![0.0; rows],
            is_basic: vec![true; rows],
            columns: start,
            demand,
            pivots: 0,
            all_pivots: 0,
            work: 0,
        };
        master.refactor();
        master
    }

    pub(super) fn add(&mut self, column: Column) {
        self.columns.push(column);
        self.is_basic.push(false);
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn objective(&self) -> f64 {
        let keys = self.key.iter().zip(&self.key_values).map(|(key, value)| self.cost(*key) * value);
        let others = self.basis.iter().zip(&self.values).map(|(one, value)| self.cost(*one) * value);
        keys.chain(others).sum()
    }

    /// The columns of the solution with their amounts.
    pub(super) fn solution(&self) -> impl Iterator<Item = (usize, f64)> {
        let all = self.key.iter().zip(&self.key_values).chain(self.basis.iter().zip(&self.values));
        all.filter_map(|(one, value)| match one {
            Variable::Column(column) if *value > EPSILON => Some((*column as usize, *value)),
            _ => None,
        })
    }

    /// The dual price of a set: the change of the objective if the set had one more node.
    pub(super) fn dual_of_set(&self, set: usize) -> f64 {
        let key = self.key[set];
        self.cost(key) - self.value(key)
    }

    /// What a content is worth at the dual prices.
    pub(super) fn value_of(&self, entries: &[(u32, f64)]) -> f64 {
        entries.iter().map(|(row, coefficient)| self.duals[*row as usize] * coefficient).sum()
    }

    /// Solves the program over the columns that were added, with at most so many pivots.
    pub(super) fn optimize(&mut self, pivots_max: usize) {
        let pivots_end = self.all_pivots + pivots_max;
        while self.all_pivots < pivots_end {
            let of_sets: Vec<f64> = (0..self.key.len()).map(|set| self.dual_of_set(set)).collect();
            let mut candidates: Vec<(f64, Variable)> = Vec::new();
            for (index, column) in self.columns.iter().enumerate() {
                if self.is_basic[index] {
                    continue;
                }
                let of_set = column.set.map_or(0.0, |set| of_sets[set as usize]);
                let reduced = column.cost - self.value_of(&column.entries) - of_set;
                if reduced < -TOLERANCE {
                    candidates.push((reduced, Variable::Column(index as u32)));
                }
            }
            self.work += self.columns.len() as u64 / 8;
            for (set, dual) in of_sets.iter().enumerate() {
                if *dual > TOLERANCE {
                    candidates.push((-dual, Variable::Slack(set as u32)));
                }
            }
            for (row, dual) in self.duals.iter().enumerate() {
                if *dual < -TOLERANCE {
                    candidates.push((*dual, Variable::Surplus(row as u32)));
                }
            }
            candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut entered = false;
            for (_, variable) in candidates.into_iter().take(ENTER_MAX) {
                entered |= self.all_pivots < pivots_end && self.enter(variable);
            }
            if !entered {
                return;
            }
        }
    }

    fn set_of(&self, variable: Variable) -> Option<usize> {
        match variable {
            Variable::Column(column) => self.columns[column as usize].set.map(|set| set as usize),
            Variable::Slack(set) => Some(set as usize),
            Variable::Surplus(_) => None,
        }
    }

    fn cost(&self, variable: Variable) -> f64 {
        match variable {
            Variable::Column(column) => self.columns[column as usize].cost,
            Variable::Slack(_) | Variable::Surplus(_) => 0.0,
        }
    }

    fn value(&self, variable: Variable) -> f64 {
        match variable {
            Variable::Column(column) => self.value_of(&self.columns[column as usize].entries),
            Variable::Slack(_) => 0.0,
            Variable::Surplus(row) => -self.duals[row as usize],
        }
    }

    /// Calls `add` with the entries of a variable.
    fn for_entries(&self, variable: Variable, mut add: impl FnMut(usize, f64)) {
        match variable {
            Variable::Column(column) => {
                for (row, coefficient) in &self.columns[column as usize].entries {
                    add(*row as usize, *coefficient);
                }
            }
            Variable::Slack(_) => {}
            Variable::Surplus(row) => add(row as usize, -1.0),
        }
    }

    /// A column reduced by the key of its set.
    fn reduced_column(&self, variable: Variable) -> Vec<f64> {
        let mut column = vec![0.0; self.demand.len()];
        self.for_entries(variable, |row, coefficient| column[row] += coefficient);
        if let Some(set) = self.set_of(variable) {
            self.for_entries(self.key[set], |row, coefficient| column[row] -= coefficient);
        }
        column
    }

    fn direction(&self, variable: Variable) -> Vec<f64> {
        let rows = self.demand.len();
        let column = self.reduced_column(variable);
        let entries: Vec<(usize, f64)> =
            column.into_iter().enumerate().filter(|(_, coefficient)| *coefficient != 0.0).collect();
        let of_position =
            |row: &[f64]| entries.iter().map(|(index, coefficient)| row[*index] * coefficient).sum();
        self.inverse.chunks_exact(rows).map(of_position).collect()
    }

    fn mark(&mut self, variable: Variable, is_basic: bool) {
        if let Variable::Column(column) = variable {
            self.is_basic[column as usize] = is_basic;
        }
    }

    fn is_basic(&self, variable: Variable) -> bool {
        match variable {
            Variable::Column(column) => self.is_basic[column as usize],
            Variable::Slack(set) => {
                let set = set as usize;
                self.key[set] == variable
                    || self.others[set].iter().any(|position| self.basis[*position as usize] == variable)
            }
            Variable::Surplus(_) => self.basis.contains(&variable),
        }
    }

    /// Enters a variable into the basis. Returns false if it would not improve the objective.
    fn enter(&mut self, variable: Variable) -> bool {
        let own_set = self.set_of(variable);
        let dual = own_set.map_or(0.0, |set| self.dual_of_set(set));
        let reduced = self.cost(variable) - self.value(variable) - dual;
        if reduced >= -TOLERANCE || self.is_basic(variable) {
            return false;
        }
        let rows = self.demand.len();
        let mut direction = self.direction(variable);
        self.work += rows as u64 / 4;
        // Ratio test: the basic variable that becomes zero first leaves the basis.
        let mut least: Option<(f64, f64, Leaving)> = None;
        let mut offer = |ratio: f64, pivot: f64, leaving: Leaving| {
            let is_better = least.as_ref().is_none_or(|(best, of_best, _)| {
                ratio < best - 1e-12 || ratio <= best + 1e-12 && pivot > *of_best
            });
            if is_better {
                least = Some((ratio, pivot, leaving));
            }
        };
        let mut rates: Vec<(usize, f64)> = own_set.map(|set| (set, -1.0)).into_iter().collect();
        for (position, step) in direction.iter().enumerate() {
            if *step > 1e-8 {
                offer(self.values[position].max(0.0) / step, *step, Leaving::Position(position));
            }
            if step.abs() > 1e-12
                && let Some(set) = self.set_of(self.basis[position])
            {
                match rates.iter_mut().find(|(known, _)| *known == set) {
                    Some((_, rate)) => *rate += step,
                    None => rates.push((set, *step)),
                }
            }
        }
        for (set, rate) in &rates {
            if *rate < -1e-8 {
                offer(self.key_values[*set].max(0.0) / -rate, -rate, Leaving::Key(*set));
            }
        }
        let Some((ratio, _, leaving)) = least else { return false };
        for (value, step) in self.values.iter_mut().zip(&direction) {
            *value -= ratio * step;
        }
        for (set, rate) in rates {
            self.key_values[set] += ratio * rate;
        }
        let position = match leaving {
            Leaving::Position(position) => position,
            Leaving::Key(set) => {
                let candidate = self.others[set].iter().copied().max_by(|a, b| {
                    let value = |position: &u32| self.values[*position as usize];
                    value(a).total_cmp(&value(b)).then(b.cmp(a))
                });
                match candidate {
                    None => {
                        // The only basic variable of its set: the entering one is the new key.
                        self.mark(self.key[set], false);
                        self.mark(variable, true);
                        self.key[set] = variable;
                        self.key_values[set] = ratio;
                        return true;
                    }
                    Some(position) => {
                        self.swap_key(set, position as usize);
                        direction = self.direction(variable);
                        position as usize
                    }
                }
            }
        };
        if direction[position].abs() < 1e-10 {
            self.refactor();
            return false;
        }
        // The duals change by a multiple of the row that leaves.
        let factor = reduced / direction[position];
        for (dual, value) in self.duals.iter_mut().zip(&self.inverse[position * rows..(position + 1) * rows])
        {
            *dual += factor * value;
        }
        self.replace(position, variable, &direction);
        self.values[position] = ratio;
        self.pivots += 1;
        self.all_pivots += 1;
        if self.pivots >= REFACTOR_PIVOTS.max(2 * rows) {
            self.refactor();
        }
        true
    }

    /// Makes the variable at a position the key of its set; the old key takes the position.
    fn swap_key(&mut self, set: usize, position: usize) {
        let rows = self.demand.len();
        let mut row = vec![0.0; rows];
        for other in &self.others[set] {
            let start = *other as usize * rows;
            for (sum, value) in row.iter_mut().zip(&self.inverse[start..start + rows]) {
                *sum -= value;
            }
        }
        self.inverse[position * rows..(position + 1) * rows].copy_from_slice(&row);
        std::mem::swap(&mut self.key[set], &mut self.basis[position]);
        std::mem::swap(&mut self.key_values[set], &mut self.values[position]);
    }

    fn replace(&mut self, position: usize, variable: Variable, direction: &[f64]) {
        let rows = self.demand.len();
        let leaving = self.basis[position];
        self.mark(leaving, false);
        if let Some(set) = self.set_of(leaving) {
            self.others[set].retain(|one| *one as usize != position);
        }
        if let Some(set) = self.set_of(variable) {
            self.others[set].push(position as u32);
        }
        self.mark(variable, true);
        self.basis[position] = variable;
        let pivot = direction[position];
        let (before, rest) = self.inverse.split_at_mut(position * rows);
        let (pivot_row, after) = rest.split_at_mut(rows);
        pivot_row.iter_mut().for_each(|value| *value /= pivot);
        let others = before.chunks_exact_mut(rows).chain(after.chunks_exact_mut(rows));
        let steps = direction[..position].iter().chain(&direction[position + 1..]);
        for (row, step) in others.zip(steps) {
            if *step != 0.0 {
                row.iter_mut().zip(pivot_row.iter()).for_each(|(value, of_pivot)| *value -= step * of_pivot);
            }
        }
        self.work += (rows * rows) as u64 / 32;
    }

    /// Computes inverse, values and duals from scratch.
    fn refactor(&mut self) {
        self.pivots = 0;
        let rows = self.demand.len();
        let width = 2 * rows;
        let mut table = vec![0.0; rows * width];
        for (position, variable) in self.basis.iter().enumerate() {
            for (row, coefficient) in self.reduced_column(*variable).into_iter().enumerate() {
                table[row * width + position] = coefficient;
            }
        }
        (0..rows).for_each(|row| table[row * width + rows + row] = 1.0);
        if invert(&mut table, rows) {
            for row in 0..rows {
                self.inverse[row * rows..(row + 1) * rows]
                    .copy_from_slice(&table[row * width + rows..(row + 1) * width]);
            }
        }
        self.work += (rows * rows * rows) as u64 / 32;
        let mut left = self.demand.clone();
        for key in &self.key {
            self.for_entries(*key, |row, coefficient| left[row] -= coefficient);
        }
        for (position, row) in self.inverse.chunks_exact(rows.max(1)).enumerate() {
            self.values[position] = row.iter().zip(&left).map(|(a, b)| a * b).sum();
        }
        self.duals.iter_mut().for_each(|dual| *dual = 0.0);
        for (position, variable) in self.basis.iter().enumerate() {
            let of_key = self.set_of(*variable).map_or(0.0, |set| self.cost(self.key[set]));
            let cost = self.cost(*variable) - of_key;
            if cost != 0.0 {
                let row = &self.inverse[position * rows..(position + 1) * rows];
                self.duals.iter_mut().zip(row).for_each(|(dual, value)| *dual += cost * value);
            }
        }
        for set in 0..self.key.len() {
            let others: f64 = self.others[set].iter().map(|position| self.values[*position as usize]).sum();
            self.key_values[set] = 1.0 - others;
        }
    }
}

enum Leaving {
    Position(usize),
    Key(usize),
}

/// Inverts the left half of a table into its right half. False if it is singular.
fn invert(table: &mut [f64], rows: usize) -> bool {
    let width = 2 * rows;
    for step in 0..rows {
        let best = (step..rows).max_by(|a, b| {
            table[a * width + step].abs().total_cmp(&table[b * width + step].abs()).then(b.cmp(a))
        });
        let Some(best) = best.filter(|best| table[best * width + step].abs() > 1e-11) else { return false };
        if best != step {
            (0..width).for_each(|column| table.swap(best * width + column, step * width + column));
        }
        let pivot = table[step * width + step];
        table[step * width + step..(step + 1) * width].iter_mut().for_each(|value| *value /= pivot);
        let (before, rest) = table.split_at_mut(step * width);
        let (pivot_row, after) = rest.split_at_mut(width);
        for row in before.chunks_exact_mut(width).chain(after.chunks_exact_mut(width)) {
            let factor = row[step];
            if factor != 0.0 {
                let pairs = row[step..].iter_mut().zip(&pivot_row[step..]);
                pairs.for_each(|(value, of_pivot)| *value -= factor * of_pivot);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with random columns, solved.
    fn solved(seed: u64, rows: usize, sets: usize) -> Master {
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let demand = (0..rows).map(|_| 3.0 + next(20) as f64).collect();
        let start = (0..rows).map(|row| Column { set: None, cost: 5.0, entries: vec![(row as u32, 1.0)] });
        let mut master = Master::new(demand, sets, start.collect());
        for _ in 0..6 {
            for set in 0..sets {
                let first = next(rows as u64) as u32;
                let entries =
                    vec![(first, 1.0 + next(3) as f64), ((first + 1) % rows as u32, 1.0 + next(4) as f64)];
                master.add(Column { set: Some(set as u32), cost: 1.0 + next(9) as f64 / 2.0, entries });
            }
            let row = next(rows as u64) as u32;
            master.add(Column { set: None, cost: 4.0 + next(8) as f64, entries: vec![(row, 2.0)] });
            master.optimize(10_000);
        }
        master
    }

    #[test]
    fn primal_and_dual_objectives_are_equal() {
        for seed in 0..200 {
            let (rows, sets) = (2 + seed as usize % 7, 1 + seed as usize % 23);
            let master = solved(seed, rows, sets);
            let of_rows: f64 =
                master.duals.iter().zip(&master.demand).map(|(dual, demand)| dual * demand).sum();
            let of_sets: f64 = (0..sets).map(|set| master.dual_of_set(set)).sum();
            let gap = (master.objective() - of_rows - of_sets).abs();
            assert!(gap < 1e-6, "seed {seed}: {} against {}", master.objective(), of_rows + of_sets);
        }
    }

    #[test]
    fn solution_is_feasible_and_no_column_improves_it() {
        for seed in 0..200 {
            let (rows, sets) = (2 + seed as usize % 7, 1 + seed as usize % 23);
            let master = solved(seed, rows, sets);
            let (mut covered, mut used) = (vec![0.0; rows], vec![0.0; sets]);
            for (column, amount) in master.solution() {
                let column = &master.columns()[column];
                column.entries.iter().for_each(|(row, count)| covered[*row as usize] += amount * count);
                column.set.into_iter().for_each(|set| used[set as usize] += amount);
            }
            assert!(
                covered.iter().zip(&master.demand).all(|(covered, demand)| covered + 1e-6 >= *demand),
                "seed {seed}"
            );
            assert!(used.iter().all(|used| *used < 1.0 + 1e-6), "seed {seed}: {used:?}");
            for column in master.columns() {
                let of_set = column.set.map_or(0.0, |set| master.dual_of_set(set as usize));
                assert!(
                    column.cost - master.value_of(&column.entries) - of_set > -1e-5,
                    "seed {seed}: {column:?}"
                );
            }
            assert!((0..sets).all(|set| master.dual_of_set(set) < 1e-5), "seed {seed}");
        }
    }
}
