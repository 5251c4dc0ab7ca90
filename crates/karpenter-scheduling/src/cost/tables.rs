//! The most valuable filling of one node, found by a search that two kinds of tables keep short.
//!
//! A table says what can be had at most from some row on, for every amount of one resource that is left, at a fixed price
//! of the other. Counting one resource in whole pods is what a bound by density cannot do, and where few pods fill a
//! node that is most of the waste. One resource is counted and the other priced, and the other way round; the lower of
//! both holds. Resources beyond the first two only bind in the search itself.

use super::knapsack::{Exclusions, Pattern, copies, take};
use super::shapes::{Kind, Row, Vector};

/// Steps into which a node's amount of a resource is divided at most.
const STEPS_MAX: i64 = 640;
/// Above so many of a kind on one node, as many as wanted are as good a bound.
const FEW: u32 = 3;
/// Around the best price of a resource, bounds at these are kept as well.
const AROUND: [f64; 3] = [1.0, 1.15, 1.0 / 1.15];

/// Prices of memory while cpu is counted, and of cpu while memory is counted, at which a kind is bounded best; a start
/// for the next time.
pub(crate) type Prices = [f64; 2];

pub(crate) struct Filled {
    /// What the best filling found is worth; no less than what was to be beaten.
    pub(crate) value: f64,
    pub(crate) prices: Prices,
}

/// A row as the search sees it.
struct Part {
    row: u32,
    value: f64,
    requests: Vector,
    most: u32,
}

/// Looks at no more than `nodes` places of the search. `pattern` is replaced by a filling that is worth more than
/// `beat`, if there is one.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the parts")]
pub(crate) fn fill(
    rows: &[Row],
    values: &[f64],
    remaining: &[u32],
    kind: &Kind,
    known: Option<Prices>,
    (beat, nodes): (f64, u64),
    pattern: &mut Pattern,
    work: &mut u64,
) -> Filled {
    let mut parts: Vec<Part> = rows
        .iter()
        .enumerate()
        .filter(|(index, row)| values[*index] > 0.0 && kind.takes(row))
        .map(|(index, row)| Part {
            row: index as u32,
            value: values[index],
            requests: row.requests,
            most: copies(&kind.free, &row.requests, remaining[index].min(row.cap)),
        })
        .filter(|part| part.most > 0)
        .collect();
    // What is dear first: small pods fill the gaps.
    parts.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.row.cmp(&b.row)));
    let mut scales: Vec<Scale> = Vec::new();
    let mut prices = [0.0; 2];
    let mut at_most = f64::MAX;
    for counted in 0..2 {
        let steps = Steps::new(&parts, kind, counted);
        let guess = known.map(|known| known[counted]);
        let (price, bound) = steps.best_price(&parts, kind, guess, beat, work);
        prices[counted] = price;
        at_most = at_most.min(bound);
        if at_most <= beat {
            return Filled { value: beat, prices };
        }
        scales.push(Scale { steps, prices: AROUND.map(|near| price * near), tables: Vec::new() });
    }
    for scale in &mut scales {
        scale.tables = scale.prices.iter().map(|price| scale.steps.table(&parts, *price, work)).collect();
    }
    let mut search = Search {
        rows,
        parts: &parts,
        scales: &scales,
        best: beat,
        pattern: Pattern::new(),
        current: Pattern::new(),
        exclusions: Exclusions::default(),
        nodes,
    };
    search.descend(0, kind.free, 0.0);
    *work += (nodes - search.nodes) / 2;
    if !search.pattern.is_empty() {
        *pattern = search.pattern;
    }
    Filled { value: search.best, prices }
}

/// One resource in steps; amounts are rounded down, so that what is bounded in steps is bounded for real.
struct Steps {
    counted: usize,
    priced: usize,
    step: i64,
    count: usize,
}

impl Steps {
    fn new(parts: &[Part], kind: &Kind, counted: usize) -> Self {
        let free = kind.free[counted].max(0);
        let common = parts.iter().fold(0, |common, part| greatest_divisor(common, part.requests[counted]));
        let step = common.max(free / STEPS_MAX).max(1);
        Self { counted, priced: 1 - counted, step, count: (free / step) as usize + 1 }
    }

