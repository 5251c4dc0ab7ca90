//! Column generation for the relaxation with whole pods: solves the linear program with few columns (each the pods of
//! one node) and adds columns that lower its cost.
//!
//! Every round solves the pricing problem of all node kinds: which pods of one node are worth more than the node costs?
//! It uses dual prices between those of the linear program with the current columns (the master problem) and those of
//! the best bound. If even with divisible pods (`fractional`) the best node of a kind is worth less than its price, no
//! column of that kind lowers the cost. The other kinds are searched (`pricing`), and the columns found enter the
//! master problem.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fractional::{FractionalNode, Scaled};
use super::grid;
use super::knapsack::{PodCounts, Scratch};
use super::pricing::Pricing;
use super::relaxation::Effort;
use super::shapes::{NodeKind, Row, representatives};
use super::simplex::{Column, Master};
use super::smoothing::Smoothing;

/// A column (set of pods for one node) lowers the cost if the value of its pods exceeds its node's price by this
/// factor.
const PAYS_RATIO: f64 = 1.0001;
/// At the start, columns (sets of pods for one node) whose value is at least this share of their price, at the first
/// dual prices, are added, because they are likely in the solution.
const START_RATIO: f64 = 0.5;
/// Column generation ends when the objective is at most this multiple of the lower bound.
const CONVERGED_RATIO: f64 = 1.0002;
/// The initial number of search nodes per instance type and round.
const SEARCH_NODES: u64 = 60;
/// A search visits at most this multiple of the effort's `search_nodes`.
const LONG_SEARCH_FACTOR: u64 = 4;
/// If a round finds no column (set of pods for one node) that lowers the cost, the number of search nodes is multiplied
/// by this factor.
const SEARCH_NODES_FACTOR: u64 = 6;
const SMOOTHING: Range<f64> = 0.5..0.8;

/// The result of column generation.
pub(crate) struct Generated {
    pub(crate) duals: Vec<f64>,
    /// The dual prices that gave the best bound; they change less from round to round than those of the master problem.
    pub(crate) center: Vec<f64>,
    pub(crate) lower_bound: f64,
    pub(crate) objective: f64,
    pub(crate) columns: Vec<(usize, PodCounts, f64)>,
    /// Whether the searches were exhaustive and found no further column (set of pods for one node) that lowers the
    /// cost.
    pub(crate) is_solved: bool,
}

/// The result of one round of pricing over all instance types.
struct PricedKinds {
    /// An upper bound for the ratio of value to price of any column (set of pods for one node); `f64::MAX` if some
    /// instance types were not priced.
    at_most: f64,
    /// The highest ratio of value to price among the columns (sets of pods for one node) found; 0 if no column was
    /// found.
    best: f64,
    /// Whether a column (set of pods for one node) was found that is not yet in the pool.
    has_new: bool,
}

pub(crate) struct Generation<'a> {
    rows: &'a [Row],
    kinds: &'a [NodeKind],
    /// The instance types that are priced; each represents similar instance types that are not.
    priced: Vec<u32>,
    demand: Vec<f64>,
    scaled: Scaled,
    nodes: Vec<FractionalNode>,
    master: Master,
    known: BTreeSet<(usize, PodCounts)>,
    columns: Vec<(usize, PodCounts)>,
    pool: Vec<Column>,
    effort: Effort,
    search_nodes: u64,
    /// Whether an instance type for which the first search finds nothing is searched again with tables (`counted`).
    is_counting: bool,
}

