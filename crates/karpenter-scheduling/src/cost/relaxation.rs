//! The linear relaxation of a packing problem by column generation: what each row is worth at the optimum (duals),
//! a cost no fleet can undercut, and the fillings a good fleet is made of.
//!
//! Two bounds are combined: the fluid bound (pods poured like water into nodes) and Farley's bound from the duals
//! with fractional fillings, in which a row counts at most as often as it fits alone.

use super::knapsack::{self, Order, Pattern, Scratch, Search};
use super::shapes::{DIMENSIONS_MAX, Kind, Row};
use super::simplex::{Column, Master};

pub(crate) struct Relaxation {
    pub(crate) duals: Vec<f64>,
    pub(crate) lower_bound: f64,
    /// (kind, filling, how often)
    pub(crate) columns: Vec<(usize, Pattern, f64)>,
    /// Price of each resource unit at the fluid optimum.
    pub(crate) fluid_weights: [f64; DIMENSIONS_MAX],
}

/// How hard to try; all counts, no clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) search_nodes: u64,
    /// Above this many rows the duals come from the fluid bound alone.
    pub(crate) rows_max: usize,
}

/// Solves the relaxation. `None` if some row fits on no kind.
pub(crate) fn relax(
    rows: &[Row],
    kinds: &[Kind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    let fluid = Fluid::solve(rows, kinds);
    let start = start_columns(rows, kinds)?;
    let single_costs: Vec<f64> = start.iter().map(|column| column.price / column.entries[0].1).collect();
    let guided: Vec<f64> = rows
        .iter()
        .zip(&single_costs)
        .map(|(row, single)| knapsack::weigh(&fluid.weights, &row.requests).min(*single).max(single * 1e-6))
        .collect();
    let mut best_bound = fluid.bound;
    if rows.len() > effort.rows_max {
        best_bound = best_bound.max(farley(rows, kinds, &guided, &fluid.weights, 0, scratch));
        return Some(Relaxation {
            duals: guided,
            lower_bound: best_bound,
            columns: vec![],
            fluid_weights: fluid.weights,
        });
    }
    let demand = rows.iter().map(|row| f64::from(row.count)).collect();
    let mut generation = Generation {
        rows,
        kinds,
        remaining: rows.iter().map(|row| row.count).collect(),
        patterns: start
            .iter()
            .map(|column| (column.tag as usize, vec![(column.entries[0].0, column.entries[0].1 as u32)]))
            .collect(),
        master: {
            let start = start
                .into_iter()
                .enumerate()
                .map(|(position, column)| Column { tag: position as u32, ..column });
            Master::new(demand, start.collect())
        },
        weights: fluid.weights,
        effort,
    };
    let mut center = guided;
    let mut smoothing = 0.6;
    for round in 0..effort.rounds {
        let entered = generation.round(&center, smoothing, scratch);
        if entered == 0 {
            if smoothing == 0.0 {
                break;
            }
            smoothing = 0.0;
            continue;
        }
        if round % 8 == 7 {
            let duals = generation.clean_duals();
            let bound = farley(rows, kinds, &duals, &fluid.weights, effort.search_nodes, scratch);
            if bound > best_bound {
                best_bound = bound;
                center = duals;
            }
            if generation.master.objective() <= best_bound * 1.0005 {
                break;
            }
            smoothing *= 0.7;
        }
    }
    let duals = generation.clean_duals();
    best_bound =
        best_bound.max(farley(rows, kinds, &duals, &fluid.weights, effort.search_nodes * 4, scratch));
    let columns = generation
        .master
        .solution()
        .filter(|(column, _)| column.tag != u32::MAX)
        .map(|(column, amount)| {
            let (kind, pattern) = &generation.patterns[column.tag as usize];
            (*kind, pattern.clone(), amount)
        })
        .collect();
    Some(Relaxation { duals, lower_bound: best_bound, columns, fluid_weights: fluid.weights })
}

struct Generation<'a> {
    rows: &'a [Row],
    kinds: &'a [Kind],
    remaining: Vec<u32>,
    master: Master,
    patterns: Vec<(usize, Pattern)>,
    weights: [f64; DIMENSIONS_MAX],
    effort: Effort,
}

