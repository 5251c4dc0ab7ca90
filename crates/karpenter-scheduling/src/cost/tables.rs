//! The most valuable pods for one node, found by a depth-first search with bounds from tables.
//!
//! A table has the maximum value of the rows from some position on, for every remaining amount of one
//! resource (in steps), at a fixed price of the other. It counts one resource in whole pods, which a density
//! bound cannot, and where few pods fill a node most waste is due to that. Cpu is counted while memory is
//! priced, and the other way round; the lower bound of both holds. Other resources bind only in the search
//! itself.

use super::knapsack::{Exclusions, PodCounts, copies, take};
use super::shapes::{NodeKind, Row, Vector};

/// The maximum number of steps of a resource.
const STEPS_MAX: i64 = 640;
/// Above this many copies on one node, the number of copies is unbounded in the table.
const COPIES_COUNTED_MAX: u32 = 3;
/// Tables are built at these multiples of the best price.
const PRICE_FACTORS: [f64; 3] = [1.0, 1.15, 1.0 / 1.15];

/// The price of memory while cpu is counted, and of cpu while memory is counted, that give the best bound of
/// a kind; a start for the next search.
pub(crate) type Prices = [f64; 2];

pub(crate) struct TableSearch {
    /// The value of the best column found, at least the value to beat.
    pub(crate) value: f64,
    pub(crate) prices: Prices,
}

/// A row of the search.
struct SearchRow {
    row: u32,
    value: f64,
    requests: Vector,
    most: u32,
}

/// Uses at most `nodes` search nodes. `pod_counts` is replaced if there is a column that is worth more than
/// `beat`.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the arguments")]
pub(crate) fn search_with_tables(
    rows: &[Row],
    values: &[f64],
    remaining: &[u32],
    kind: &NodeKind,
    known: Option<Prices>,
    (beat, nodes): (f64, u64),
    pod_counts: &mut PodCounts,
    work: &mut u64,
) -> TableSearch {
    let mut search_rows: Vec<SearchRow> = rows
        .iter()
        .enumerate()
        .filter(|(index, row)| values[*index] > 0.0 && kind.takes(row))
        .map(|(index, row)| SearchRow {
            row: index as u32,
            value: values[index],
            requests: row.requests,
            most: copies(&kind.free, &row.requests, remaining[index].min(row.cap)),
        })
        .filter(|search_row| search_row.most > 0)
        .collect();
    // Rows with the highest value first: small pods fill the gaps.
    search_rows.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.row.cmp(&b.row)));
    let mut scales: Vec<Scale> = Vec::new();
    let mut prices = [0.0; 2];
    let mut at_most = f64::MAX;
    for counted in 0..2 {
        let steps = Steps::new(&search_rows, kind, counted);
        let estimate = known.map(|known| known[counted]);
        let (price, bound) = steps.best_price(&search_rows, kind, estimate, beat, work);
        prices[counted] = price;
        at_most = at_most.min(bound);
        if at_most <= beat {
            return TableSearch { value: beat, prices };
        }
        scales.push(Scale { steps, prices: PRICE_FACTORS.map(|near| price * near), tables: Vec::new() });
    }
    for scale in &mut scales {
        scale.tables =
            scale.prices.iter().map(|price| scale.steps.table(&search_rows, *price, work)).collect();
    }
    let mut search = Search {
        rows,
        search_rows: &search_rows,
        scales: &scales,
        best: beat,
        pod_counts: PodCounts::new(),
        current: PodCounts::new(),
        exclusions: Exclusions::default(),
        nodes,
    };
    search.descend(0, kind.free, 0.0);
    *work += (nodes - search.nodes) / 2;
    if !search.pod_counts.is_empty() {
        *pod_counts = search.pod_counts;
    }
    TableSearch { value: search.best, prices }
}

/// One resource in steps. Amounts are rounded down, so that a bound in steps is a bound.
struct Steps {
    counted: usize,
    priced: usize,
    step: i64,
    count: usize,
}

