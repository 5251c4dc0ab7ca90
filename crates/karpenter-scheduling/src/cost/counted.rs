//! The pricing problem with whole pods: which pods on one node have the highest total value (dual prices)? This variant
//! is for nodes that few pods fill. It is a depth-first search; tables that track one resource exactly give upper
//! bounds for the rest of the node.
//!
//! A table has one entry per position in the list of candidates (groups of equal pods) and per free amount of the
//! tracked resource, in steps. The entry is the highest value of whole pods of the candidates from that position on,
//! minus the price of the other resources that they request. One table tracks cpu, another memory; the lower of the two
//! bounds is used. The reason: if few pods fill a node, most unused capacity is of one resource, and the bound with
//! divisible pods (`fractional`) does not account for it.

use super::knapsack::{Exclusions, PodCounts, Scratch, copies, take, weigh};
use super::pricing::{Priced, Pricing};
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector};

/// The tables divide a node's cpu or memory into at most this many steps.
const STEPS_MAX: i64 = 512;
/// If a node has at most this many units of a further resource (such as GPUs), the tables track it as well.
const UNITS_MAX: i64 = 16;
/// The index of the first resource that may have few units; the indexes before it are cpu, memory and pods.
const FIRST_UNIT_DIMENSION: usize = 3;
/// If more pods of a group fit on one node than this, the table does not limit how many of them it counts.
const COPIES_COUNTED_MAX: u32 = 3;
/// The tables store `f32`; bounds are multiplied by this factor to cover the rounding errors.
const ROUNDING: f64 = 1.0 + 1e-5;

struct Candidate {
    row: u32,
    value: f64,
    requests: Vector,
    most: u32,
}

impl Pricing<'_> {
    /// Depth-first search for the most valuable pods of one node, with the bounds of the tables; it visits at most
    /// `nodes` search nodes.
    pub(super) fn search_counted(&self, nodes: u64, scratch: &mut Scratch) -> Priced {
        let mut priced = self.unsearched();
        let bound = priced.at_most;
        if bound <= self.target {
            return priced;
        }
        let prices = self.node.resource_prices(self.scaled);
        let candidate = |(row, most, _): (u32, f64, f64)| {
            let (requests, value) = (self.rows[row as usize].requests, self.values[row as usize]);
            // If a node holds a pod with a lower reduced value (value minus the price of its requests), the node's
            // value cannot reach the target, so such pods are left out.
            let reduced = value - weigh(&prices, &requests);
            let is_wanted = value > 0.0 && reduced >= self.target - bound;
            is_wanted.then_some(Candidate { row, value, requests, most: most as u32 })
        };
        let mut candidates: Vec<Candidate> = self.node.boxes().filter_map(candidate).collect();
        // Pods with a high value are tried first, and pods with a low value fill the remaining capacity.
        candidates.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.row.cmp(&b.row)));
        let mut buffers = std::mem::take(&mut scratch.tables);
        let mut tables: Vec<Table> = Vec::new();
        for (counted, buffer) in buffers.iter_mut().enumerate() {
            let buffer = std::mem::take(buffer);
            let table = Table::new(&candidates, self.kind, counted, prices, buffer, &mut scratch.work);
            priced.at_most = priced.at_most.min(table.bound(0, &self.kind.free));
            tables.push(table);
            if priced.at_most <= self.target {
                break;
            }
        }
        if priced.at_most > self.target {
            scratch.exclusions.clear();
            let mut search = Search {
                rows: self.rows,
                candidates: &candidates,
                tables: &tables,
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
            scratch.work += nodes - nodes_left;
            priced.finish(nodes_left > 0);
        }
        buffers.iter_mut().zip(tables).for_each(|(buffer, table)| *buffer = table.best);
        scratch.tables = buffers;
        priced
    }
}

struct Table {
    counted: usize,
    step: i64,
    width: usize,
    /// The resource of which the node has few units (such as GPUs), and the number of these units.
    units: Option<(usize, usize)>,
    /// Entries per candidate.
    size: usize,
    /// The prices of the resources that the table does not track; 0 for those that it does.
    prices: [f64; DIMENSIONS_MAX],
    /// The table: the highest value by position of the first candidate, then by units, then by steps.
    best: Vec<f32>,
}