impl Generation<'_> {
    fn clean_duals(&self) -> Vec<f64> {
        self.master.duals.iter().map(|dual| dual.max(0.0)).collect()
    }

    /// Prices every kind once and lets the best new fillings into the master. Returns how many entered.
    fn round(&mut self, center: &[f64], smoothing: f64, scratch: &mut Scratch) -> usize {
        const ENTER_MAX: usize = 12;
        let exact = self.clean_duals();
        let values: Vec<f64> = exact
            .iter()
            .zip(center)
            .map(|(exact, center)| smoothing * center + (1.0 - smoothing) * exact)
            .collect();
        let shared = shared_orders(self.rows, &values, &self.weights);
        let mut found: Vec<(f64, usize, Pattern)> = Vec::new();
        let mut pattern = Pattern::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let own = Order::new(self.rows, &values, inverse_weights(kind, &self.weights), |_| true);
            let mut best = (0.0, Pattern::new());
            for order in shared.iter().chain([&own]) {
                let value = knapsack::greedy(
                    self.rows,
                    &values,
                    &order.rows,
                    kind,
                    &self.remaining,
                    scratch,
                    &mut pattern,
                );
                if value > best.0 {
                    best = (value, std::mem::take(&mut pattern));
                }
            }
            let worth: f64 = best.1.iter().map(|(row, count)| exact[*row as usize] * f64::from(*count)).sum();
            found.push((worth / kind.price, index, best.1));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if smoothing == 0.0 {
            self.search_deeper(&values, &shared[0], &mut found, scratch);
        }
        let mut entered = 0;
        for (ratio, index, pattern) in found.into_iter().take(ENTER_MAX) {
            if ratio <= 1.0 + 1e-7 {
                break;
            }
            let entries: Vec<(u32, f64)> =
                pattern.iter().map(|(row, count)| (*row, f64::from(*count))).collect();
            let tag = self.patterns.len() as u32;
            if self.master.enter(Column { price: self.kinds[index].price, entries, tag }) {
                self.patterns.push((index, pattern));
                entered += 1;
            }
        }
        self.master.drop_negative_duals();
        entered
    }

    /// The most promising kinds get a bounded exact search.
    fn search_deeper(
        &self,
        values: &[f64],
        order: &Order,
        found: &mut [(f64, usize, Pattern)],
        scratch: &mut Scratch,
    ) {
        const DEEP_KINDS: usize = 6;
        if self.effort.search_nodes == 0 {
            return;
        }
        for (ratio, index, pattern) in found.iter_mut().take(DEEP_KINDS) {
            let kind = &self.kinds[*index];
            let own = inverse_weights(kind, &self.weights);
            let bounds: Vec<_> = [order.weights, own]
                .into_iter()
                .map(|weights| (weights, knapsack::suffix_density(self.rows, values, &order.rows, &weights)))
                .collect();
            let search = Search {
                rows: self.rows,
                values,
                remaining: &self.remaining,
                kind,
                order: &order.rows,
                bounds: &bounds,
                complete: std::cell::Cell::new(false),
            };
            let value = search.run(scratch, self.effort.search_nodes, pattern, *ratio * kind.price);
            *ratio = value / kind.price;
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }
}

/// Orders that suit most kinds: fluid prices, and fluid prices leaning to one resource each.
pub(crate) fn shared_orders(rows: &[Row], values: &[f64], weights: &[f64; DIMENSIONS_MAX]) -> Vec<Order> {
    let mut orders = vec![Order::new(rows, values, *weights, |_| true)];
    let active: Vec<usize> = (0..2).filter(|dimension| weights[*dimension] > 0.0).collect();
    if active.len() > 1 {
        for favoured in active {
            let mut leaning = *weights;
            leaning[favoured] *= 4.0;
            orders.push(Order::new(rows, values, leaning, |_| true));
        }
    }
    orders
}

