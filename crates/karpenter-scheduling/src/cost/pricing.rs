//! The pricing problem with whole pods (which pods on one node have the highest total value at the dual prices?),
//! solved by a depth-first search around the solution with divisible pods (`fractional`).
//!
//! The solution with divisible pods gives each resource a price. At these prices, every pod has a reduced value: its
//! value minus the price of its requests. The value of a set of pods is the upper bound minus its losses: the price of
//! unused resources, the positive reduced values of pods left out, and the negative reduced values of pods included.
//! The search prunes sets whose losses are too high; near the optimum of the relaxation few groups of equal pods
//! remain.

use super::fractional::{FractionalNode, Scaled};
use super::knapsack::{Exclusions, PodCounts, Scratch, copies, take, weigh};
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector};

/// Because of rounding, a search may miss a set of pods that is better by up to this factor.
const EXHAUSTED: f64 = 1.0 + 1e-8;

/// The result of a search for the most valuable pods of one node.
pub(crate) struct Priced {
    /// An upper bound for the value of every set of pods that fits on the instance type.
    pub(crate) at_most: f64,
    /// The total value of `pod_counts`, or the target if the search found no pods worth more.
    pub(crate) value: f64,
    /// The best set of pods found that is worth more than the target; empty if none was found.
    pub(crate) pod_counts: PodCounts,
}

/// A row (group of equal pods) that the search considers.
struct Candidate {
    row: u32,
    value: f64,
    requests: Vector,
    /// The price of one pod's requests, at the resource prices of the solution with divisible pods.
    weight: f64,
    most: u32,
    /// How many of these pods the solution with divisible pods has, rounded down; `None` if it has none of them or the
    /// maximum.
    whole: Option<u32>,
    /// The highest ratio of value to `weight` among this and all later candidates.
    density: f64,
    /// The sum of the positive reduced values (value minus `weight`) of this and all later candidates, each at its
    /// maximum number of pods.
    surplus: f64,
}

/// One pricing problem: does any set of pods that fits on the instance type have a value above `target`?
#[derive(Clone, Copy)]
pub(crate) struct Pricing<'a> {
    /// The solution with divisible pods for this instance type, at the same pod values.
    pub(crate) node: &'a FractionalNode,
    pub(crate) scaled: &'a Scaled,
    pub(crate) rows: &'a [Row],
    pub(crate) values: &'a [f64],
    pub(crate) kind: &'a NodeKind,
    pub(crate) target: f64,
}

impl Pricing<'_> {
    /// Searches for pods worth more than `target`, first around the solution with divisible pods. If this search
    /// neither finds such pods nor proves that there are none, searches again with tables (`counted`). Each search
    /// visits at most `nodes` search nodes.
    pub(crate) fn most_valuable(&self, nodes: u64, scratch: &mut Scratch) -> Priced {
        let priced = self.search(nodes, scratch);
        if priced.at_most <= self.target * EXHAUSTED || !priced.pod_counts.is_empty() {
            return priced;
        }
        let exact = self.search_counted(nodes, scratch);
        Priced { at_most: exact.at_most.min(priced.at_most), ..exact }
    }

    /// The result before a search: the upper bound with divisible pods, and no set of pods.
    pub(super) fn unsearched(&self) -> Priced {
        let at_most = self.node.bound(self.scaled, self.values);
        Priced { at_most, value: self.target, pod_counts: PodCounts::new() }
    }

    /// A depth-first search around the solution with divisible pods; it visits at most `nodes` search nodes.
    pub(crate) fn search(&self, nodes: u64, scratch: &mut Scratch) -> Priced {
        let mut priced = self.unsearched();
        let bound = priced.at_most;
        if bound <= self.target {
            return priced;
        }
        let prices = self.node.resource_prices(self.scaled);
        let candidate = |(row, most, amount): (u32, f64, f64)| {
            let value = self.values[row as usize];
            let requests = self.rows[row as usize].requests;
            let weight = weigh(&prices, &requests);
            // If a node holds a pod with a lower reduced value, the node's value cannot reach the target, so such pods
            // are left out.
            (value > 0.0 && value - weight >= self.target - bound).then(|| Candidate {
                row,
                value,
                requests,
                weight,
                most: most as u32,
                whole: (amount > 0.0 && amount < most).then_some(amount as u32),
                density: if weight > 0.0 { value / weight } else { f64::MAX },
                surplus: (value - weight).max(0.0) * most,
            })
        };
        let mut candidates: Vec<Candidate> = self.node.boxes().filter_map(candidate).collect();
        candidates.sort_by(|a, b| {
            b.density.total_cmp(&a.density).then(b.weight.total_cmp(&a.weight)).then(a.row.cmp(&b.row))
        });
        for position in (1..candidates.len()).rev() {
            candidates[position - 1].surplus += candidates[position].surplus;
        }
        scratch.exclusions.clear();
        let mut search = Search {
            rows: self.rows,
            candidates: &candidates,
            prices,
            best: self.target,
            pod_counts: PodCounts::new(),
            current: PodCounts::new(),
            exclusions: &mut scratch.exclusions,
            nodes,
        };
        search.descend(0, self.kind.free, 0.0);
        let nodes_left = search.nodes;
        priced.value = search.best;
        priced.pod_counts = search.pod_counts;
        scratch.work += candidates.len() as u64 * 2 + (nodes - nodes_left) * 2;
        priced.finish(nodes_left > 0);
        priced
    }
}