impl<'a> Generation<'a> {
    /// Starts the master problem from one column (set of pods for one node) per group of equal pods (row), which holds
    /// only pods of that row. The tag of a column is the index of its instance type.
    pub(crate) fn new(
        rows: &'a [Row],
        kinds: &'a [NodeKind],
        start: Vec<Column>,
        effort: Effort,
        scratch: &mut Scratch,
    ) -> Self {
        scratch.work += (rows.len() * kinds.len()) as u64 / 2;
        let demand: Vec<f64> = rows.iter().map(|row| f64::from(row.count)).collect();
        let scaled = Scaled::new(rows, kinds);
        let nodes = kinds.iter().map(|kind| FractionalNode::new(rows, &scaled, kind)).collect();
        let pods = |column: &Column| vec![(column.entries[0].0, column.entries[0].1 as u32)];
        let columns = start.iter().map(|column| (column.tag as usize, pods(column))).collect();
        let start = start.into_iter().enumerate().map(|(tag, column)| Column { tag: tag as u32, ..column });
        let master = Master::new(demand.clone(), start.collect());
        Self {
            rows,
            kinds,
            priced: representatives(kinds),
            demand,
            scaled,
            nodes,
            master,
            known: BTreeSet::new(),
            columns,
            pool: Vec::new(),
            effort,
            search_nodes: SEARCH_NODES.min(effort.search_nodes),
            is_counting: false,
        }
    }

    /// Adds a column (set of pods for one node) to the pool unless the pool has it already.
    pub(crate) fn add_column(&mut self, kind: usize, mut pod_counts: PodCounts) -> bool {
        pod_counts.sort_unstable();
        if pod_counts.is_empty() || !self.known.insert((kind, pod_counts.clone())) {
            return false;
        }
        let entries = pod_counts.iter().map(|(row, count)| (*row, f64::from(*count))).collect();
        let tag = self.columns.len() as u32;
        self.pool.push(Column { price: self.kinds[kind].price, entries, tag });
        self.columns.push((kind, pod_counts));
        true
    }

    /// Adds, for every instance type, the best column (set of pods for one node) whose pods are worth more than its
    /// price times `ratio`.
    fn price_kinds(&mut self, values: &[f64], ratio: f64, scratch: &mut Scratch) -> PricedKinds {
        let mut priced_kinds = PricedKinds { at_most: 0.0, best: 0.0, has_new: false };
        for position in 0..self.priced.len() {
            let index = self.priced[position] as usize;
            let kind = &self.kinds[index];
            let target = kind.price * ratio;
            let mut at_most = self.nodes[index].solve(&self.scaled, values, &mut scratch.work);
            if at_most > target {
                let (node, scaled, rows) = (&self.nodes[index], &self.scaled, self.rows);
                let pricing = Pricing { node, scaled, rows, values, kind, target };
                let priced = if self.is_counting {
                    pricing.most_valuable(self.search_nodes, scratch)
                } else {
                    pricing.search(self.search_nodes, scratch)
                };
                at_most = at_most.min(priced.at_most);
                if !priced.pod_counts.is_empty() {
                    priced_kinds.best = priced_kinds.best.max(priced.value / kind.price);
                    priced_kinds.has_new |= self.add_column(index, priced.pod_counts);
                }
            }
            priced_kinds.at_most = priced_kinds.at_most.max(at_most / kind.price);
        }
        if self.priced.len() < self.kinds.len() {
            priced_kinds.at_most = f64::MAX;
        }
        priced_kinds
    }

    fn total(&self, values: &[f64]) -> f64 {
        values.iter().zip(&self.demand).map(|(value, count)| value * count).sum()
    }

    fn duals(&self) -> Vec<f64> {
        self.master.duals.iter().map(|dual| dual.max(0.0)).collect()
    }

    fn optimise(&mut self, scratch: &mut Scratch) -> usize {
        self.master.optimise(&self.pool, &mut scratch.work)
    }