/// Each resource weighted by its scarcity on the kind itself.
pub(crate) fn inverse_weights(kind: &Kind, fluid: &[f64; DIMENSIONS_MAX]) -> [f64; DIMENSIONS_MAX] {
    let mut weights = [0.0; DIMENSIONS_MAX];
    for dimension in 0..DIMENSIONS_MAX {
        if kind.free[dimension] > 0 {
            let share = fluid[dimension] * kind.free[dimension] as f64 / kind.price;
            weights[dimension] = (0.25 + share) / kind.free[dimension] as f64;
        }
    }
    weights
}

/// One column per row: the kind that carries the row alone at the least price.
fn start_columns(rows: &[Row], kinds: &[Kind]) -> Option<Vec<Column>> {
    rows.iter()
        .enumerate()
        .map(|(index, row)| {
            let mut best: Option<(f64, usize, u32)> = None;
            for (position, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.takes(row)) {
                let room = row.exclusion.map_or(u32::MAX, |(_, cap)| cap);
                let count = knapsack::copies(&kind.free, &row.requests, row.count.min(row.cap).min(room));
                if count > 0 {
                    let unit = kind.price / f64::from(count);
                    if best.is_none_or(|best| unit < best.0) {
                        best = Some((unit, position, count));
                    }
                }
            }
            best.map(|(_, position, count)| Column {
                price: kinds[position].price,
                entries: vec![(index as u32, f64::from(count))],
                tag: position as u32,
            })
        })
        .collect()
}

struct Fluid {
    weights: [f64; DIMENSIONS_MAX],
    bound: f64,
}

impl Fluid {
    /// The cheapest mix of kinds that has at least the total of every resource.
    fn solve(rows: &[Row], kinds: &[Kind]) -> Self {
        let mut totals = [0.0; DIMENSIONS_MAX];
        for row in rows {
            for dimension in 0..DIMENSIONS_MAX {
                totals[dimension] += row.requests[dimension] as f64 * f64::from(row.count);
            }
        }
        let used: Vec<usize> = (0..DIMENSIONS_MAX).filter(|dimension| totals[*dimension] > 0.0).collect();
        // Shares of the total keep cpu and bytes on one scale.
        let share = |kind: &Kind, dimension: usize| kind.free[dimension].max(0) as f64 / totals[dimension];
        let start: Option<Vec<Column>> = used
            .iter()
            .enumerate()
            .map(|(row, dimension)| {
                let best = kinds.iter().filter(|kind| kind.free[*dimension] > 0).min_by(|a, b| {
                    (a.price / share(a, *dimension)).total_cmp(&(b.price / share(b, *dimension)))
                })?;
                Some(Column {
                    price: best.price,
                    entries: vec![(row as u32, share(best, *dimension))],
                    tag: 0,
                })
            })
            .collect();
        let mut weights = [0.0; DIMENSIONS_MAX];
        let Some(start) = start.filter(|start| !start.is_empty()) else {
            return Self { weights, bound: 0.0 };
        };
        let mut master = Master::new(vec![1.0; used.len()], start);
        for _ in 0..200 {
            let entries = |kind: &Kind| -> Vec<(u32, f64)> {
                used.iter()
                    .enumerate()
                    .map(|(row, dimension)| (row as u32, share(kind, *dimension)))
                    .collect()
            };
            let mut best: Option<(f64, usize)> = None;
            for (index, kind) in kinds.iter().enumerate() {
                let worth: f64 = used
                    .iter()
                    .enumerate()
                    .map(|(row, dimension)| master.duals[row] * share(kind, *dimension))
                    .sum();
                let ratio = worth / kind.price;
                if best.is_none_or(|best| ratio > best.0) {
                    best = Some((ratio, index));
                }
            }
            let Some((_, index)) = best else { break };
            let entered =
                master.enter(Column { price: kinds[index].price, entries: entries(&kinds[index]), tag: 0 });
            master.drop_negative_duals();
            if !entered {
                break;
            }
        }
        for (row, dimension) in used.iter().enumerate() {
            weights[*dimension] = master.duals[row].max(0.0) / totals[*dimension];
        }
        // Scaled so that no kind is worth more than it costs: then the bound holds whatever rounding did.
        let worst = kinds
            .iter()
            .map(|kind| knapsack::weigh(&weights, &kind.free.map(|amount| amount.max(0))) / kind.price)
            .fold(0.0, f64::max);
        if worst > 1.0 {
            weights.iter_mut().for_each(|weight| *weight /= worst);
        }
        let bound = (0..DIMENSIONS_MAX).map(|dimension| weights[dimension] * totals[dimension]).sum();
        Self { weights, bound }
    }
}

