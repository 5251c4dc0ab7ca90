//! Solves the pricing problem (which pods of one node have the highest value at the dual prices?) for all instance
//! types at once by dynamic programming: for every amount of cpu and memory, in steps, it computes the most valuable
//! pods that fit.
//!
//! Dynamic programming is about a thousand times slower than a bounded search, but exact up to the step size. It proves
//! lower bounds at high effort. Limits per node and resources other than cpu and memory are ignored.

use super::knapsack::{PodCounts, take};
use super::shapes::{NodeKind, Row};
use crate::bits::Bits;

/// The maximum number of steps of cpu, and of memory.
const STEPS_MAX: [i64; 2] = [1_024, 8_192];
/// The maximum product of table cells and rows (groups of equal pods); above it, memory is divided into fewer, larger
/// steps.
const WORK_MAX: i64 = 300_000_000;
/// Bounds are multiplied by this factor to cover rounding errors of the sums.
const ROUNDING: f64 = 1.0 + 1e-5;

/// The maximum over all instance types of value divided by price, and, for every instance type whose best value exceeds
/// its price, the column (set of pods for one node) with that value.
pub(crate) fn columns(rows: &[Row], values: &[f64], kinds: &[NodeKind]) -> (f64, Vec<(usize, PodCounts)>) {
    let mut groups: Vec<(&Bits, Vec<usize>)> = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        match groups.iter_mut().find(|(demands, _)| *demands == &kind.demands) {
            Some((_, members)) => members.push(index),
            None => groups.push((&kind.demands, vec![index])),
        }
    }
    let mut max_ratio: f64 = 0.0;
    let mut found = Vec::new();
    for (_, members) in groups {
        let grid = Grid::new(rows, values, kinds, &members);
        for index in members {
            let kind = &kinds[index];
            let value = grid.value(kind);
            max_ratio = max_ratio.max(value * ROUNDING / kind.price);
            if value > kind.price
                && let Some(pod_counts) = grid.column(rows, values, kind)
            {
                found.push((index, pod_counts));
            }
        }
    }
    (max_ratio, found)
}

/// A group of equal pods with its requests in steps. They are rounded down, so that an upper bound in steps holds for
/// exact amounts as well.
struct GridRow {
    row: u32,
    value: f32,
    size: [usize; 2],
}

struct Grid {
    step: [i64; 2],
    count: [usize; 2],
    grid_rows: Vec<GridRow>,
    /// The highest value for each amount of cpu (outer index) and memory (inner index), in steps.
    best: Vec<f32>,
}

impl Grid {
    fn new(rows: &[Row], values: &[f64], kinds: &[NodeKind], members: &[usize]) -> Self {
        let takes = |row: &Row| {
            members.iter().any(|member| {
                let kind = &kinds[*member];
                kind.takes(row) && row.requests.iter().zip(&kind.free).all(|(request, free)| request <= free)
            })
        };
        let usable: Vec<usize> =
            (0..rows.len()).filter(|row| values[*row] > 0.0 && takes(&rows[*row])).collect();
        let mut step = [1; 2];
        let mut largest = [0; 2];
        for dimension in 0..2 {
            largest[dimension] =
                members.iter().map(|member| kinds[*member].free[dimension].max(0)).max().unwrap_or(0);
            let common =
                usable.iter().fold(0, |common, row| greatest_divisor(common, rows[*row].requests[dimension]));
            step[dimension] = common.max(largest[dimension] / STEPS_MAX[dimension] + 1);
        }
        let cells = |step: &[i64; 2]| (largest[0] / step[0] + 1) * (largest[1] / step[1] + 1);
        while cells(&step) * usable.len().max(1) as i64 > WORK_MAX && step[1] < largest[1] {
            step[1] *= 2;
        }
        let count = [(largest[0] / step[0]) as usize + 1, (largest[1] / step[1]) as usize + 1];
        let grid_rows: Vec<GridRow> = usable
            .into_iter()
            .map(|row| GridRow {
                row: row as u32,
                value: values[row] as f32,
                size: [
                    (rows[row].requests[0] / step[0]) as usize,
                    (rows[row].requests[1] / step[1]) as usize,
                ],
            })
            .collect();
        let mut grid = Self { step, count, grid_rows, best: vec![0.0; count[0] * count[1]] };
        grid.compute(rows, kinds, members);
        grid
    }

    fn compute(&mut self, rows: &[Row], kinds: &[NodeKind], members: &[usize]) {
        let width = self.count[1];
        for grid_row in &self.grid_rows {
            let [cpu, memory] = grid_row.size;
            if cpu == 0 && memory == 0 {
                // If a pod requests less than one step, as many pods as fit on any node are added to every entry.
                let requests = &rows[grid_row.row as usize].requests;
                let most = members
                    .iter()
                    .map(|member| super::knapsack::copies(&kinds[*member].free, requests, u32::MAX))
                    .max()
                    .unwrap_or(0);
                self.best.iter_mut().for_each(|best| *best += grid_row.value * most as f32);
                continue;
            }
            for at in cpu..self.count[0] {
                if cpu == 0 {
                    let line = &mut self.best[at * width..(at + 1) * width];
                    for left in memory..width {
                        line[left] = line[left].max(line[left - memory] + grid_row.value);
                    }
                } else {
                    let (before, here) = self.best.split_at_mut(at * width);
                    let from = &before[(at - cpu) * width..][..width.saturating_sub(memory)];
                    let onto = here[..width].iter_mut().skip(memory);
                    for (onto, from) in onto.zip(from) {
                        *onto = onto.max(from + grid_row.value);
                    }
                }
            }
        }
    }

