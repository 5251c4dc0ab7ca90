//! The pricing problem: which pods on one node of an instance type have the highest total value? This module has a
//! greedy heuristic, a bounded depth-first search, and an upper bound for every set of pods.

use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector};

/// The pods of one node, as (group of equal pods, count).
pub(crate) type PodCounts = Vec<(u32, u32)>;

/// Rows (groups of equal pods) in descending order of value per weighted resource.
pub(crate) struct Order {
    pub(crate) rows: Vec<u32>,
    pub(crate) weights: [f64; DIMENSIONS_MAX],
}

pub(crate) fn weigh(weights: &[f64; DIMENSIONS_MAX], amounts: &Vector) -> f64 {
    let mut sum = 0.0;
    for dimension in 0..DIMENSIONS_MAX {
        sum += weights[dimension] * amounts[dimension] as f64;
    }
    sum
}

impl Order {
    pub(crate) fn new(
        rows: &[Row],
        values: &[f64],
        weights: [f64; DIMENSIONS_MAX],
        only: impl Fn(usize) -> bool,
    ) -> Self {
        let mut ranked: Vec<(f64, u32)> = rows
            .iter()
            .enumerate()
            .filter(|(index, _)| values[*index] > 0.0 && only(*index))
            .map(|(index, row)| {
                let weight = weigh(&weights, &row.requests);
                (if weight > 0.0 { values[index] / weight } else { f64::MAX }, index as u32)
            })
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        Self { rows: ranked.iter().map(|(_, row)| *row).collect(), weights }
    }
}

/// Groups of equal pods in descending order of value per pod: large pods come first and leave capacity for small ones.
pub(crate) fn by_value(rows: &[Row], values: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows.len() as u32).filter(|row| values[*row as usize] > 0.0).collect();
    order.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]).then(a.cmp(b)));
    order
}

/// Whether a request fits into the remaining capacity, in the first `DIMENSIONS` dimensions.
#[inline]
fn fits<const DIMENSIONS: usize>(left: &Vector, request: &Vector) -> bool {
    let mut fits = true;
    for dimension in 0..DIMENSIONS {
        fits &= request[dimension] <= left[dimension];
    }
    fits
}

/// How many copies of a request fit into the remaining capacity, up to `at_most`.
#[inline]
pub(crate) fn copies(left: &Vector, request: &Vector, at_most: u32) -> u32 {
    // Cpu and memory are usually the first resources to be exhausted, so they are checked first.
    let fits = fits::<2>(left, request) && fits::<DIMENSIONS_MAX>(left, request);
    if !fits || at_most == 0 {
        return 0;
    }
    if at_most == 1 {
        return 1;
    }
    let mut copies = i64::from(at_most);
    for dimension in 0..DIMENSIONS_MAX {
        if request[dimension] > 0 && request[dimension] * copies > left[dimension] {
            copies = left[dimension] / request[dimension];
        }
    }
    copies as u32
}

#[inline]
pub(crate) fn take(left: &mut Vector, request: &Vector, count: u32) {
    for dimension in 0..DIMENSIONS_MAX {
        left[dimension] -= request[dimension] * i64::from(count);
    }
}

/// Groups of equal pods whose pods exclude each other share a maximum per node. This tracks how many of their pods are
/// on the node.
#[derive(Debug, Default, Clone)]
pub(crate) struct Exclusions {
    used: Vec<(u16, u32)>,
}

impl Exclusions {
    pub(crate) fn clear(&mut self) {
        self.used.clear();
    }

    pub(crate) fn room(&self, row: &Row) -> u32 {
        match row.exclusion {
            None => u32::MAX,
            Some((group, cap)) => {
                let used = self.used.iter().find(|(known, _)| *known == group).map_or(0, |(_, used)| *used);
                cap.saturating_sub(used)
            }
        }
    }

    pub(crate) fn occupy(&mut self, row: &Row, count: u32) {
        if let Some((group, _)) = row.exclusion {
            match self.used.iter_mut().find(|(known, _)| *known == group) {
                Some((_, used)) => *used += count,
                None => self.used.push((group, count)),
            }
        }
    }

    pub(crate) fn release(&mut self, row: &Row, count: u32) {
        if let Some((group, _)) = row.exclusion
            && let Some((_, used)) = self.used.iter_mut().find(|(known, _)| *known == group)
        {
            *used -= count;
        }
    }
}

/// Buffers that calls reuse, and the counter of work units.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) exclusions: Exclusions,
    candidates: Vec<u32>,
    /// The tables of the search in `counted`.
    pub(super) tables: [Vec<f32>; 2],
    pub(crate) work: u64,
}