    /// Generates columns (sets of pods for one node), starting at the dual prices `center`, until no column lowers the
    /// cost or the work units are used up.
    pub(crate) fn run(mut self, mut center: Vec<f64>, lower_bound: f64, scratch: &mut Scratch) -> Generated {
        let work_end = scratch.work + self.effort.work_max;
        let mut bound = lower_bound;
        self.price_kinds(&center, START_RATIO, scratch);
        self.optimise(scratch);
        let mut center_total = self.total(&center);
        let mut smoothing = Smoothing::new(SMOOTHING);
        let mut is_solved = false;
        for _ in 0..self.effort.rounds {
            is_solved = self.master.objective() <= bound * CONVERGED_RATIO;
            if is_solved || scratch.work >= work_end {
                break;
            }
            let values = smoothing.between(&self.master.duals, &center);
            let priced = self.price_kinds(&values, PAYS_RATIO, scratch);
            let total = self.total(&values);
            bound = bound.max(total / priced.at_most.max(PAYS_RATIO));
            // The center moves to the dual prices with the highest estimated bound: their total value divided by the
            // ratio of the best column (set of pods for one node) found. The proved bound is not used for this, because
            // it improves in few rounds only.
            let found_ratio = priced.best.max(1.0);
            let has_improved = total / found_ratio > center_total;
            if has_improved {
                center_total = total / found_ratio;
                center = values.iter().map(|value| value / found_ratio).collect();
            }
            let pivots = self.optimise(scratch);
            if pivots == 0 && smoothing.is_off() {
                if !self.search_longer() {
                    is_solved = !priced.has_new;
                    break;
                }
                // A longer search finds columns (sets of pods for one node) of higher value at the same dual prices, so
                // the comparison of dual prices starts over.
                center_total = 0.0;
            }
            smoothing.adapt(pivots > 0, has_improved);
        }
        bound = self.prove_bound(bound, scratch);
        Generated {
            columns: self.solution(),
            duals: self.duals(),
            center,
            lower_bound: bound,
            objective: self.master.objective().max(bound),
            is_solved,
        }
    }

    /// Increases the number of search nodes; returns false if the effort allows no more.
    fn search_longer(&mut self) -> bool {
        let most = self.effort.search_nodes * LONG_SEARCH_FACTOR;
        if self.search_nodes >= most {
            return false;
        }
        if self.is_counting {
            self.search_nodes = (self.search_nodes * SEARCH_NODES_FACTOR).min(most);
        }
        self.is_counting = true;
        true
    }

    /// The columns (sets of pods for one node) in the current solution of the master problem, as (instance type, pods,
    /// number of nodes).
    fn solution(&self) -> Vec<(usize, PodCounts, f64)> {
        let used = self.master.solution().filter(|(column, _)| column.tag != u32::MAX);
        let used = used.map(|(column, amount)| {
            let (kind, pod_counts) = &self.columns[column.tag as usize];
            (*kind, pod_counts.clone(), amount)
        });
        used.collect()
    }

    /// Raises the bound as far as exact pricing by cpu and memory (`grid`) proves it, and adds the columns (sets of
    /// pods for one node) that exact pricing finds.
    fn prove_bound(&mut self, bound: f64, scratch: &mut Scratch) -> f64 {
        let mut best = bound;
        let mut center: Option<Vec<f64>> = None;
        for _ in 0..self.effort.proofs {
            if self.master.objective() <= best * CONVERGED_RATIO {
                break;
            }
            let duals = self.duals();
            // Dual prices oscillate, so every second attempt uses the mean of the current dual prices and those of the
            // best bound.
            let (values, is_exact) = match center.take() {
                Some(center) => {
                    (duals.iter().zip(&center).map(|(dual, center)| 0.5 * (dual + center)).collect(), false)
                }
                None => (duals, true),
            };
            let (worst, found) = grid::columns(self.rows, &values, self.kinds);
            if worst > 0.0 {
                best = best.max(self.total(&values) / worst);
            }
            if is_exact {
                center = Some(values.iter().map(|value| value / worst.max(1.0)).collect());
            }
            let mut has_new = false;
            for (kind, mut pod_counts) in found {
                // The grid does not know how many pods a group of equal pods has, so the count is cut to that number
                // here.
                pod_counts
                    .iter_mut()
                    .for_each(|(row, count)| *count = (*count).min(self.rows[*row as usize].count));
                has_new |= self.add_column(kind, pod_counts);
            }
            if (!has_new || self.optimise(scratch) == 0) && is_exact {
                break;
            }
        }
        best
    }
}