impl Steps {
    fn new(search_rows: &[SearchRow], kind: &NodeKind, counted: usize) -> Self {
        let free = kind.free[counted].max(0);
        let common = search_rows
            .iter()
            .fold(0, |common, search_row| greatest_divisor(common, search_row.requests[counted]));
        let step = common.max(free / STEPS_MAX).max(1);
        Self { counted, priced: 1 - counted, step, count: (free / step) as usize + 1 }
    }

    /// Adds a row to the table of the rows behind it.
    fn add(&self, search_row: &SearchRow, price: f64, table: &mut [f64]) {
        let gain = search_row.value - price * search_row.requests[self.priced] as f64;
        let width = (search_row.requests[self.counted] / self.step) as usize;
        if gain <= 0.0 || width >= table.len() {
            return;
        }
        if width == 0 {
            table.iter_mut().for_each(|value| *value += gain * f64::from(search_row.most));
        } else if search_row.most <= COPIES_COUNTED_MAX {
            for _ in 0..search_row.most {
                for at in (width..table.len()).rev() {
                    table[at] = table[at].max(table[at - width] + gain);
                }
            }
        } else {
            for at in width..table.len() {
                table[at] = table[at].max(table[at - width] + gain);
            }
        }
    }

    fn bound(
        &self,
        search_rows: &[SearchRow],
        kind: &NodeKind,
        price: f64,
        table: &mut Vec<f64>,
        work: &mut u64,
    ) -> f64 {
        table.clear();
        table.resize(self.count, 0.0);
        search_rows.iter().for_each(|search_row| self.add(search_row, price, table));
        *work += (search_rows.len() * self.count) as u64 / 64;
        table[self.count - 1] + price * kind.free[self.priced].max(0) as f64
    }

    /// The price of the other resource with the lowest bound, and that bound. The search stops at `enough`.
    fn best_price(
        &self,
        search_rows: &[SearchRow],
        kind: &NodeKind,
        known: Option<f64>,
        enough: f64,
        work: &mut u64,
    ) -> (f64, f64) {
        let mut table = Vec::new();
        let mut factor: f64 = if known.is_some() { 1.3 } else { 3.0 };
        let usual = 0.4 * kind.price / kind.free[self.priced].max(1) as f64;
        let mut price = known.unwrap_or(usual);
        let mut least = self.bound(search_rows, kind, price, &mut table, work);
        while factor > 1.02 && least > enough {
            let higher = self.bound(search_rows, kind, price * factor, &mut table, work);
            let lower = self.bound(search_rows, kind, price / factor, &mut table, work);
            if higher.min(lower) >= least {
                factor = factor.sqrt();
            } else if higher <= lower {
                (price, least) = (price * factor, higher);
            } else {
                (price, least) = (price / factor, lower);
            }
        }
        (price, least)
    }

    /// By row and remaining amount: the maximum value of this and all later rows.
    fn table(&self, search_rows: &[SearchRow], price: f64, work: &mut u64) -> Vec<f64> {
        let mut table = vec![0.0; (search_rows.len() + 1) * self.count];
        for (position, search_row) in search_rows.iter().enumerate().rev() {
            let (here, behind) = table.split_at_mut((position + 1) * self.count);
            let here = &mut here[position * self.count..];
            here.copy_from_slice(&behind[..self.count]);
            self.add(search_row, price, here);
        }
        *work += table.len() as u64 / 32;
        table
    }
}

struct Scale {
    steps: Steps,
    prices: [f64; PRICE_FACTORS.len()],
    tables: Vec<Vec<f64>>,
}

impl Scale {
    /// The maximum value of the rows from `position` on.
    fn rest(&self, position: usize, left: &Vector) -> f64 {
        let at = position * self.steps.count + (left[self.steps.counted] / self.steps.step) as usize;
        let other = left[self.steps.priced] as f64;
        let bounds = self.tables.iter().zip(&self.prices).map(|(table, price)| table[at] + price * other);
        bounds.fold(f64::MAX, f64::min)
    }
}

struct Search<'a> {
    rows: &'a [Row],
    search_rows: &'a [SearchRow],
    scales: &'a [Scale],
    best: f64,
    pod_counts: PodCounts,
    current: PodCounts,
    exclusions: Exclusions,
    nodes: u64,
}