/// Adds as many pods of each group of equal pods (row) as fit on the node, in the given order of rows. Returns the
/// total value of the pods.
pub(crate) fn greedy(
    rows: &[Row],
    values: &[f64],
    order: &[u32],
    kind: &NodeKind,
    remaining: &[u32],
    scratch: &mut Scratch,
    pod_counts: &mut PodCounts,
) -> f64 {
    pod_counts.clear();
    scratch.exclusions.clear();
    let mut left = kind.free;
    let mut value = 0.0;
    for index in order {
        let row = &rows[*index as usize];
        if !kind.takes(row) {
            continue;
        }
        let at_most = remaining[*index as usize].min(row.cap).min(scratch.exclusions.room(row));
        let count = copies(&left, &row.requests, at_most);
        if count > 0 {
            take(&mut left, &row.requests, count);
            scratch.exclusions.occupy(row, count);
            value += values[*index as usize] * f64::from(count);
            pod_counts.push((*index, count));
        }
    }
    scratch.work += order.len() as u64;
    value
}

/// Fills a node in small steps. Each step adds pods of the group of equal pods with the highest value, at resource
/// prices that rise with utilization, so that all resources are exhausted at about the same time. Returns the total
/// value of the pods.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the arguments")]
pub(crate) fn balanced(
    rows: &[Row],
    values: &[f64],
    candidates: &[u32],
    kind: &NodeKind,
    weights: &[f64; DIMENSIONS_MAX],
    remaining: &[u32],
    scratch: &mut Scratch,
    pod_counts: &mut PodCounts,
) -> f64 {
    pod_counts.clear();
    scratch.exclusions.clear();
    let mut usable = std::mem::take(&mut scratch.candidates);
    usable.clear();
    usable.extend(candidates.iter().copied().filter(|index| {
        let row = &rows[*index as usize];
        remaining[*index as usize] > 0 && kind.takes(row) && copies(&kind.free, &row.requests, 1) == 1
    }));
    scratch.work += candidates.len() as u64 / 2;
    // Most instance types have only cpu, memory and pods, and groups of equal pods that fit on them request nothing
    // else. So only these first dimensions are computed.
    let value = if kind.free[FEW_DIMENSIONS..].iter().all(|free| *free == 0) {
        fill_evenly::<FEW_DIMENSIONS>(
            rows,
            values,
            &mut usable,
            kind,
            weights,
            remaining,
            scratch,
            pod_counts,
        )
    } else {
        fill_evenly::<DIMENSIONS_MAX>(
            rows,
            values,
            &mut usable,
            kind,
            weights,
            remaining,
            scratch,
            pod_counts,
        )
    };
    scratch.candidates = usable;
    value
}

const FEW_DIMENSIONS: usize = 3;

/// The loop of [`balanced`], for nodes that have only the first `DIMENSIONS` resources.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the arguments")]
fn fill_evenly<const DIMENSIONS: usize>(
    rows: &[Row],
    values: &[f64],
    usable: &mut Vec<u32>,
    kind: &NodeKind,
    weights: &[f64; DIMENSIONS_MAX],
    remaining: &[u32],
    scratch: &mut Scratch,
    pod_counts: &mut PodCounts,
) -> f64 {
    /// One step adds at most `1 / STEPS` of the capacity of any resource; then the resource prices are computed again.
    const STEPS: i64 = 10;
    let mut left = kind.free;
    let mut value = 0.0;
    loop {
        let mut prices = [0.0; DIMENSIONS];
        for dimension in 0..DIMENSIONS {
            if kind.free[dimension] > 0 {
                let used = 1.0 - left[dimension] as f64 / kind.free[dimension] as f64;
                // The price of a resource grows with the fourth power of its utilization, so it is high only when the
                // resource is nearly exhausted.
                let fullness = used * used;
                prices[dimension] = weights[dimension] * (0.2 + used + 4.0 * fullness * fullness);
            }
        }
        // The scan drops groups of equal pods of which no further pod fits.
        let mut best: Option<(f64, usize)> = None;
        let mut kept = 0;
        for at in 0..usable.len() {
            let index = usable[at];
            let requests = &rows[index as usize].requests;
            if !fits::<DIMENSIONS>(&left, requests) {
                continue;
            }
            let mut weight = 0.0;
            for dimension in 0..DIMENSIONS {
                weight += prices[dimension] * requests[dimension] as f64;
            }
            let density = if weight > 0.0 { values[index as usize] / weight } else { f64::MAX };
            if best.is_none_or(|(best, _)| density > best) {
                best = Some((density, kept));
            }
            usable[kept] = index;
            kept += 1;
        }
        usable.truncate(kept);
        scratch.work += kept as u64;
        let Some((_, position)) = best else { return value };
        let index = usable[position];
        let row = &rows[index as usize];
        let present = pod_counts.iter().find(|(known, _)| *known == index).map_or(0, |(_, count)| *count);
        let mut at_most =
            (remaining[index as usize].min(row.cap) - present).min(scratch.exclusions.room(row));
        let mut step = i64::from(u32::MAX);
        for dimension in 0..DIMENSIONS {
            if row.requests[dimension] > 0 {
                step = step.min(kind.free[dimension] / STEPS / row.requests[dimension]);
            }
        }
        at_most = at_most.min(step.max(1) as u32);
        let count = copies(&left, &row.requests, at_most);
        if count == 0 {
            usable.swap_remove(position);
            continue;
        }
        take(&mut left, &row.requests, count);
        scratch.exclusions.occupy(row, count);
        value += values[index as usize] * f64::from(count);
        match pod_counts.iter_mut().find(|(known, _)| *known == index) {
            Some((_, total)) => *total += count,
            None => pod_counts.push((index, count)),
        }
    }
}

