//! Column generation for the relaxation with whole pods.
//!
//! Every round solves the pricing problem of all node kinds, at dual prices between those of the master problem and the
//! best ones so far. If the best fractional node of a kind has less value than its price, the kind has no column that
//! improves the objective (`fractional`). The other kinds are searched (`pricing`), and the columns that are found
//! enter the master problem.

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

/// A column improves the objective if its value is above its price by this factor.
const PAYS_RATIO: f64 = 1.0001;
/// Columns with at least this value per price at the first dual prices are likely in the solution.
const START_RATIO: f64 = 0.5;
/// Column generation ends when the objective is within this factor of the bound.
const CONVERGED_RATIO: f64 = 1.0002;
/// Search nodes per kind and round at first.
const SEARCH_NODES: u64 = 60;
/// The maximum length of a search, as a multiple of the search nodes of the effort.
const LONG_SEARCH_FACTOR: u64 = 4;
/// When no column that improves the objective is found, the number of search nodes is multiplied by this.
const SEARCH_NODES_FACTOR: u64 = 6;
const SMOOTHING: Range<f64> = 0.5..0.8;

/// The result of column generation.
pub(crate) struct Generated {
    pub(crate) duals: Vec<f64>,
    /// The dual prices of the best known bound; they oscillate less than those of the master problem.
    pub(crate) center: Vec<f64>,
    pub(crate) lower_bound: f64,
    pub(crate) objective: f64,
    pub(crate) columns: Vec<(usize, PodCounts, f64)>,
    /// Whether the searches found that no column is missing.
    pub(crate) is_solved: bool,
}

/// The result of solving the pricing problem of all kinds.
struct PricedKinds {
    /// An upper bound for the ratio of value to price of any column; `MAX` if not all kinds were priced.
    at_most: f64,
    /// The highest ratio of value to price of a column that was found; 0 if none was found.
    best: f64,
    /// Whether there is a column that was not known.
    has_new: bool,
}

pub(crate) struct Generation<'a> {
    rows: &'a [Row],
    kinds: &'a [NodeKind],
    /// The kinds that are priced: representatives of all others.
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
    /// Whether kinds for which a search finds nothing are searched with counted resources.
    is_counting: bool,
}

impl<'a> Generation<'a> {
    /// Starts from columns with one row each; the tag of a column is its kind.
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

    /// Adds a column to the pool unless it is known.
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

    /// Adds the best column of every kind that is worth more than its price times `ratio`.
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

    /// Generates columns, starting at these dual prices, until no column improves the objective or the work units are
    /// used up.
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
            // The center of the smoothing follows the best column found. The proved bound improves in few rounds only.
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
                // A longer search finds columns of higher value at the same prices, so the best prices so far are
                // dropped.
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

    /// Makes the searches longer; false if they are already as long as the effort allows.
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

    /// The columns in the current solution.
    fn solution(&self) -> Vec<(usize, PodCounts, f64)> {
        let used = self.master.solution().filter(|(column, _)| column.tag != u32::MAX);
        let used = used.map(|(column, amount)| {
            let (kind, pod_counts) = &self.columns[column.tag as usize];
            (*kind, pod_counts.clone(), amount)
        });
        used.collect()
    }

    /// Raises the bound as far as exact pricing of cpu and memory proves it (`grid`), and adds the columns that
    /// violate it.
    fn prove_bound(&mut self, bound: f64, scratch: &mut Scratch) -> f64 {
        let mut best = bound;
        let mut center: Option<Vec<f64>> = None;
        for _ in 0..self.effort.proofs {
            if self.master.objective() <= best * CONVERGED_RATIO {
                break;
            }
            let duals = self.duals();
            // Dual prices oscillate, so every second attempt uses the mean of the current dual prices and the best ones
            // so far.
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
                // The grid ignores the number of pods, so the number is limited here.
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
