//! The linear relaxation of a packing problem, solved by column generation: dual prices of the rows, a lower
//! bound, and the columns of a good fleet.
//!
//! The lower bound is the higher of two: the bound of the resource relaxation, in which pods are divisible,
//! and Farley's bound from the dual prices with fractional columns, in which a row counts at most as often as
//! it fits alone.

use std::collections::BTreeSet;

use super::knapsack::{self, Order, PodCounts, Scratch, Search};
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, representatives};
use super::simplex::{Column, Master};
use super::{grid, tables};

pub(crate) struct Relaxation {
    pub(crate) duals: Vec<f64>,
    pub(crate) lower_bound: f64,
    /// The objective of the restricted master problem. No fleet of the known columns costs less; other
    /// columns may exist.
    pub(crate) objective: f64,
    /// The objective if the program was solved to optimality, else the lower bound. Not proved.
    pub(crate) estimate: f64,
    /// (kind, pods, how often)
    pub(crate) columns: Vec<(usize, PodCounts, f64)>,
    /// The price of one unit of each resource in the resource relaxation.
    pub(crate) resource_prices: [f64; DIMENSIONS_MAX],
}

/// Limits of the search. All are counts, none is a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) search_nodes: u64,
    /// How often every kind is searched after the heuristics find no more columns.
    pub(crate) deep_passes: usize,
    /// With more rows than this, the dual prices come from the resource relaxation only.
    pub(crate) rows_max: usize,
    /// Column generation stops after this much work.
    pub(crate) work_max: u64,
    /// Whether searches use tables, which prune more but take time to build.
    pub(crate) has_tables: bool,
    /// The maximum number of attempts to prove the bound with the exact pricing problem (`grid`).
    pub(crate) proofs: usize,
}

/// A search with tables may use this many times more search nodes.
const TABLE_SEARCH_NODES_FACTOR: u64 = 16;

/// If the heuristics lower the objective by less than `STALL_RATIO` in this many rounds, every kind is
/// searched.
const STALL_CHECK_ROUNDS: usize = 4;
/// The ratio of the objective after and before `STALL_CHECK_ROUNDS` rounds above which the heuristics have
/// stalled.
const STALL_RATIO: f64 = 0.998;

/// What is known about a relaxation before it is solved.
pub(crate) struct Hint {
    /// Approximate dual prices of the rows.
    pub(crate) duals: Vec<f64>,
    /// Columns that are likely to be in the optimal solution.
    pub(crate) columns: Vec<(usize, PodCounts)>,
}

/// Solves the relaxation. `None` if some row fits on no kind.
pub(crate) fn relax(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    relax_from(rows, kinds, effort, None, scratch)
}