/// Depth-first search for a set of pods that is worth more than a known set; it visits at most `nodes` search nodes and
/// prunes by upper bounds on value per resource.
pub(crate) struct Search<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) values: &'a [f64],
    pub(crate) remaining: &'a [u32],
    pub(crate) kind: &'a NodeKind,
    pub(crate) order: &'a [u32],
    /// For each weighting of resources: the weights, and, for each position of the order, the highest value per
    /// weighted resource from that position on.
    pub(crate) bounds: &'a [([f64; DIMENSIONS_MAX], Vec<f64>)],
    /// Set by [`Search::run`]: whether the search was exhaustive, so that its value is the maximum.
    pub(crate) complete: std::cell::Cell<bool>,
}

impl Search<'_> {
    /// Searches for pods that are worth more than `value`, which is the value of `pod_counts`.
    pub(crate) fn run(
        &self,
        scratch: &mut Scratch,
        nodes: u64,
        pod_counts: &mut PodCounts,
        value: f64,
    ) -> f64 {
        scratch.exclusions.clear();
        let mut best = Best { value, pod_counts: pod_counts.clone(), nodes };
        let mut current = PodCounts::new();
        self.descend(0, self.kind.free, 0.0, &mut current, &mut best, &mut scratch.exclusions);
        scratch.work += (nodes - best.nodes) * 2;
        *pod_counts = best.pod_counts;
        self.complete.set(best.nodes > 0);
        best.value
    }

    fn descend(
        &self,
        mut position: usize,
        left: Vector,
        value: f64,
        current: &mut PodCounts,
        best: &mut Best,
        exclusions: &mut Exclusions,
    ) {
        // Groups of equal pods of which no pod fits are skipped without counting a search node.
        let (row_index, most) = loop {
            if position == self.order.len() {
                if value > best.value * (1.0 + 1e-9) {
                    best.value = value;
                    best.pod_counts.clone_from(current);
                }
                return;
            }
            let index = self.order[position];
            let row = &self.rows[index as usize];
            if self.kind.takes(row) {
                let at_most = self.remaining[index as usize].min(row.cap).min(exclusions.room(row));
                let most = copies(&left, &row.requests, at_most);
                if most > 0 {
                    break (index, most);
                }
            }
            position += 1;
        };
        let row = &self.rows[row_index as usize];
        let row_value = self.values[row_index as usize];
        for count in (0..=most).rev() {
            if best.nodes == 0 {
                return;
            }
            best.nodes -= 1;
            let mut rest = left;
            take(&mut rest, &row.requests, count);
            let here = value + row_value * f64::from(count);
            let mut bound = f64::MAX;
            for (weights, suffix) in self.bounds {
                bound = bound.min(suffix[position + 1] * weigh(weights, &rest));
            }
            if here + bound <= best.value * (1.0 + 1e-9) {
                // The bound assumes that capacity without pods of this group of equal pods (row) is filled at the
                // highest value per resource of the rows that follow. Once this bound is too low, fewer pods of this
                // row cannot help, so the loop ends.
                if count < most {
                    return;
                }
                continue;
            }
            if count > 0 {
                current.push((row_index, count));
                exclusions.occupy(row, count);
            }
            self.descend(position + 1, rest, here, current, best, exclusions);
            if count > 0 {
                current.pop();
                exclusions.release(row, count);
            }
        }
    }
}

struct Best {
    value: f64,
    pod_counts: PodCounts,
    nodes: u64,
}

/// For each position of an order: the highest value per weighted resource of the group of equal pods (row) there or of
/// any later row.
pub(crate) fn suffix_density(
    rows: &[Row],
    values: &[f64],
    order: &[u32],
    weights: &[f64; DIMENSIONS_MAX],
) -> Vec<f64> {
    let mut suffix = vec![0.0; order.len() + 1];
    for (position, index) in order.iter().enumerate().rev() {
        let weight = weigh(weights, &rows[*index as usize].requests);
        let density = if weight > 0.0 { values[*index as usize] / weight } else { f64::MAX };
        suffix[position] = density.max(suffix[position + 1]);
    }
    suffix
}

/// An upper bound for the value of every set of pods on a node of the instance type: a fractional knapsack with one
/// weighted resource, in which each group of equal pods has at most as many pods as fit alone. `order` must be sorted
/// by value per resource under the same weights.
pub(crate) fn upper_bound(rows: &[Row], values: &[f64], order: &Order, kind: &NodeKind) -> f64 {
    let mut room = weigh(&order.weights, &kind.free);
    let mut value = 0.0;
    for index in &order.rows {
        let row = &rows[*index as usize];
        if !kind.takes(row) {
            continue;
        }
        let most = f64::from(copies(&kind.free, &row.requests, row.count.min(row.cap)));
        let weight = weigh(&order.weights, &row.requests);
        if most == 0.0 {
            continue;
        }
        if weight * most <= room {
            room -= weight * most;
            value += values[*index as usize] * most;
        } else {
            return value + values[*index as usize] * (room / weight);
        }
    }
    value
}