impl Table {
    fn new(
        candidates: &[Candidate],
        kind: &NodeKind,
        counted: usize,
        mut prices: [f64; DIMENSIONS_MAX],
        mut best: Vec<f32>,
        work: &mut u64,
    ) -> Self {
        prices[counted] = 0.0;
        let units = (FIRST_UNIT_DIMENSION..DIMENSIONS_MAX)
            .filter(|dimension| (1..=UNITS_MAX).contains(&kind.free[*dimension]))
            .min_by_key(|dimension| kind.free[*dimension])
            .map(|dimension| (dimension, kind.free[dimension] as usize));
        if let Some((dimension, _)) = units {
            prices[dimension] = 0.0;
        }
        let free = kind.free[counted].max(0);
        // Amounts are rounded down to steps, so the bound holds for exact amounts as well.
        let step = (free / STEPS_MAX).max(1);
        let width = (free / step) as usize + 1;
        let size = width * units.map_or(1, |(_, units)| units + 1);
        best.clear();
        best.resize((candidates.len() + 1) * size, 0.0);
        for (position, candidate) in candidates.iter().enumerate().rev() {
            let (head, tail) = best.split_at_mut((position + 1) * size);
            let (here, behind) = (&mut head[position * size..], &tail[..size]);
            here.copy_from_slice(behind);
            let gain = (candidate.value - weigh(&prices, &candidate.requests)) as f32;
            if gain <= 0.0 {
                continue;
            }
            let steps = (candidate.requests[counted] / step) as usize;
            let lines = units.map_or(0, |(dimension, _)| candidate.requests[dimension] as usize);
            if steps == 0 && lines == 0 {
                here.iter_mut().for_each(|best| *best += gain * candidate.most as f32);
                continue;
            }
            let is_counted = candidate.most <= COPIES_COUNTED_MAX;
            for count in 1..=if is_counted { candidate.most as usize } else { 1 } {
                let (gain, lines, steps) = (gain * count as f32, lines * count, steps * count);
                for line in lines..size / width {
                    let from = (line - lines) * width;
                    if is_counted {
                        let onto = here[line * width..][..width].iter_mut().skip(steps);
                        let from = &behind[from..from + width];
                        onto.zip(from).for_each(|(onto, from)| *onto = onto.max(from + gain));
                    } else {
                        for left in steps..width {
                            let more = here[from + left - steps] + gain;
                            let onto = &mut here[line * width + left];
                            *onto = onto.max(more);
                        }
                    }
                }
            }
        }
        *work += (candidates.len() * size) as u64 / 16;
        Self { counted, step, width, units, size, prices, best }
    }

    fn bound(&self, position: usize, left: &Vector) -> f64 {
        let steps = (left[self.counted].max(0) / self.step) as usize;
        let line = self.units.map_or(0, |(dimension, _)| left[dimension].max(0) as usize);
        let counted = f64::from(self.best[position * self.size + line * self.width + steps]);
        (counted + weigh(&self.prices, left)) * ROUNDING
    }
}

struct Search<'a> {
    rows: &'a [Row],
    candidates: &'a [Candidate],
    tables: &'a [Table],
    best: f64,
    pod_counts: PodCounts,
    current: PodCounts,
    exclusions: &'a mut Exclusions,
    nodes: u64,
}

impl Search<'_> {
    /// An upper bound for the value of pods of the candidates from `position` on that fit into the capacity `left`.
    fn bound(&self, position: usize, left: &Vector) -> f64 {
        self.tables.iter().map(|table| table.bound(position, left)).fold(f64::MAX, f64::min)
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
        let candidate = &self.candidates[position];
        let row = &self.rows[candidate.row as usize];
        for count in (0..=most).rev() {
            if self.nodes == 0 {
                return;
            }
            self.nodes -= 1;
            let mut rest = left;
            take(&mut rest, &candidate.requests, count);
            let here = value + candidate.value * f64::from(count);
            if here + self.bound(position + 1, &rest) <= self.best * (1.0 + 1e-9) {
                continue;
            }
            if count > 0 {
                self.current.push((candidate.row, count));
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