impl Priced {
    /// Lowers the upper bound after an exhaustive search to the value of the best set of pods.
    pub(super) fn finish(&mut self, is_exhaustive: bool) {
        if is_exhaustive {
            self.at_most = self.at_most.min(self.value * EXHAUSTED);
        }
    }
}

struct Search<'a> {
    rows: &'a [Row],
    candidates: &'a [Candidate],
    prices: [f64; DIMENSIONS_MAX],
    best: f64,
    pod_counts: PodCounts,
    current: PodCounts,
    exclusions: &'a mut Exclusions,
    nodes: u64,
}

impl Search<'_> {
    /// An upper bound for the value of pods of the candidates from `position` on that fit into the capacity `left`.
    fn bound(&self, position: usize, left: &Vector) -> f64 {
        let Some(next) = self.candidates.get(position) else { return 0.0 };
        let room = weigh(&self.prices, left);
        (next.surplus + room).min(if next.density < f64::MAX { next.density * room } else { f64::MAX })
    }

    fn descend(&mut self, mut position: usize, left: Vector, value: f64) {
        // Candidates of which no pod fits are skipped without counting a search node.
        let most = loop {
            let Some(candidate) = self.candidates.get(position) else {
                if value > self.best * (1.0 + 1e-9) {
                    self.best = value;
                    self.pod_counts.clone_from(&self.current);
                }
                return;
            };
            let room = self.exclusions.room(&self.rows[candidate.row as usize]);
            let most = copies(&left, &candidate.requests, candidate.most.min(room));
            if most > 0 {
                break most;
            }
            position += 1;
        };
        let whole = self.candidates[position].whole.map_or(most, |whole| whole.min(most));
        // The search first tries the number of pods in the solution with divisible pods and lower numbers, then higher
        // ones.
        for count in (0..=whole).rev().chain(whole + 1..=most) {
            if self.nodes == 0 {
                return;
            }
            self.nodes -= 1;
            self.try_count(position, count, &left, value);
        }
    }

    /// Continues the search with this many pods of the candidate at `position`.
    fn try_count(&mut self, position: usize, count: u32, left: &Vector, value: f64) {
        let candidate = &self.candidates[position];
        let row = candidate.row;
        let mut rest = *left;
        take(&mut rest, &candidate.requests, count);
        let here = value + candidate.value * f64::from(count);
        if here + self.bound(position + 1, &rest) <= self.best * (1.0 + 1e-9) {
            return;
        }
        let data = &self.rows[row as usize];
        if count > 0 {
            self.current.push((row, count));
            self.exclusions.occupy(data, count);
        }
        self.descend(position + 1, rest, here);
        if count > 0 {
            self.current.pop();
            self.exclusions.release(data, count);
        }
    }
}
