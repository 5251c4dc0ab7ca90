//! Filling one node of a kind with the most valuable pods: a greedy fill, a bounded depth-first search, and an upper
//! bound that holds for every filling.

use super::shapes::{DIMENSIONS_MAX, Kind, Row, Vector};

/// How much of each row goes into one node.
pub(crate) type Pattern = Vec<(u32, u32)>;

/// Rows in order of value per weighted resource.
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

/// Rows by plain value: large pods first, which leaves the gaps for small ones.
pub(crate) fn by_value(rows: &[Row], values: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows.len() as u32).filter(|row| values[*row as usize] > 0.0).collect();
    order.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]).then(a.cmp(b)));
    order
}

/// Whether a request fits into what is left, as far as the first so many dimensions go.
#[inline]
fn fits<const DIMENSIONS: usize>(left: &Vector, request: &Vector) -> bool {
    let mut fits = true;
    for dimension in 0..DIMENSIONS {
        fits &= request[dimension] <= left[dimension];
    }
    fits
}

/// How many copies of a request fit into what is left, at most `at_most`.
#[inline]
pub(crate) fn copies(left: &Vector, request: &Vector, at_most: u32) -> u32 {
    // Mostly it is processors or memory that have run out.
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

/// Tracks the shared per-node caps of rows that exclude each other.
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

/// Scratch space of the fillers, reused between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) exclusions: Exclusions,
    candidates: Vec<u32>,
    pub(crate) work: u64,
}

/// Takes as much of each row as fits, in order. Returns the value.
pub(crate) fn greedy(
    rows: &[Row],
    values: &[f64],
    order: &[u32],
    kind: &Kind,
    remaining: &[u32],
    scratch: &mut Scratch,
    pattern: &mut Pattern,
) -> f64 {
    pattern.clear();
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
            pattern.push((*index, count));
        }
    }
    scratch.work += order.len() as u64;
    value
}

/// Fills step by step, each time preferring rows that are worth most at prices which rise with how full a resource
/// is: all resources then run out together. Returns the value.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the parts")]
pub(crate) fn balanced(
    rows: &[Row],
    values: &[f64],
    candidates: &[u32],
    kind: &Kind,
    weights: &[f64; DIMENSIONS_MAX],
    remaining: &[u32],
    scratch: &mut Scratch,
    pattern: &mut Pattern,
) -> f64 {
    pattern.clear();
    scratch.exclusions.clear();
    let mut usable = std::mem::take(&mut scratch.candidates);
    usable.clear();
    usable.extend(candidates.iter().copied().filter(|index| {
        let row = &rows[*index as usize];
        remaining[*index as usize] > 0 && kind.takes(row) && copies(&kind.free, &row.requests, 1) == 1
    }));
    scratch.work += candidates.len() as u64 / 2;
    // What fits asks for nothing that the node has none of, and most nodes have processors, memory and room for pods only.
    let value = if kind.free[FEW_DIMENSIONS..].iter().all(|free| *free == 0) {
        fill_evenly::<FEW_DIMENSIONS>(rows, values, &mut usable, kind, weights, remaining, scratch, pattern)
    } else {
        fill_evenly::<DIMENSIONS_MAX>(rows, values, &mut usable, kind, weights, remaining, scratch, pattern)
    };
    scratch.candidates = usable;
    value
}

const FEW_DIMENSIONS: usize = 3;

/// What [`balanced`] does, where the first so many dimensions are all there are.
#[expect(clippy::too_many_arguments, reason = "a hot leaf; a struct would only rename the parts")]
fn fill_evenly<const DIMENSIONS: usize>(
    rows: &[Row],
    values: &[f64],
    usable: &mut Vec<u32>,
    kind: &Kind,
    weights: &[f64; DIMENSIONS_MAX],
    remaining: &[u32],
    scratch: &mut Scratch,
    pattern: &mut Pattern,
) -> f64 {
    /// A step uses at most this part of any resource, then prices are looked at again.
    const STEPS: i64 = 10;
    let mut left = kind.free;
    let mut value = 0.0;
    loop {
        let mut prices = [0.0; DIMENSIONS];
        for dimension in 0..DIMENSIONS {
            if kind.free[dimension] > 0 {
                let used = 1.0 - left[dimension] as f64 / kind.free[dimension] as f64;
                // Squared twice: a resource that is nearly used up becomes dear quickly.
                let fullness = used * used;
                prices[dimension] = weights[dimension] * (0.2 + used + 4.0 * fullness * fullness);
            }
        }
        // What does not fit any more is dropped on the way.
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
        let present = pattern.iter().find(|(known, _)| *known == index).map_or(0, |(_, count)| *count);
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
        match pattern.iter_mut().find(|(known, _)| *known == index) {
            Some((_, total)) => *total += count,
            None => pattern.push((index, count)),
        }
    }
}

/// Depth-first search from the greedy filling, cut by density bounds and by `nodes`.
pub(crate) struct Search<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) values: &'a [f64],
    pub(crate) remaining: &'a [u32],
    pub(crate) kind: &'a Kind,
    pub(crate) order: &'a [u32],
    /// Per weighting: weights, and for each position the best density from there on.
    pub(crate) bounds: &'a [([f64; DIMENSIONS_MAX], Vec<f64>)],
    /// Set by [`Search::run`]: the search saw everything, so its value is the maximum.
    pub(crate) complete: std::cell::Cell<bool>,
}

impl Search<'_> {
    /// Improves on `pattern` (worth `value`) where possible.
    pub(crate) fn run(&self, scratch: &mut Scratch, nodes: u64, pattern: &mut Pattern, value: f64) -> f64 {
        scratch.exclusions.clear();
        let mut best = Best { value, pattern: pattern.clone(), nodes };
        let mut current = Pattern::new();
        self.descend(0, self.kind.free, 0.0, &mut current, &mut best, &mut scratch.exclusions);
        scratch.work += (nodes - best.nodes) * 2;
        *pattern = best.pattern;
        self.complete.set(best.nodes > 0);
        best.value
    }

    fn descend(
        &self,
        mut position: usize,
        left: Vector,
        value: f64,
        current: &mut Pattern,
        best: &mut Best,
        exclusions: &mut Exclusions,
    ) {
        // Skip rows that cannot be taken at all, without spending search nodes on them.
        let (row_index, most) = loop {
            if position == self.order.len() {
                if value > best.value * (1.0 + 1e-9) {
                    best.value = value;
                    best.pattern.clone_from(current);
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
        let worth = self.values[row_index as usize];
        for count in (0..=most).rev() {
            if best.nodes == 0 {
                return;
            }
            best.nodes -= 1;
            let mut rest = left;
            take(&mut rest, &row.requests, count);
            let here = value + worth * f64::from(count);
            let mut bound = f64::MAX;
            for (weights, suffix) in self.bounds {
                bound = bound.min(suffix[position + 1] * weigh(weights, &rest));
            }
            if here + bound <= best.value * (1.0 + 1e-9) {
                // Fewer of this row leave more room, but the bound already counts that room at the best density.
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
    pattern: Pattern,
    nodes: u64,
}

/// For each position of an order, the best density (under some weights) of this or any later row.
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

/// No filling of the kind is worth more than this: fractional filling of one weighted resource, each row at most as
/// often as it fits alone. `order` must be sorted by density under its weights.
pub(crate) fn upper_bound(rows: &[Row], values: &[f64], order: &Order, kind: &Kind) -> f64 {
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