    /// Adds a row to what is known of those behind it.
    fn add(&self, part: &Part, price: f64, table: &mut [f64]) {
        let gain = part.value - price * part.requests[self.priced] as f64;
        let width = (part.requests[self.counted] / self.step) as usize;
        if gain <= 0.0 || width >= table.len() {
            return;
        }
        if width == 0 {
            table.iter_mut().for_each(|value| *value += gain * f64::from(part.most));
        } else if part.most <= FEW {
            for _ in 0..part.most {
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

    fn bound(&self, parts: &[Part], kind: &Kind, price: f64, table: &mut Vec<f64>, work: &mut u64) -> f64 {
        table.clear();
        table.resize(self.count, 0.0);
        parts.iter().for_each(|part| self.add(part, price, table));
        *work += (parts.len() * self.count) as u64 / 64;
        table[self.count - 1] + price * kind.free[self.priced].max(0) as f64
    }

    /// The price of the other resource with the least bound, and that bound; looked for until it is no more than `enough`.
    fn best_price(
        &self,
        parts: &[Part],
        kind: &Kind,
        known: Option<f64>,
        enough: f64,
        work: &mut u64,
    ) -> (f64, f64) {
        let mut table = Vec::new();
        let mut factor: f64 = if known.is_some() { 1.3 } else { 3.0 };
        let usual = 0.4 * kind.price / kind.free[self.priced].max(1) as f64;
        let mut price = known.unwrap_or(usual);
        let mut least = self.bound(parts, kind, price, &mut table, work);
        while factor > 1.02 && least > enough {
            let dearer = self.bound(parts, kind, price * factor, &mut table, work);
            let cheaper = self.bound(parts, kind, price / factor, &mut table, work);
            if dearer.min(cheaper) >= least {
                factor = factor.sqrt();
            } else if dearer <= cheaper {
                (price, least) = (price * factor, dearer);
            } else {
                (price, least) = (price / factor, cheaper);
            }
        }
        (price, least)
    }

    /// By row, and then by what is left: what this and all later rows can bring at most.
    fn table(&self, parts: &[Part], price: f64, work: &mut u64) -> Vec<f64> {
        let mut table = vec![0.0; (parts.len() + 1) * self.count];
        for (position, part) in parts.iter().enumerate().rev() {
            let (here, behind) = table.split_at_mut((position + 1) * self.count);
            let here = &mut here[position * self.count..];
            here.copy_from_slice(&behind[..self.count]);
            self.add(part, price, here);
        }
        *work += table.len() as u64 / 32;
        table
    }
}

struct Scale {
    steps: Steps,
    prices: [f64; AROUND.len()],
    tables: Vec<Vec<f64>>,
}

impl Scale {
    /// What rows from `position` on can bring at most.
    fn rest(&self, position: usize, left: &Vector) -> f64 {
        let at = position * self.steps.count + (left[self.steps.counted] / self.steps.step) as usize;
        let other = left[self.steps.priced] as f64;
        let bounds = self.tables.iter().zip(&self.prices).map(|(table, price)| table[at] + price * other);
        bounds.fold(f64::MAX, f64::min)
    }
}

struct Search<'a> {
    rows: &'a [Row],
    parts: &'a [Part],
    scales: &'a [Scale],
    best: f64,
    pattern: Pattern,
    current: Pattern,
    exclusions: Exclusions,
    nodes: u64,
}

impl Search<'_> {
    fn descend(&mut self, position: usize, left: Vector, value: f64) {
        let Some(part) = self.parts.get(position) else {
            if value > self.best * (1.0 + 1e-9) {
                self.best = value;
                self.pattern.clone_from(&self.current);
            }
            return;
        };
        let row = &self.rows[part.row as usize];
        let most = copies(&left, &part.requests, part.most.min(self.exclusions.room(row)));
        for count in (0..=most).rev() {
            if self.nodes == 0 {
                return;
            }
            self.nodes -= 1;
            let mut rest = left;
            take(&mut rest, &part.requests, count);
            let here = value + part.value * f64::from(count);
            let enough = self.best * (1.0 + 1e-9);
            if self.scales.iter().any(|scale| here + scale.rest(position + 1, &rest) <= enough) {
                continue;
            }
            if count > 0 {
                self.current.push((part.row, count));
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

    fn kind(cpu: i64, memory: i64, pods: i64) -> Kind {
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1], free[2]) = (cpu, memory, pods);
        let mut demands = Bits::empty(1);
        demands.insert(0);
        Kind { template: 0, instance_type: 0, free, price: 1.0, demands, is_spot: false }
    }

    /// Every filling there is.
    fn by_hand(rows: &[Row], values: &[f64], from: usize, left: &Vector) -> f64 {
        let Some(row) = rows.get(from) else { return 0.0 };
        let most = copies(left, &row.requests, row.count.min(row.cap));
        let with = |count: u32| {
            let mut rest = *left;
            take(&mut rest, &row.requests, count);
            f64::from(count) * values[from] + by_hand(rows, values, from + 1, &rest)
        };
        (0..=most).map(with).fold(0.0, f64::max)
    }

    #[test]
    fn the_best_filling_is_found() {
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
            let best = by_hand(&rows, &values, 0, &kind.free);
            let mut work = 0;
            let mut pattern = Pattern::new();
            let found = fill(&rows, &values, &counts, &kind, None, (0.0, 1_000_000), &mut pattern, &mut work);
            assert!((found.value - best).abs() < 1e-9, "{} is not {best}", found.value);
            let worth: f64 =
                pattern.iter().map(|(row, count)| values[*row as usize] * f64::from(*count)).sum();
            assert!((worth - best).abs() < 1e-9);
            // With nothing to be had, that is known at once or found out.
            let mut pattern = Pattern::new();
            fill(
                &rows,
                &values,
                &counts,
                &kind,
                Some(found.prices),
                (best + 1e-6, 1_000_000),
                &mut pattern,
                &mut work,
            );
            assert!(pattern.is_empty());
        }
    }
}
