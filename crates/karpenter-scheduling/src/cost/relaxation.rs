//! The linear relaxation of a packing problem by column generation: what each row is worth at the optimum (duals),
//! a cost no fleet can undercut, and the fillings a good fleet is made of.
//!
//! Two bounds are combined: the fluid bound (pods poured like water into nodes) and Farley's bound from the duals
//! with fractional fillings, in which a row counts at most as often as it fits alone.

use std::collections::BTreeSet;

use super::knapsack::{self, Order, Pattern, Scratch, Search};
use super::shapes::{DIMENSIONS_MAX, Kind, Row, representatives};
use super::simplex::{Column, Master};
use super::{grid, tables};

pub(crate) struct Relaxation {
    pub(crate) duals: Vec<f64>,
    pub(crate) lower_bound: f64,
    /// What its fillings cost together. No fleet made of these costs less; whether others exist is for the bound to say.
    pub(crate) objective: f64,
    /// The same where the program was solved as far as it can be; else the bound: what is left unsolved says nothing.
    pub(crate) likely: f64,
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
    /// How often every kind is searched once the quick fillers are at their end.
    pub(crate) deep_passes: usize,
    /// Above this many rows the duals come from the fluid bound alone.
    pub(crate) rows_max: usize,
    /// Column generation stops when this much work is done.
    pub(crate) work_max: u64,
    /// Whether searches are kept short by tables, which take time to make.
    pub(crate) has_tables: bool,
    /// How often, at most, the bound is proved by looking at everything that a node could hold.
    pub(crate) proofs: usize,
}

/// How many times more places a search looks at that tables keep short.
const NODES_PER_TABLES: u64 = 16;

/// Quick fillers that bring less than this in so many rounds are at their end, although they go on finding trifles.
const STALL_ROUNDS: usize = 4;
const STALLED: f64 = 0.998;

/// What is known of a relaxation before it is solved.
pub(crate) struct Hint {
    /// About what the rows are worth.
    pub(crate) duals: Vec<f64>,
    /// Fillings that are likely to be among the best.
    pub(crate) fillings: Vec<(usize, Pattern)>,
}