/// Farley's bound: the value of all pods at these duals, scaled down until no kind can hold more than it costs.
pub(crate) fn farley(
    rows: &[Row],
    kinds: &[Kind],
    duals: &[f64],
    fluid: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let total: f64 = rows.iter().zip(duals).map(|(row, dual)| dual * f64::from(row.count)).sum();
    let shared = shared_orders(rows, duals, fluid);
    let mut cheap: Vec<(f64, usize)> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let bounds = shared.iter().map(|order| knapsack::upper_bound(rows, duals, order, kind));
            (bounds.fold(f64::MAX, f64::min) / kind.price, index)
        })
        .collect();
    scratch.work += (rows.len() * kinds.len() * 3) as u64;
    // Only kinds that look worse than the worst one known need a sharper look.
    cheap.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut worst: f64 = 0.0;
    for (ratio, index) in cheap {
        if ratio <= worst {
            break;
        }
        let kind = &kinds[index];
        let mut bound = ratio * kind.price;
        if ratio > 1.0 {
            bound = bound.min(sharpen(rows, duals, kind, fluid, bound, scratch));
        }
        if bound / kind.price > worst.max(1.0) {
            bound = bound.min(exact(rows, duals, kind, &shared[0], exact_nodes, scratch));
        }
        worst = worst.max(bound / kind.price);
    }
    if worst <= 0.0 { 0.0 } else { total / worst }
}

/// The most valuable filling of a kind, if a bounded search can prove it; otherwise nothing is known.
fn exact(rows: &[Row], duals: &[f64], kind: &Kind, order: &Order, nodes: u64, scratch: &mut Scratch) -> f64 {
    let bounds: Vec<_> = [order.weights, inverse_weights(kind, &order.weights)]
        .into_iter()
        .map(|weights| (weights, knapsack::suffix_density(rows, duals, &order.rows, &weights)))
        .collect();
    let counts: Vec<u32> = rows.iter().map(|row| row.count).collect();
    let search = Search {
        rows,
        values: duals,
        remaining: &counts,
        kind,
        order: &order.rows,
        bounds: &bounds,
        complete: std::cell::Cell::new(false),
    };
    let value = search.run(scratch, nodes, &mut Pattern::new(), kind.price);
    // Rounding inside the search may hide improvements of one part in 10^9.
    if search.complete.get() { value.max(kind.price) * (1.0 + 1e-8) } else { f64::MAX }
}

/// Moves the resource weights of a kind towards the least upper bound, one resource at a time.
fn sharpen(
    rows: &[Row],
    duals: &[f64],
    kind: &Kind,
    fluid: &[f64; DIMENSIONS_MAX],
    mut best: f64,
    scratch: &mut Scratch,
) -> f64 {
    let mut weights = *fluid;
    let mut evaluate = |weights: [f64; DIMENSIONS_MAX]| {
        scratch.work += rows.len() as u64 * 2;
        knapsack::upper_bound(rows, duals, &Order::new(rows, duals, weights, |_| true), kind)
    };
    let own = inverse_weights(kind, fluid);
    let with_own = evaluate(own);
    if with_own < best {
        best = with_own;
        weights = own;
    }
    let mut factor = 2.0;
    while factor > 1.02 {
        let mut improved = false;
        for dimension in 0..DIMENSIONS_MAX {
            if weights[dimension] == 0.0 {
                continue;
            }
            for candidate in [weights[dimension] * factor, weights[dimension] / factor] {
                let mut trial = weights;
                trial[dimension] = candidate;
                let bound = evaluate(trial);
                if bound < best - 1e-12 {
                    best = bound;
                    weights = trial;
                    improved = true;
                    break;
                }
            }
        }
        if !improved {
            factor = f64::sqrt(factor);
        }
    }
    best
}