    fn at(&self, kind: &NodeKind) -> [usize; 2] {
        [0, 1].map(|dimension| (kind.free[dimension].max(0) / self.step[dimension]) as usize)
    }

    fn value(&self, kind: &NodeKind) -> f64 {
        let [cpu, memory] = self.at(kind);
        f64::from(self.best[cpu * self.count[1] + memory])
    }

    /// The pods that give the value of an instance type, reduced to those that really fit. The column (set of pods for
    /// one node) may hold more pods of a group of equal pods than exist.
    fn column(&self, rows: &[Row], values: &[f64], kind: &NodeKind) -> Option<PodCounts> {
        let [mut cpu, mut memory] = self.at(kind);
        let mut pod_counts = PodCounts::new();
        let mut left = kind.free;
        let mut value = 0.0;
        loop {
            let best = self.best[cpu * self.count[1] + memory];
            let next = self.grid_rows.iter().find(|grid_row| {
                let [c, m] = grid_row.size;
                c + m > 0 && c <= cpu && m <= memory && {
                    let then = self.best[(cpu - c) * self.count[1] + memory - m] + grid_row.value;
                    (then - best).abs() <= 2e-6 * best.max(1.0)
                }
            });
            match next {
                Some(grid_row) => {
                    cpu -= grid_row.size[0];
                    memory -= grid_row.size[1];
                    let row = &rows[grid_row.row as usize];
                    let fits = super::knapsack::copies(&left, &row.requests, 1) == 1;
                    if !fits {
                        continue;
                    }
                    take(&mut left, &row.requests, 1);
                    value += values[grid_row.row as usize];
                    match pod_counts.iter_mut().find(|(known, _)| *known == grid_row.row) {
                        Some((_, count)) => *count += 1,
                        None => pod_counts.push((grid_row.row, 1)),
                    }
                }
                None if memory > 0 => memory -= 1,
                None if cpu > 0 => cpu -= 1,
                None => break,
            }
        }
        (value > kind.price).then_some(pod_counts)
    }
}

fn greatest_divisor(mut a: i64, mut b: i64) -> i64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::shapes::DIMENSIONS_MAX;

    fn amounts(cpu: i64, memory: i64) -> [i64; DIMENSIONS_MAX] {
        let mut amounts = [0; DIMENSIONS_MAX];
        (amounts[0], amounts[1]) = (cpu, memory);
        amounts
    }

    fn row(cpu: i64, memory: i64, demand: usize) -> Row {
        Row { requests: amounts(cpu, memory), demand, count: 1_000, cap: u32::MAX, exclusion: None }
    }

    fn kind(cpu: i64, memory: i64, price: f64, demands: &[usize]) -> NodeKind {
        let mut bits = Bits::empty(2);
        demands.iter().for_each(|demand| bits.insert(*demand));
        NodeKind {
            template: 0,
            instance_type: 0,
            free: amounts(cpu, memory),
            price,
            demands: bits,
            is_spot: false,
        }
    }

    #[test]
    fn column_has_whole_pods_that_its_kind_accepts() {
        let rows = [row(7, 10, 0), row(5, 10, 0), row(16, 10, 1)];
        let values = [7.0, 5.0, 100.0];
        // 5 + 5 + 5 is the highest value that fits; no instance type here accepts the third group of equal pods.
        let (max_ratio, found) = columns(&rows, &values, &[kind(16, 1_000, 10.0, &[0])]);
        assert!((max_ratio - 1.5).abs() < 1e-3, "{max_ratio}");
        assert_eq!(found, [(0, vec![(1, 3)])]);
        // The memory is sufficient for one pod only.
        let (max_ratio, _) = columns(&rows, &values, &[kind(16, 19, 10.0, &[0])]);
        assert!((max_ratio - 0.7).abs() < 1e-3, "{max_ratio}");
        let (max_ratio, found) =
            columns(&rows, &values, &[kind(16, 19, 10.0, &[0]), kind(16, 19, 50.0, &[0, 1])]);
        assert!((max_ratio - 2.0).abs() < 1e-3, "{max_ratio}");
        assert_eq!(found, [(1, vec![(2, 1)])]);
    }

    #[test]
    fn coarse_steps_never_underestimate_the_value() {
        // The amounts have no common divisor, and there are more of them than steps.
        let rows = [row(3_001, 300_007, 0), row(1_999, 100_003, 0)];
        let values = [3.1, 2.0];
        let (max_ratio, found) = columns(&rows, &values, &[kind(32_000, 2_000_003, 20.0, &[0])]);
        // The best column (set of pods for one node) has two pods of the first group of equal pods and 13 of the
        // second.
        let best = (2.0 * 3.1 + 13.0 * 2.0) / 20.0;
        assert!(max_ratio >= best && max_ratio < best * 1.01, "{max_ratio} {best}");
        for (_, pod_counts) in found {
            let cpu: i64 = pod_counts
                .iter()
                .map(|(row, count)| rows[*row as usize].requests[0] * i64::from(*count))
                .sum();
            assert!(cpu <= 32_000);
        }
    }
}