/// Solves the relaxation. `None` if some row fits on no kind.
pub(crate) fn relax(
    rows: &[Row],
    kinds: &[Kind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    relax_from(rows, kinds, effort, None, scratch)
}

/// The same from what is known already.
pub(crate) fn relax_from(
    rows: &[Row],
    kinds: &[Kind],
    effort: Effort,
    hint: Option<Hint>,
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
            objective: best_bound,
            likely: best_bound,
            columns: vec![],
            fluid_weights: fluid.weights,
        });
    }
    let demand = rows.iter().map(|row| f64::from(row.count)).collect();
    let mut generation = Generation {
        rows,
        kinds,
        likely: representatives(kinds),
        remaining: rows.iter().map(|row| row.count).collect(),
        known: BTreeSet::new(),
        patterns: start
            .iter()
            .map(|column| (column.tag as usize, vec![(column.entries[0].0, column.entries[0].1 as u32)]))
            .collect(),
        pool: Vec::new(),
        ratios: vec![f64::MAX; kinds.len()],
        sharpened: vec![None; kinds.len()],
        table_prices: vec![None; kinds.len()],
        round: 0,
        looked_at_all: false,
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
    // The fluid prices are nearly right wherever pods are small against nodes: begin with the fillings they favour.
    // What is known beforehand is nearer still.
    let mut center = guided;
    if let Some(hint) = hint {
        center = hint.duals;
        hint.fillings.into_iter().for_each(|(kind, pattern)| {
            generation.keep(kind, pattern);
        });
    }
    generation.price_kinds(&center, false, scratch);
    generation.optimise(scratch);
    let mut smoothing = 0.5;
    let mut deep_passes = effort.deep_passes;
    let mut objective_before = f64::MAX;
    let work_end = scratch.work + effort.work_max;
    let mut is_solved = false;
    for round in 0..effort.rounds {
        if scratch.work > work_end {
            break;
        }
        let exact = generation.clean_duals();
        let values: Vec<f64> = exact
            .iter()
            .zip(&center)
            .map(|(exact, center)| smoothing * center + (1.0 - smoothing) * exact)
            .collect();
        let best_ratio = generation.price_kinds(&values, smoothing == 0.0, scratch);
        let pivots = generation.optimise(scratch);
        if pivots == 0 && smoothing == 0.0 {
            if generation.looked_at_all && deep_passes > 0 && generation.search_all(scratch) {
                deep_passes -= 1;
                continue;
            }
            if generation.looked_at_all {
                is_solved = true;
                break;
            }
            // Nothing pays among the likely kinds: the others must confirm it.
            generation.ratios.iter_mut().for_each(|ratio| *ratio = f64::MAX);
            continue;
        }
        smoothing = if pivots == 0 || smoothing < 0.1 { 0.0 } else { smoothing * 0.9 };
        let mut objective = generation.master.objective();
        if round % STALL_ROUNDS == STALL_ROUNDS - 1 {
            if objective > objective_before * STALLED && deep_passes > 0 {
                generation.search_all(scratch);
                deep_passes -= 1;
                objective = generation.master.objective();
            }
            objective_before = objective;
        }
        // Without smoothing the found ratio estimates the gap; proving it is left to Farley's bound now and then.
        if round % 16 == 15 || (smoothing == 0.0 && best_ratio < 1.002) {
            let duals = generation.clean_duals();
            let bound = farley(rows, kinds, &duals, &fluid.weights, effort.search_nodes, scratch);
            if bound > best_bound {
                best_bound = bound;
                center = duals;
            }
            if objective <= best_bound * 1.0005 {
                is_solved = true;
                break;
            }
        }
    }
    let duals = generation.clean_duals();
    let final_bound = farley(rows, kinds, &duals, &fluid.weights, effort.search_nodes * 4, scratch);
    best_bound = best_bound.max(final_bound);
    let (duals, columns) = (generation.clean_duals(), generation.columns());
    let objective = generation.master.objective().max(best_bound);
    if effort.proofs > 0 {
        best_bound = generation.prove(best_bound, scratch);
        let proved = generation.columns();
        let is_there = |(row, count): &(u32, u32)| *count <= rows[*row as usize].count;
        if proved.iter().all(|(_, pattern, _)| pattern.iter().all(is_there)) {
            let (duals, objective) = (generation.clean_duals(), generation.master.objective());
            let objective = objective.max(best_bound);
            let fluid_weights = fluid.weights;
            return Some(Relaxation {
                duals,
                lower_bound: best_bound,
                objective,
                likely: objective,
                columns: proved,
                fluid_weights,
            });
        }
    }
    let likely = if is_solved { objective } else { best_bound };
    let (lower_bound, fluid_weights) = (best_bound, fluid.weights);
    Some(Relaxation { duals, lower_bound, objective, likely, columns, fluid_weights })
}

/// Price of each resource unit at the fluid optimum.
pub(crate) fn fluid_weights(rows: &[Row], kinds: &[Kind]) -> [f64; DIMENSIONS_MAX] {
    Fluid::solve(rows, kinds).weights
}

/// Fillings kept for re-use; more would cost more to look through than they bring.
const POOL_MAX: usize = 3_000;

struct Generation<'a> {
    rows: &'a [Row],
    kinds: &'a [Kind],
    /// Kinds that stand for all of them while columns are generated; bounds look at every kind.
    likely: Vec<u32>,
    remaining: Vec<u32>,
    master: Master,
    /// Fillings seen so far, so that none is kept twice.
    known: BTreeSet<(usize, Pattern)>,
    patterns: Vec<(usize, Pattern)>,
    pool: Vec<Column>,
    /// Best worth per price each kind had when last looked at.
    ratios: Vec<f64>,
    /// The resource weights under which each kind's content is bounded best, as far as known.
    sharpened: Vec<Option<[f64; DIMENSIONS_MAX]>>,
    /// The prices at which tables bound each kind's content best, as far as known.
    table_prices: Vec<Option<tables::Prices>>,
    round: usize,
    looked_at_all: bool,
    weights: [f64; DIMENSIONS_MAX],
    effort: Effort,
}