/// As [`relax`], starting from a hint.
pub(crate) fn relax_from(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    hint: Option<Hint>,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    let resource_values = ResourceRelaxation::solve(rows, kinds);
    let start = start_columns(rows, kinds)?;
    let single_costs: Vec<f64> = start.iter().map(|column| column.price / column.entries[0].1).collect();
    let guided: Vec<f64> = rows
        .iter()
        .zip(&single_costs)
        .map(|(row, single)| {
            knapsack::weigh(&resource_values.weights, &row.requests).min(*single).max(single * 1e-6)
        })
        .collect();
    let mut best_bound = resource_values.bound;
    if rows.len() > effort.rows_max {
        best_bound = best_bound.max(farley_bound(rows, kinds, &guided, &resource_values.weights, 0, scratch));
        return Some(Relaxation {
            duals: guided,
            lower_bound: best_bound,
            objective: best_bound,
            estimate: best_bound,
            columns: vec![],
            resource_prices: resource_values.weights,
        });
    }
    let demand = rows.iter().map(|row| f64::from(row.count)).collect();
    let mut generation = Generation {
        rows,
        kinds,
        estimate: representatives(kinds),
        remaining: rows.iter().map(|row| row.count).collect(),
        known: BTreeSet::new(),
        generated: start
            .iter()
            .map(|column| (column.tag as usize, vec![(column.entries[0].0, column.entries[0].1 as u32)]))
            .collect(),
        pool: Vec::new(),
        ratios: vec![f64::MAX; kinds.len()],
        best_weights: vec![None; kinds.len()],
        table_prices: vec![None; kinds.len()],
        round: 0,
        priced_all_kinds: false,
        master: {
            let start = start
                .into_iter()
                .enumerate()
                .map(|(position, column)| Column { tag: position as u32, ..column });
            Master::new(demand, start.collect())
        },
        weights: resource_values.weights,
        effort,
    };
    // Where pods are small compared with nodes, the resource prices are nearly the dual prices: start with
    // the columns that they favour. A hint is closer still.
    let mut center = guided;
    if let Some(hint) = hint {
        center = hint.duals;
        hint.columns.into_iter().for_each(|(kind, pod_counts)| {
            generation.add_column(kind, pod_counts);
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
            if generation.priced_all_kinds && deep_passes > 0 && generation.search_every_kind(scratch) {
                deep_passes -= 1;
                continue;
            }
            if generation.priced_all_kinds {
                is_solved = true;
                break;
            }
            // No column pays among the kinds that were priced; price the others too before stopping.
            generation.ratios.iter_mut().for_each(|ratio| *ratio = f64::MAX);
            continue;
        }
        smoothing = if pivots == 0 || smoothing < 0.1 { 0.0 } else { smoothing * 0.9 };
        let mut objective = generation.master.objective();
        if round % STALL_CHECK_ROUNDS == STALL_CHECK_ROUNDS - 1 {
            if objective > objective_before * STALL_RATIO && deep_passes > 0 {
                generation.search_every_kind(scratch);
                deep_passes -= 1;
                objective = generation.master.objective();
            }
            objective_before = objective;
        }
        // Without smoothing the best ratio estimates the gap; Farley's bound proves it from time to time.
        if round % 16 == 15 || (smoothing == 0.0 && best_ratio < 1.002) {
            let duals = generation.clean_duals();
            let bound =
                farley_bound(rows, kinds, &duals, &resource_values.weights, effort.search_nodes, scratch);
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
    let final_bound =
        farley_bound(rows, kinds, &duals, &resource_values.weights, effort.search_nodes * 4, scratch);
    best_bound = best_bound.max(final_bound);
    let (duals, columns) = (generation.clean_duals(), generation.columns());
    let objective = generation.master.objective().max(best_bound);
    if effort.proofs > 0 {
        best_bound = generation.prove_bound(best_bound, scratch);
        let proven_bound = generation.columns();
        let is_there = |(row, count): &(u32, u32)| *count <= rows[*row as usize].count;
        if proven_bound.iter().all(|(_, pod_counts, _)| pod_counts.iter().all(is_there)) {
            let (duals, objective) = (generation.clean_duals(), generation.master.objective());
            let objective = objective.max(best_bound);
            let resource_prices = resource_values.weights;
            return Some(Relaxation {
                duals,
                lower_bound: best_bound,
                objective,
                estimate: objective,
                columns: proven_bound,
                resource_prices,
            });
        }
    }
    let estimate = if is_solved { objective } else { best_bound };
    let (lower_bound, resource_prices) = (best_bound, resource_values.weights);
    Some(Relaxation { duals, lower_bound, objective, estimate, columns, resource_prices })
}

/// The price of one unit of each resource in the resource relaxation.
pub(crate) fn resource_prices(rows: &[Row], kinds: &[NodeKind]) -> [f64; DIMENSIONS_MAX] {
    ResourceRelaxation::solve(rows, kinds).weights
}

/// The maximum number of columns in the pool; scanning more costs more than they save.
const POOL_MAX: usize = 3_000;

struct Generation<'a> {
    rows: &'a [Row],
    kinds: &'a [NodeKind],
    /// Kinds that represent all others during column generation; bounds use every kind.
    estimate: Vec<u32>,
    remaining: Vec<u32>,
    master: Master,
    /// Known columns, to avoid duplicates.
    known: BTreeSet<(usize, PodCounts)>,
    generated: Vec<(usize, PodCounts)>,
    pool: Vec<Column>,
    /// The best value per price of each kind when it was last priced.
    ratios: Vec<f64>,
    /// The resource weights that give the best upper bound for each kind, as far as known.
    best_weights: Vec<Option<[f64; DIMENSIONS_MAX]>>,
    /// The prices at which the tables give the best bound for each kind, as far as known.
    table_prices: Vec<Option<tables::Prices>>,
    round: usize,
    priced_all_kinds: bool,
    weights: [f64; DIMENSIONS_MAX],
    effort: Effort,
}

impl Generation<'_> {
    /// The columns in the current solution.
    fn columns(&self) -> Vec<(usize, PodCounts, f64)> {
        let used = self.master.solution().filter(|(column, _)| column.tag != u32::MAX);
        used.map(|(column, amount)| {
            let (kind, pod_counts) = &self.generated[column.tag as usize];
            (*kind, pod_counts.clone(), amount)
        })
        .collect()
    }

    fn clean_duals(&self) -> Vec<f64> {
        self.master.duals.iter().map(|dual| dual.max(0.0)).collect()
    }

    /// Adds good columns of every kind at these values to the pool; returns the best value per price.
    fn price_kinds(&mut self, values: &[f64], deeper: bool, scratch: &mut Scratch) -> f64 {
        let shared = shared_orders(self.rows, values, &self.weights);
        let by_value = knapsack::by_value(self.rows, values);
        let mut found: Vec<(f64, usize, PodCounts)> = Vec::new();
        let mut pod_counts = PodCounts::new();
        self.round += 1;
        self.priced_all_kinds = true;
        let estimate = self.ratios.iter().copied().filter(|r| *r < f64::MAX).fold(0.0, f64::max) * 0.9;
        for index in self.estimate.iter().map(|index| *index as usize) {
            let kind = &self.kinds[index];
            // Kinds that were far from paying are priced only every fourth round.
            if self.ratios[index] < estimate && !(index + self.round).is_multiple_of(4) {
                self.priced_all_kinds = false;
                continue;
            }
            self.ratios[index] = 0.0;
            let own = Order::new(self.rows, values, inverse_weights(kind, &self.weights), |_| true);
            for order in shared.iter().chain([&own]).map(|order| &order.rows).chain([&by_value]) {
                let value = knapsack::greedy(
                    self.rows,
                    values,
                    order,
                    kind,
                    &self.remaining,
                    scratch,
                    &mut pod_counts,
                );
                found.push((value / kind.price, index, pod_counts.clone()));
            }
            let value = knapsack::balanced(
                self.rows,
                values,
                &shared[0].rows,
                kind,
                &self.weights,
                &self.remaining,
                scratch,
                &mut pod_counts,
            );
            found.push((value / kind.price, index, pod_counts.clone()));
            let of_kind = found.iter().rev().take_while(|(_, known, _)| *known == index);
            self.ratios[index] = of_kind.map(|(ratio, _, _)| *ratio).fold(0.0, f64::max);
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
        if deeper {
            self.search_deeper(values, &shared[0], &mut found, scratch);
        }
        let best = found.first().map_or(0.0, |(ratio, _, _)| *ratio);
        for (ratio, index, pod_counts) in found {
            if ratio < best * 0.85 || self.pool.len() >= POOL_MAX || pod_counts.is_empty() {
                break;
            }
            self.add_column(index, pod_counts);
        }
        best
    }

    /// Solves the master problem over the pool. Returns the number of pivots.
    fn optimise(&mut self, scratch: &mut Scratch) -> usize {
        optimise(&mut self.master, &self.pool, scratch)
    }

    /// After the heuristics find no more columns: a bounded search of every kind that might still pay.
    /// Returns whether a column was found.
    fn search_every_kind(&mut self, scratch: &mut Scratch) -> bool {
        const COLUMNS_PER_ROUND_MAX: usize = 24;
        let values = self.clean_duals();
        let order = Order::new(self.rows, &values, self.weights, |_| true);
        let mut found = Vec::new();
        for index in self.estimate.iter().map(|index| *index as usize) {
            let kind = &self.kinds[index];
            scratch.work += self.rows.len() as u64;
            if knapsack::upper_bound(self.rows, &values, &order, kind) <= kind.price * 1.0005 {
                continue;
            }
            if self.effort.has_tables {
                let mut pod_counts = PodCounts::new();
                let known = self.table_prices[index];
                let beat = (kind.price * 1.0002, self.effort.search_nodes * TABLE_SEARCH_NODES_FACTOR);
                let (rows, remaining) = (self.rows, &self.remaining);
                let filled = tables::search_with_tables(
                    rows,
                    &values,
                    remaining,
                    kind,
                    known,
                    beat,
                    &mut pod_counts,
                    &mut scratch.work,
                );
                self.table_prices[index] = Some(filled.prices);
                if !pod_counts.is_empty() {
                    found.push((filled.value / kind.price, index, pod_counts));
                }
                continue;
            }
            let known = self.best_weights[index];
            let (bound, weights) = tighten_bound(self.rows, &values, kind, &self.weights, known, scratch);
            self.best_weights[index] = Some(weights);
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
            let (mut pod_counts, mut best) = (PodCounts::new(), kind.price * 1.0001);
            let mut column = PodCounts::new();
            let even = knapsack::balanced(
                self.rows,
                &values,
                &own.rows,
                kind,
                &own.weights,
                &self.remaining,
                scratch,
                &mut column,
            );
            if even > best {
                best = even;
                pod_counts.clone_from(&column);
            }
            let value = search.run(scratch, self.effort.search_nodes, &mut pod_counts, best);
            if !pod_counts.is_empty() {
                found.push((value / kind.price, index, pod_counts));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut any = false;
        for (_, index, pod_counts) in found.into_iter().take(COLUMNS_PER_ROUND_MAX) {
            any |= self.add_column(index, pod_counts);
        }
        any && self.optimise(scratch) > 0
    }

    /// Raises the bound as far as it can be proved, and adds the columns that violate it.
    fn prove_bound(&mut self, bound: f64, scratch: &mut Scratch) -> f64 {
        let mut best = bound;
        let mut center: Option<Vec<f64>> = None;
        for _ in 0..self.effort.proofs {
            let duals = self.clean_duals();
            // Every second attempt uses the middle between the dual prices and the best prices so far,
            // because dual prices oscillate.
            let (values, is_exact) = match center.take() {
                Some(center) => {
                    (duals.iter().zip(&center).map(|(dual, center)| 0.5 * (dual + center)).collect(), false)
                }
                None => (duals, true),
            };
            let (worst, found) = grid::columns(self.rows, &values, self.kinds);
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
            for (kind, pod_counts) in found {
                any |= self.add_column(kind, pod_counts);
            }
            if (!any || self.optimise(scratch) == 0) && is_exact {
                break;
            }
        }
        best
    }

    /// Adds a column to the pool unless it is known.
    fn add_column(&mut self, kind: usize, mut pod_counts: PodCounts) -> bool {
        pod_counts.sort_unstable();
        if !self.known.insert((kind, pod_counts.clone())) {
            return false;
        }
        let entries = pod_counts.iter().map(|(row, count)| (*row, f64::from(*count))).collect();
        let tag = self.generated.len() as u32;
        self.pool.push(Column { price: self.kinds[kind].price, entries, tag });
        self.generated.push((kind, pod_counts));
        true
    }

    /// Runs a bounded exact search for the most promising kinds.
    fn search_deeper(
        &self,
        values: &[f64],
        order: &Order,
        found: &mut [(f64, usize, PodCounts)],
        scratch: &mut Scratch,
    ) {
        const DEEP_SEARCHES_MAX: usize = 10;
        if self.effort.search_nodes == 0 {
            return;
        }
        for (ratio, index, pod_counts) in found.iter_mut().take(DEEP_SEARCHES_MAX) {
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
            let value = search.run(scratch, self.effort.search_nodes, pod_counts, *ratio * kind.price);
            *ratio = value / kind.price;
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
    }
}

/// Solves a master problem over a pool of columns. Returns the number of pivots.
pub(crate) fn optimise(master: &mut Master, pool: &[Column], scratch: &mut Scratch) -> usize {
    const PIVOTS_MAX: usize = 400;
    let rows = master.duals.len();
    for pivots in 0..PIVOTS_MAX {
        let mut best: Option<(f64, usize)> = None;
        for (position, column) in pool.iter().enumerate() {
            let gain = master.value_of(&column.entries) - column.price;
            // Gain per price finds good columns of every size; by gain alone large nodes would win.
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

/// Orders that suit most kinds: by resource prices, and by resource prices that emphasize one resource each.
pub(crate) fn shared_orders(rows: &[Row], values: &[f64], weights: &[f64; DIMENSIONS_MAX]) -> Vec<Order> {
    shared_orders_of(rows, values, weights, |_| true)
}

/// As [`shared_orders`], for some of the rows.
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

/// Weights each resource by its scarcity on the kind.
pub(crate) fn inverse_weights(
    kind: &NodeKind,
    resource_values: &[f64; DIMENSIONS_MAX],
) -> [f64; DIMENSIONS_MAX] {
    let mut weights = [0.0; DIMENSIONS_MAX];
    for dimension in 0..DIMENSIONS_MAX {
        if kind.free[dimension] > 0 {
            let share = resource_values[dimension] * kind.free[dimension] as f64 / kind.price;
            weights[dimension] = (0.25 + share) / kind.free[dimension] as f64;
        }
    }
    weights
}

/// One column per row: the kind that holds the row alone at the least price per pod.
fn start_columns(rows: &[Row], kinds: &[NodeKind]) -> Option<Vec<Column>> {
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

struct ResourceRelaxation {
    weights: [f64; DIMENSIONS_MAX],
    bound: f64,
}

impl ResourceRelaxation {
    /// The cheapest combination of kinds that has at least the total of every resource.
    fn solve(rows: &[Row], kinds: &[NodeKind]) -> Self {
        let mut totals = [0.0; DIMENSIONS_MAX];
        for row in rows {
            for (total, request) in totals.iter_mut().zip(&row.requests) {
                *total += *request as f64 * f64::from(row.count);
            }
        }
        let used: Vec<usize> = (0..DIMENSIONS_MAX).filter(|dimension| totals[*dimension] > 0.0).collect();
        // Shares of the total put cpu and bytes on one scale.
        let share =
            |kind: &NodeKind, dimension: usize| kind.free[dimension].max(0) as f64 / totals[dimension];
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
            let entries = |kind: &NodeKind| -> Vec<(u32, f64)> {
                used.iter()
                    .enumerate()
                    .map(|(row, dimension)| (row as u32, share(kind, *dimension)))
                    .collect()
            };
            let mut best: Option<(f64, usize)> = None;
            for (index, kind) in kinds.iter().enumerate() {
                let value: f64 = used
                    .iter()
                    .enumerate()
                    .map(|(row, dimension)| master.duals[row] * share(kind, *dimension))
                    .sum();
                let ratio = value / kind.price;
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
        // Scaled so that no kind is worth more than its price: then the bound holds despite rounding errors.
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

/// Farley's bound: the value of all pods at these dual prices, divided by the highest ratio of value to price
/// of any kind.
pub(crate) fn farley_bound(
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let total: f64 = rows.iter().zip(duals).map(|(row, dual)| dual * f64::from(row.count)).sum();
    let worst = max_value_ratio(rows, kinds, duals, resource_values, exact_nodes, scratch);
    if worst <= 0.0 { 0.0 } else { total / worst }
}

/// An upper bound for the ratio of value to price of every column, at these dual prices.
pub(crate) fn max_value_ratio(
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    max_value_ratio_with(0.0, rows, kinds, duals, resource_values, exact_nodes, scratch)
}

/// As [`max_value_ratio`], if every node also holds pods of the value `held`, for which capacity is already
/// deducted.
pub(crate) fn max_value_ratio_with(
    held: f64,
    rows: &[Row],
    kinds: &[NodeKind],
    duals: &[f64],
    resource_values: &[f64; DIMENSIONS_MAX],
    exact_nodes: u64,
    scratch: &mut Scratch,
) -> f64 {
    let shared = shared_orders(rows, duals, resource_values);
    let mut cheap: Vec<(f64, usize)> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let bounds = shared.iter().map(|order| knapsack::upper_bound(rows, duals, order, kind));
            ((held + bounds.fold(f64::MAX, f64::min)) / kind.price, index)
        })
        .collect();
    scratch.work += (rows.len() * kinds.len() * 3) as u64;
    // Only kinds whose bound exceeds the current maximum need a tighter bound.
    cheap.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut worst: f64 = 0.0;
    for (ratio, index) in cheap {
        if ratio <= worst {
            break;
        }
        let kind = &kinds[index];
        let mut bound = ratio * kind.price;
        if ratio > 1.0 {
            let (sharper, weights) = tighten_bound(rows, duals, kind, resource_values, None, scratch);
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

/// The maximum value of a column of the kind, or `least` if no column is value more, if a bounded search can
/// prove it; `f64::MAX` otherwise.
#[expect(clippy::too_many_arguments, reason = "one call site, which has all arguments")]
fn exact(
    rows: &[Row],
    duals: &[f64],
    kind: &NodeKind,
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
    let value = search.run(scratch, nodes, &mut PodCounts::new(), least);
    // Rounding inside the search may hide improvements of one part in 10^9.
    if search.complete.get() { value.max(least) * (1.0 + 1e-8) } else { f64::MAX }
}

/// Adjusts the resource weights of a kind to lower its upper bound, one resource at a time.
fn tighten_bound(
    rows: &[Row],
    duals: &[f64],
    kind: &NodeKind,
    resource_values: &[f64; DIMENSIONS_MAX],
    start: Option<[f64; DIMENSIONS_MAX]>,
    scratch: &mut Scratch,
) -> (f64, [f64; DIMENSIONS_MAX]) {
    let mut evaluate = |weights: &[f64; DIMENSIONS_MAX]| {
        scratch.work += rows.len() as u64 * 2;
        knapsack::upper_bound(rows, duals, &Order::new(rows, duals, *weights, |_| true), kind)
    };
    // Every resource of the kind gets a weight, even if its price is zero.
    let mut factor = if start.is_some() { 1.4 } else { 4.0 };
    let mut weights = start.unwrap_or_else(|| inverse_weights(kind, resource_values));
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

    /// Pods of 7, 5 and 3 never fill a node of 16: one sixteenth stays empty. The resource relaxation cannot
    /// see that.
    fn awkward() -> (Vec<Row>, Vec<NodeKind>) {
        let rows = [(7, 300), (5, 200), (3, 100)].map(|(cpu, count)| {
            let mut requests = [0; DIMENSIONS_MAX];
            (requests[0], requests[1]) = (cpu, 1);
            Row { requests, demand: 0, count, cap: u32::MAX, exclusion: None }
        });
        let mut demands = Bits::empty(1);
        demands.insert(0);
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1]) = (16, 100);
        let kind = NodeKind { template: 0, instance_type: 0, free, price: 1.0, demands, is_spot: false };
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
    fn proven_bound_accounts_for_whole_pods() {
        let (rows, kinds) = awkward();
        let total = f64::from(300 * 7 + 200 * 5 + 100 * 3);
        let quick = relax(&rows, &kinds, effort(false, 0), &mut Scratch::default()).unwrap();
        assert!(quick.lower_bound < total / 16.0 * 1.01);
        let proven_bound = relax(&rows, &kinds, effort(true, 10), &mut Scratch::default()).unwrap();
        assert!(
            proven_bound.lower_bound > total / 15.0 * 0.999,
            "{} {}",
            proven_bound.lower_bound,
            total / 15.0
        );
        assert!(proven_bound.lower_bound <= proven_bound.objective + 1e-9);
        assert!(proven_bound.objective <= quick.objective + 1e-9);
    }
}