impl Search<'_> {
    fn descend(&mut self, position: usize, left: Vector, value: f64) {
        let Some(search_row) = self.search_rows.get(position) else {
            if value > self.best * (1.0 + 1e-9) {
                self.best = value;
                self.pod_counts.clone_from(&self.current);
            }
            return;
        };
        let row = &self.rows[search_row.row as usize];
        let most = copies(&left, &search_row.requests, search_row.most.min(self.exclusions.room(row)));
        for count in (0..=most).rev() {
            if self.nodes == 0 {
                return;
            }
            self.nodes -= 1;
            let mut rest = left;
            take(&mut rest, &search_row.requests, count);
            let here = value + search_row.value * f64::from(count);
            let enough = self.best * (1.0 + 1e-9);
            if self.scales.iter().any(|scale| here + scale.rest(position + 1, &rest) <= enough) {
                continue;
            }
            if count > 0 {
                self.current.push((search_row.row, count));
                self.exclusions.occupy(row, count);
            }
            self.descend(position + 1, rest, here);
            if count > 0 {
                self.current.pop();
                self.exclusions.release(row, count);
            }
        }
    }
}

pub(super) fn greatest_divisor(mut a: i64, mut b: i64) -> i64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;
    use crate::cost::shapes::DIMENSIONS_MAX;

    fn row(cpu: i64, memory: i64, count: u32, cap: u32) -> Row {
        let mut requests = [0; DIMENSIONS_MAX];
        (requests[0], requests[1], requests[2]) = (cpu, memory, 1);
        Row { requests, demand: 0, count, cap, exclusion: None }
    }

    fn kind(cpu: i64, memory: i64, pods: i64) -> NodeKind {
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1], free[2]) = (cpu, memory, pods);
        let mut demands = Bits::empty(1);
        demands.insert(0);
        NodeKind { template: 0, instance_type: 0, free, price: 1.0, demands, is_spot: false }
    }

    /// Tries every column.
    fn exhaustive(rows: &[Row], values: &[f64], from: usize, left: &Vector) -> f64 {
        let Some(row) = rows.get(from) else { return 0.0 };
        let most = copies(left, &row.requests, row.count.min(row.cap));
        let with = |count: u32| {
            let mut rest = *left;
            take(&mut rest, &row.requests, count);
            f64::from(count) * values[from] + exhaustive(rows, values, from + 1, &rest)
        };
        (0..=most).map(with).fold(0.0, f64::max)
    }

    #[test]
    fn search_finds_the_best_column() {
        let mut random = 7u64;
        let mut next = |below: i64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((random >> 33) % below as u64) as i64
        };
        for _ in 0..200 {
            let rows: Vec<Row> = (0..6)
                .map(|_| row(1 + next(9), 1 + next(3_000), 1 + next(4) as u32, 1 + next(4) as u32))
                .collect();
            let values: Vec<f64> = rows.iter().map(|_| 0.1 + next(100) as f64 / 100.0).collect();
            let kind = kind(20 + next(10), 5_000 + next(3_000), 4 + next(6));
            let counts: Vec<u32> = rows.iter().map(|row| row.count).collect();
            let best = exhaustive(&rows, &values, 0, &kind.free);
            let mut work = 0;
            let mut pod_counts = PodCounts::new();
            let found = search_with_tables(
                &rows,
                &values,
                &counts,
                &kind,
                None,
                (0.0, 1_000_000),
                &mut pod_counts,
                &mut work,
            );
            assert!((found.value - best).abs() < 1e-9, "{} is not {best}", found.value);
            let found_value: f64 =
                pod_counts.iter().map(|(row, count)| values[*row as usize] * f64::from(*count)).sum();
            assert!((found_value - best).abs() < 1e-9);
            // With nothing to gain, no column is returned.
            let mut pod_counts = PodCounts::new();
            search_with_tables(
                &rows,
                &values,
                &counts,
                &kind,
                Some(found.prices),
                (best + 1e-6, 1_000_000),
                &mut pod_counts,
                &mut work,
            );
            assert!(pod_counts.is_empty());
        }
    }
}