impl Generation<'_> {
    /// The fillings in use.
    fn columns(&self) -> Vec<(usize, Pattern, f64)> {
        let used = self.master.solution().filter(|(column, _)| column.tag != u32::MAX);
        used.map(|(column, amount)| {
            let (kind, pattern) = &self.patterns[column.tag as usize];
            (*kind, pattern.clone(), amount)
        })
        .collect()
    }

    fn clean_duals(&self) -> Vec<f64> {
        self.master.duals.iter().map(|dual| dual.max(0.0)).collect()
    }

    /// Adds the good fillings of every kind at these values to the pool; returns the best worth per price.
    fn price_kinds(&mut self, values: &[f64], deeper: bool, scratch: &mut Scratch) -> f64 {
        let shared = shared_orders(self.rows, values, &self.weights);
        let by_value = knapsack::by_value(self.rows, values);
        let mut found: Vec<(f64, usize, Pattern)> = Vec::new();
        let mut pattern = Pattern::new();
        self.round += 1;
        self.looked_at_all = true;
        let likely = self.ratios.iter().copied().filter(|r| *r < f64::MAX).fold(0.0, f64::max) * 0.9;
        for index in self.likely.iter().map(|index| *index as usize) {
            let kind = &self.kinds[index];
            // Kinds that were far from paying are looked at only now and then.
            if self.ratios[index] < likely && !(index + self.round).is_multiple_of(4) {
                self.looked_at_all = false;
                continue;
            }
            self.ratios[index] = 0.0;
            let own = Order::new(self.rows, values, inverse_weights(kind, &self.weights), |_| true);
            for order in shared.iter().chain([&own]).map(|order| &order.rows).chain([&by_value]) {
                let value =
                    knapsack::greedy(self.rows, values, order, kind, &self.remaining, scratch, &mut pattern);
                found.push((value / kind.price, index, pattern.clone()));
            }
            let value = knapsack::balanced(
                self.rows,
                values,
                &shared[0].rows,
                kind,
                &self.weights,
                &self.remaining,
                scratch,
                &mut pattern,
            );
            found.push((value / kind.price, index, pattern.clone()));
            let of_kind = found.iter().rev().take_while(|(_, known, _)| *known == index);
            self.ratios[index] = of_kind.map(|(ratio, _, _)| *ratio).fold(0.0, f64::max);
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
        if deeper {
            self.search_deeper(values, &shared[0], &mut found, scratch);
        }
        let best = found.first().map_or(0.0, |(ratio, _, _)| *ratio);
        for (ratio, index, pattern) in found {
            if ratio < best * 0.85 || self.pool.len() >= POOL_MAX || pattern.is_empty() {
                break;
            }
            self.keep(index, pattern);
        }
        best
    }

    /// Solves the master over the pool. Returns the number of pivots.
    fn optimise(&mut self, scratch: &mut Scratch) -> usize {
        optimise(&mut self.master, &self.pool, scratch)
    }

    /// When the quick fillers find nothing more: a bounded search on every kind that might still pay. Returns whether
    /// something was found.
    fn search_all(&mut self, scratch: &mut Scratch) -> bool {
        const FOUND_MAX: usize = 24;
        let values = self.clean_duals();
        let order = Order::new(self.rows, &values, self.weights, |_| true);
        let mut found = Vec::new();
        for index in self.likely.iter().map(|index| *index as usize) {
            let kind = &self.kinds[index];
            scratch.work += self.rows.len() as u64;
            if knapsack::upper_bound(self.rows, &values, &order, kind) <= kind.price * 1.0005 {
                continue;
            }
            if self.effort.has_tables {
                let mut pattern = Pattern::new();
                let known = self.table_prices[index];
                let beat = (kind.price * 1.0002, self.effort.search_nodes * NODES_PER_TABLES);
                let (rows, remaining) = (self.rows, &self.remaining);
                let filled = tables::fill(
                    rows,
                    &values,
                    remaining,
                    kind,
                    known,
                    beat,
                    &mut pattern,
                    &mut scratch.work,
                );
                self.table_prices[index] = Some(filled.prices);
                if !pattern.is_empty() {
                    found.push((filled.value / kind.price, index, pattern));
                }
                continue;
            }
            let known = self.sharpened[index];
            let (bound, weights) = sharpen(self.rows, &values, kind, &self.weights, known, scratch);
            self.sharpened[index] = Some(weights);
            if bound <= kind.price * 1.0005 {
                continue;
            }
            let own = Order::new(self.rows, &values, weights, |_| true);
            let bounds: Vec<_> = [order.weights, own.weights]
                .into_iter()
                .map(|weights| (weights, knapsack::suffix_density(self.rows, &values, &own.rows, &weights)))
                .collect();
            let search = Search {
                rows: self.rows,
                values: &values,
                remaining: &self.remaining,
                kind,
                order: &own.rows,
                bounds: &bounds,
                complete: std::cell::Cell::new(false),
            };
            let (mut pattern, mut best) = (Pattern::new(), kind.price * 1.0001);
            let mut filling = Pattern::new();
            let even = knapsack::balanced(
                self.rows,
                &values,
                &own.rows,
                kind,
                &own.weights,
                &self.remaining,
                scratch,
                &mut filling,
            );
            if even > best {
                best = even;
                pattern.clone_from(&filling);
            }
            let value = search.run(scratch, self.effort.search_nodes, &mut pattern, best);
            if !pattern.is_empty() {
                found.push((value / kind.price, index, pattern));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut any = false;
        for (_, index, pattern) in found.into_iter().take(FOUND_MAX) {
            any |= self.keep(index, pattern);
        }
        any && self.optimise(scratch) > 0
    }

    /// Raises the bound as far as it can be proved, and adds the fillings that stand against it.
    fn prove(&mut self, bound: f64, scratch: &mut Scratch) -> f64 {
        let mut best = bound;
        let mut center: Option<Vec<f64>> = None;
        for _ in 0..self.effort.proofs {
            let duals = self.clean_duals();
            // Every second time half way to the best prices so far: prices jump from one end to the other otherwise.
            let (values, is_exact) = match center.take() {
                Some(center) => {
                    (duals.iter().zip(&center).map(|(dual, center)| 0.5 * (dual + center)).collect(), false)
                }
                None => (duals, true),
            };
            let (worst, found) = grid::fillings(self.rows, &values, self.kinds);
            let total: f64 =
                self.rows.iter().zip(&values).map(|(row, value)| value * f64::from(row.count)).sum();
            if worst > 0.0 && total / worst > best {
                best = total / worst;
            }
            if is_exact {
                center = Some(values.iter().map(|value| value / worst.max(1.0)).collect());
            }
            if self.master.objective() <= best * 1.0003 {
                break;
            }
            let mut any = false;
            for (kind, pattern) in found {
                any |= self.keep(kind, pattern);
            }
            if (!any || self.optimise(scratch) == 0) && is_exact {
                break;
            }
        }
        best
    }

    /// Adds a filling to the pool unless it is already known.
    fn keep(&mut self, kind: usize, mut pattern: Pattern) -> bool {
        pattern.sort_unstable();
        if !self.known.insert((kind, pattern.clone())) {
            return false;
        }
        let entries = pattern.iter().map(|(row, count)| (*row, f64::from(*count))).collect();
        let tag = self.patterns.len() as u32;
        self.pool.push(Column { price: self.kinds[kind].price, entries, tag });
        self.patterns.push((kind, pattern));
        true
    }

    /// The most promising kinds get a bounded exact search.
    fn search_deeper(
        &self,
        values: &[f64],
        order: &Order,
        found: &mut [(f64, usize, Pattern)],
        scratch: &mut Scratch,
    ) {
        const DEEP_FILLINGS: usize = 10;
        if self.effort.search_nodes == 0 {
            return;
        }
        for (ratio, index, pattern) in found.iter_mut().take(DEEP_FILLINGS) {
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
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
    }
}

/// Solves a master over a pool of columns. Returns the number of pivots.
pub(crate) fn optimise(master: &mut Master, pool: &[Column], scratch: &mut Scratch) -> usize {
    const PIVOTS_MAX: usize = 400;
    let rows = master.duals.len();
    for pivots in 0..PIVOTS_MAX {
        let mut best: Option<(f64, usize)> = None;
        for (position, column) in pool.iter().enumerate() {
            let gain = master.value_of(&column.entries) - column.price;
            // Gain per price finds good columns of every size, large nodes would win otherwise.
            let gain = gain / column.price;
            if gain > 1e-7 && best.is_none_or(|best| gain > best.0) {
                best = Some((gain, position));
            }
        }
        scratch.work += pool.len() as u64 / 2 + (rows * rows) as u64 / 16;
        let entered = best.is_some_and(|(_, position)| master.enter(pool[position].clone()));
        master.drop_negative_duals();
        if !entered {
            return pivots;
        }
    }
    PIVOTS_MAX
}

/// Orders that suit most kinds: fluid prices, and fluid prices leaning to one resource each.
pub(crate) fn shared_orders(rows: &[Row], values: &[f64], weights: &[f64; DIMENSIONS_MAX]) -> Vec<Order> {
    shared_orders_of(rows, values, weights, |_| true)
}

/// The same over some of the rows.
pub(crate) fn shared_orders_of(
    rows: &[Row],
    values: &[f64],
    weights: &[f64; DIMENSIONS_MAX],
    present: impl Fn(usize) -> bool,
) -> Vec<Order> {
    let mut orders = vec![Order::new(rows, values, *weights, &present)];
    let active: Vec<usize> = (0..2).filter(|dimension| weights[*dimension] > 0.0).collect();
    if active.len() > 1 {
        for favoured in active {
            let mut leaning = *weights;
            leaning[favoured] *= 4.0;
            orders.push(Order::new(rows, values, leaning, &present));
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
            for (total, request) in totals.iter_mut().zip(&row.requests) {
                *total += *request as f64 * f64::from(row.count);
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
    let worst = worst_ratio(rows, kinds, duals, fluid, exact_nodes, scratch);
    if worst <= 0.0 { 0.0 } else { total / worst }
}

/// No kind can hold more than this many times its price, at these values of the pods.
pub(crate) fn worst_ratio(
    rows: &[Row],
    kinds: &[Kind],
    duals: &[f64],
    fluid: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    worst_ratio_beside(0.0, rows, kinds, duals, fluid, exact_nodes, scratch)
}

/// The same where every node holds something of the value `held` in any case, for which there is room already.
pub(crate) fn worst_ratio_beside(
    held: f64,
    rows: &[Row],
    kinds: &[Kind],
    duals: &[f64],
    fluid: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let shared = shared_orders(rows, duals, fluid);
    let mut cheap: Vec<(f64, usize)> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let bounds = shared.iter().map(|order| knapsack::upper_bound(rows, duals, order, kind));
            ((held + bounds.fold(f64::MAX, f64::min)) / kind.price, index)
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
            let (sharper, weights) = sharpen(rows, duals, kind, fluid, None, scratch);
            bound = bound.min(held + sharper);
            if bound / kind.price > worst.max(1.0) {
                let order = Order::new(rows, duals, weights, |_| true);
                let least = (kind.price - held).max(0.0);
                let most = exact(rows, duals, kind, least, &order, &shared[0], exact_nodes, scratch);
                bound = bound.min(held + most);
            }
        }
        worst = worst.max(bound / kind.price);
    }
    worst
}

/// The most valuable filling of a kind, or `least` if none is worth more, if a bounded search can prove it; otherwise
/// nothing is known.
#[expect(clippy::too_many_arguments, reason = "one call site; the parts are at hand there")]
fn exact(
    rows: &[Row],
    duals: &[f64],
    kind: &Kind,
    least: f64,
    order: &Order,
    other: &Order,
    nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let bounds: Vec<_> = [order.weights, other.weights]
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
    let value = search.run(scratch, nodes, &mut Pattern::new(), least);
    // Rounding inside the search may hide improvements of one part in 10^9.
    if search.complete.get() { value.max(least) * (1.0 + 1e-8) } else { f64::MAX }
}

/// Moves the resource weights of a kind towards the least upper bound, one resource at a time.
fn sharpen(
    rows: &[Row],
    duals: &[f64],
    kind: &Kind,
    fluid: &[f64; DIMENSIONS_MAX],
    start: Option<[f64; DIMENSIONS_MAX]>,
    scratch: &mut Scratch,
) -> (f64, [f64; DIMENSIONS_MAX]) {
    let mut evaluate = |weights: &[f64; DIMENSIONS_MAX]| {
        scratch.work += rows.len() as u64 * 2;
        knapsack::upper_bound(rows, duals, &Order::new(rows, duals, *weights, |_| true), kind)
    };
    // Every resource the kind has must be able to matter, also those that cost nothing on the whole.
    let mut factor = if start.is_some() { 1.4 } else { 4.0 };
    let mut weights = start.unwrap_or_else(|| inverse_weights(kind, fluid));
    let mut best = evaluate(&weights);
    while factor > 1.05 {
        let mut improved = false;
        for dimension in 0..DIMENSIONS_MAX {
            if weights[dimension] == 0.0 {
                continue;
            }
            for candidate in [weights[dimension] * factor, weights[dimension] / factor] {
                let mut trial = weights;
                trial[dimension] = candidate;
                let bound = evaluate(&trial);
                if bound < best * (1.0 - 1e-9) {
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
    (best, weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;

    /// Pods of 7, 5 and 3 fill no node of 16: a sixteenth stays empty whatever is done, and nothing that pours pods
    /// like water knows.
    fn awkward() -> (Vec<Row>, Vec<Kind>) {
        let rows = [(7, 300), (5, 200), (3, 100)].map(|(cpu, count)| {
            let mut requests = [0; DIMENSIONS_MAX];
            (requests[0], requests[1]) = (cpu, 1);
            Row { requests, demand: 0, count, cap: u32::MAX, exclusion: None }
        });
        let mut demands = Bits::empty(1);
        demands.insert(0);
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1]) = (16, 100);
        let kind = Kind { template: 0, instance_type: 0, free, price: 1.0, demands, is_spot: false };
        (rows.to_vec(), vec![kind])
    }

    fn effort(has_tables: bool, proofs: usize) -> Effort {
        Effort {
            rounds: 40,
            search_nodes: 0,
            deep_passes: 10,
            rows_max: 100,
            work_max: 1_000_000,
            has_tables,
            proofs,
        }
    }

    #[test]
    fn a_proof_knows_that_pods_are_whole() {
        let (rows, kinds) = awkward();
        let total = f64::from(300 * 7 + 200 * 5 + 100 * 3);
        let quick = relax(&rows, &kinds, effort(false, 0), &mut Scratch::default()).unwrap();
        assert!(quick.lower_bound < total / 16.0 * 1.01);
        let proved = relax(&rows, &kinds, effort(true, 10), &mut Scratch::default()).unwrap();
        assert!(proved.lower_bound > total / 15.0 * 0.999, "{} {}", proved.lower_bound, total / 15.0);
        assert!(proved.lower_bound <= proved.objective + 1e-9);
        assert!(proved.objective <= quick.objective + 1e-9);
    }
}
