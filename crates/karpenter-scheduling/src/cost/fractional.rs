//! The pricing problem of one instance type with divisible pods: which pods have the highest total value on one node?
//! Each row (group of equal pods) may have at most as many pods on the node as whole pods of that row alone would fit;
//! this limit is the row's box.
//!
//! The pricing problem is a linear program with one constraint per resource, solved by the simplex method for bounded
//! variables, starting from the basis of the last call. Its dual prices give an upper bound for the value of every
//! column (the whole pods of one node), exact up to rounding errors.

use super::knapsack::copies;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};

/// A reduced value (a pod's value minus the price of its requests) below this share of the node's price counts as zero.
const TOLERANCE: f64 = 1e-7;
/// A simplex step smaller than this counts as zero.
const EPSILON: f64 = 1e-10;

/// The requests of each group of equal pods as shares of a node's capacity, so that all resources have the same scale.
pub(crate) struct Scaled {
    scale: [f64; DIMENSIONS_MAX],
    requests: Vec<[f64; DIMENSIONS_MAX]>,
}

impl Scaled {
    pub(crate) fn new(rows: &[Row], kinds: &[NodeKind]) -> Self {
        let mut scale = [0.0; DIMENSIONS_MAX];
        for kind in kinds {
            for (scale, free) in scale.iter_mut().zip(&kind.free) {
                *scale = f64::max(*scale, *free as f64);
            }
        }
        let scale = scale.map(|largest: f64| if largest > 0.0 { 1.0 / largest } else { 0.0 });
        let scaled = |row: &Row| {
            let mut requests = [0.0; DIMENSIONS_MAX];
            for dimension in 0..DIMENSIONS_MAX {
                requests[dimension] = row.requests[dimension] as f64 * scale[dimension];
            }
            requests
        };
        Self { scale, requests: rows.iter().map(scaled).collect() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Lower,
    Upper,
    Basic,
}

/// The linear program for one node of an instance type, with its current simplex basis.
pub(crate) struct FractionalNode {
    /// The groups of equal pods of which at least one pod fits, and how many pods of each fit.
    rows: Vec<(u32, f64)>,
    /// The state of each variable (basic, or at one of its limits): first the groups of equal pods in the order of
    /// `rows`, then one slack variable per resource.
    levels: Vec<Level>,
    free: [f64; DIMENSIONS_MAX],
    price: f64,
    basis: [usize; DIMENSIONS_MAX],
    inverse: [[f64; DIMENSIONS_MAX]; DIMENSIONS_MAX],
    amounts: [f64; DIMENSIONS_MAX],
    /// The price of the full capacity of each resource; a request pays in proportion to its share.
    prices: [f64; DIMENSIONS_MAX],
}

impl FractionalNode {
    pub(crate) fn new(rows: &[Row], scaled: &Scaled, kind: &NodeKind) -> Self {
        let usable = rows.iter().enumerate().filter(|(_, row)| kind.takes(row)).filter_map(|(index, row)| {
            let room = row.exclusion.map_or(u32::MAX, |(_, cap)| cap);
            let most = copies(&kind.free, &row.requests, row.count.min(row.cap).min(room));
            (most > 0).then_some((index as u32, f64::from(most)))
        });
        let rows: Vec<(u32, f64)> = usable.collect();
        let mut levels = vec![Level::Lower; rows.len()];
        levels.extend([Level::Basic; DIMENSIONS_MAX]);
        let free: [f64; DIMENSIONS_MAX] =
            std::array::from_fn(|dimension| kind.free[dimension].max(0) as f64 * scaled.scale[dimension]);
        let mut node = Self {
            levels,
            free,
            price: kind.price,
            basis: [0; DIMENSIONS_MAX],
            inverse: [[0.0; DIMENSIONS_MAX]; DIMENSIONS_MAX],
            amounts: free,
            prices: [0.0; DIMENSIONS_MAX],
            rows,
        };
        node.reset();
        node
    }

    /// Resets the basis to the empty node.
    fn reset(&mut self) {
        self.inverse = [[0.0; DIMENSIONS_MAX]; DIMENSIONS_MAX];
        self.levels.fill(Level::Lower);
        for dimension in 0..DIMENSIONS_MAX {
            self.basis[dimension] = self.rows.len() + dimension;
            self.levels[self.rows.len() + dimension] = Level::Basic;
            self.inverse[dimension][dimension] = 1.0;
        }
        self.amounts = self.free;
    }

    /// Solves the program at these pod values. Returns an upper bound for the value of every column (set of whole pods
    /// on the node).
    pub(crate) fn solve(&mut self, scaled: &Scaled, values: &[f64], work: &mut u64) -> f64 {
        if !self.refactor(scaled) {
            self.reset();
        }
        let pivots_max = 50 + 4 * self.rows.len();
        for _ in 0..pivots_max {
            self.price_resources(values);
            *work += self.rows.len() as u64 / 2 + 4;
            let Some(entering) = self.entering(scaled, values) else { break };
            self.pivot(scaled, entering);
        }
        self.price_resources(values);
        self.bound(scaled, values)
    }

    /// An upper bound for the value of every column (set of pods for one node). It is computed from the resource prices
    /// of the last solution and holds for any pod values.
    pub(crate) fn bound(&self, scaled: &Scaled, values: &[f64]) -> f64 {
        let prices = self.prices.map(|price| price.max(0.0));
        let of_rows: f64 = self
            .rows
            .iter()
            .map(|(row, most)| {
                let row = *row as usize;
                (values[row] - dot(&prices, &scaled.requests[row])).max(0.0) * most
            })
            .sum();
        (dot(&prices, &self.free) + of_rows) * (1.0 + 1e-9)
    }

    /// The price of one unit (millicore, byte) of each resource.
    pub(crate) fn resource_prices(&self, scaled: &Scaled) -> [f64; DIMENSIONS_MAX] {
        std::array::from_fn(|dimension| self.prices[dimension].max(0.0) * scaled.scale[dimension])
    }

    /// The groups of equal pods (rows) that fit on the node: (row, maximum number of pods, number of pods in the
    /// solution).
    pub(crate) fn boxes(&self) -> impl Iterator<Item = (u32, f64, f64)> {
        self.rows.iter().enumerate().map(|(position, (row, most))| {
            let amount = match self.levels[position] {
                Level::Lower => 0.0,
                Level::Upper => *most,
                Level::Basic => {
                    let found = self.basis.iter().position(|basic| *basic == position);
                    found.map_or(0.0, |found| self.amounts[found].clamp(0.0, *most))
                }
            };
            (*row, *most, amount)
        })
    }

    /// The pods that the solution places on the node, as (group of equal pods, possibly fractional number).
    pub(crate) fn pods(&self) -> Vec<(u32, f64)> {
        let pods = self.boxes().map(|(row, _, amount)| (row, amount));
        pods.filter(|(_, amount)| *amount > 1e-9).collect()
    }

    fn price_resources(&mut self, values: &[f64]) {
        self.prices = [0.0; DIMENSIONS_MAX];
        for (basic, line) in self.basis.iter().zip(&self.inverse) {
            if let Some((row, _)) = self.rows.get(*basic) {
                for (price, factor) in self.prices.iter_mut().zip(line) {
                    *price += values[*row as usize] * factor;
                }
            }
        }
    }

    /// The variable whose change promises the largest gain, and whether it increases.
    fn entering(&self, scaled: &Scaled, values: &[f64]) -> Option<(usize, bool)> {
        let mut best: Option<(usize, bool)> = None;
        let mut most = TOLERANCE * self.price;
        for (position, (row, limit)) in self.rows.iter().enumerate() {
            let level = self.levels[position];
            if level == Level::Basic {
                continue;
            }
            let row = *row as usize;
            let reduced = values[row] - dot(&self.prices, &scaled.requests[row]);
            let grows = level == Level::Lower;
            let gain = (if grows { reduced } else { -reduced }) * limit;
            if gain > most {
                (most, best) = (gain, Some((position, grows)));
            }
        }
        for dimension in 0..DIMENSIONS_MAX {
            let gain = -self.prices[dimension] * self.free[dimension];
            if self.levels[self.rows.len() + dimension] != Level::Basic && gain > most {
                (most, best) = (gain, Some((self.rows.len() + dimension, true)));
            }
        }
        best
    }

    fn column(&self, scaled: &Scaled, variable: usize) -> [f64; DIMENSIONS_MAX] {
        match self.rows.get(variable) {
            Some((row, _)) => scaled.requests[*row as usize],
            None => {
                let mut unit = [0.0; DIMENSIONS_MAX];
                unit[variable - self.rows.len()] = 1.0;
                unit
            }
        }
    }

    fn limit(&self, variable: usize) -> f64 {
        self.rows.get(variable).map_or(f64::MAX, |(_, most)| *most)
    }

    fn pivot(&mut self, scaled: &Scaled, (entering, grows): (usize, bool)) {
        let column = self.column(scaled, entering);
        let sign = if grows { 1.0 } else { -1.0 };
        let direction = self.inverse.map(|line| sign * dot(&line, &column));
        // The length of the step: until the variable reaches its other limit, or until a basic variable reaches a
        // limit.
        let mut step = self.limit(entering);
        let mut leaving: Option<(usize, Level)> = None;
        for (position, change) in direction.iter().enumerate() {
            let (room, level) = if *change > EPSILON {
                (self.amounts[position].max(0.0), Level::Lower)
            } else if *change < -EPSILON {
                ((self.limit(self.basis[position]) - self.amounts[position]).max(0.0), Level::Upper)
            } else {
                continue;
            };
            let until = room / change.abs();
            if until < step {
                (step, leaving) = (until, Some((position, level)));
            }
        }
        for (amount, change) in self.amounts.iter_mut().zip(&direction) {
            *amount -= step * change;
        }
        let Some((position, level)) = leaving else {
            self.levels[entering] = if grows { Level::Upper } else { Level::Lower };
            return;
        };
        self.levels[self.basis[position]] = level;
        self.levels[entering] = Level::Basic;
        self.basis[position] = entering;
        self.amounts[position] = if grows { step } else { self.limit(entering) - step };
        let pivot = direction[position] * sign;
        let line = self.inverse[position].map(|factor| factor / pivot);
        for (other, own) in self.inverse.iter_mut().enumerate() {
            let factor = direction[other] * sign;
            if other != position && factor != 0.0 {
                own.iter_mut().zip(&line).for_each(|(own, of_pivot)| *own -= factor * of_pivot);
            }
        }
        self.inverse[position] = line;
    }

    /// Computes the basis inverse and the values of the variables from the basis. Returns false if the basis is
    /// singular or infeasible.
    fn refactor(&mut self, scaled: &Scaled) -> bool {
        const WIDTH: usize = 2 * DIMENSIONS_MAX;
        let mut work = [[0.0; WIDTH]; DIMENSIONS_MAX];
        for (position, basic) in self.basis.iter().enumerate() {
            for (dimension, amount) in self.column(scaled, *basic).into_iter().enumerate() {
                work[dimension][position] = amount;
            }
        }
        for (dimension, line) in work.iter_mut().enumerate() {
            line[DIMENSIONS_MAX + dimension] = 1.0;
        }
        for step in 0..DIMENSIONS_MAX {
            let pivot = (step..DIMENSIONS_MAX)
                .max_by(|a, b| work[*a][step].abs().total_cmp(&work[*b][step].abs()).then(b.cmp(a)))
                .unwrap_or(step);
            if work[pivot][step].abs() < 1e-12 {
                return false;
            }
            work.swap(step, pivot);
            let divisor = work[step][step];
            let line = work[step].map(|value| value / divisor);
            work[step] = line;
            for (other, own) in work.iter_mut().enumerate() {
                let factor = own[step];
                if other != step && factor != 0.0 {
                    own.iter_mut().zip(&line).for_each(|(own, of_pivot)| *own -= factor * of_pivot);
                }
            }
        }
        for (line, own) in work.iter().zip(&mut self.inverse) {
            own.copy_from_slice(&line[DIMENSIONS_MAX..]);
        }
        let mut left = self.free;
        for (position, (row, most)) in self.rows.iter().enumerate() {
            if self.levels[position] == Level::Upper {
                let requests = &scaled.requests[*row as usize];
                left.iter_mut().zip(requests).for_each(|(left, request)| *left -= most * request);
            }
        }
        self.amounts = self.inverse.map(|line| dot(&line, &left));
        self.amounts.iter().zip(&self.basis).all(|(amount, basic)| {
            let limit = self.limit(*basic);
            *amount >= -1e-7 && (limit == f64::MAX || *amount <= limit * (1.0 + 1e-7))
        })
    }
}

#[inline]
fn dot(a: &[f64; DIMENSIONS_MAX], b: &[f64; DIMENSIONS_MAX]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
