//! What nodes can hold at most, for all kinds at once: every amount of cpu and memory in steps, and the most valuable
//! filling of each.
//!
//! Slower than any search by a thousand times, and it never gives up: it is for proving how little a fleet could cost,
//! where somebody asked for that. Limits per node, and resources beyond the first two, do not bind here.

use super::knapsack::{Pattern, take};
use super::shapes::{Kind, Row};
use super::tables::greatest_divisor;
use crate::bits::Bits;

/// Steps of cpu and of memory at most.
const STEPS_MAX: [i64; 2] = [1_024, 8_192];
/// Cells times rows at most; memory gets larger steps where it would be more.
const WORK_MAX: i64 = 300_000_000;
/// What rounding of sums may hide.
const ROUNDING: f64 = 1.0 + 1e-5;

/// No kind can hold more than the first number times its price; and for kinds that hold more than they cost, a filling.
pub(crate) fn fillings(rows: &[Row], values: &[f64], kinds: &[Kind]) -> (f64, Vec<(usize, Pattern)>) {
    let mut groups: Vec<(&Bits, Vec<usize>)> = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        match groups.iter_mut().find(|(demands, _)| *demands == &kind.demands) {
            Some((_, members)) => members.push(index),
            None => groups.push((&kind.demands, vec![index])),
        }
    }
    let mut worst: f64 = 0.0;
    let mut found = Vec::new();
    for (_, members) in groups {
        let grid = Grid::new(rows, values, kinds, &members);
        for index in members {
            let kind = &kinds[index];
            let value = grid.value(kind);
            worst = worst.max(value * ROUNDING / kind.price);
            if value > kind.price
                && let Some(pattern) = grid.filling(rows, values, kind)
            {
                found.push((index, pattern));
            }
        }
    }
    (worst, found)
}

/// A row in steps, rounded down: what holds for these holds for what they stand for.
struct Part {
    row: u32,
    value: f32,
    size: [usize; 2],
}

struct Grid {
    step: [i64; 2],
    count: [usize; 2],
    parts: Vec<Part>,
    /// By cpu and then memory.
    best: Vec<f32>,
}

impl Grid {
    fn new(rows: &[Row], values: &[f64], kinds: &[Kind], members: &[usize]) -> Self {
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
        let parts: Vec<Part> = usable
            .into_iter()
            .map(|row| Part {
                row: row as u32,
                value: values[row] as f32,
                size: [
                    (rows[row].requests[0] / step[0]) as usize,
                    (rows[row].requests[1] / step[1]) as usize,
                ],
            })
            .collect();
        let mut grid = Self { step, count, parts, best: vec![0.0; count[0] * count[1]] };
        grid.pour(rows, kinds, members);
        grid
    }

    fn pour(&mut self, rows: &[Row], kinds: &[Kind], members: &[usize]) {
        let width = self.count[1];
        for part in &self.parts {
            let [cpu, memory] = part.size;
            if cpu == 0 && memory == 0 {
                // Too small for the steps: as many as a node holds come on top.
                let requests = &rows[part.row as usize].requests;
                let most = members
                    .iter()
                    .map(|member| super::knapsack::copies(&kinds[*member].free, requests, u32::MAX))
                    .max()
                    .unwrap_or(0);
                self.best.iter_mut().for_each(|best| *best += part.value * most as f32);
                continue;
            }
            for at in cpu..self.count[0] {
                if cpu == 0 {
                    let line = &mut self.best[at * width..(at + 1) * width];
                    for left in memory..width {
                        line[left] = line[left].max(line[left - memory] + part.value);
                    }
                } else {
                    let (before, here) = self.best.split_at_mut(at * width);
                    let from = &before[(at - cpu) * width..][..width.saturating_sub(memory)];
                    let onto = here[..width].iter_mut().skip(memory);
                    for (onto, from) in onto.zip(from) {
                        *onto = onto.max(from + part.value);
                    }
                }
            }
        }
    }

    fn at(&self, kind: &Kind) -> [usize; 2] {
        [0, 1].map(|dimension| (kind.free[dimension].max(0) / self.step[dimension]) as usize)
    }

    fn value(&self, kind: &Kind) -> f64 {
        let [cpu, memory] = self.at(kind);
        f64::from(self.best[cpu * self.count[1] + memory])
    }

    /// The filling behind a kind's value, cut down to what really fits; of a row it may hold more than there is.
    fn filling(&self, rows: &[Row], values: &[f64], kind: &Kind) -> Option<Pattern> {
        let [mut cpu, mut memory] = self.at(kind);
        let mut pattern = Pattern::new();
        let mut left = kind.free;
        let mut value = 0.0;
        loop {
            let best = self.best[cpu * self.count[1] + memory];
            let next = self.parts.iter().find(|part| {
                let [c, m] = part.size;
                c + m > 0 && c <= cpu && m <= memory && {
                    let then = self.best[(cpu - c) * self.count[1] + memory - m] + part.value;
                    (then - best).abs() <= 2e-6 * best.max(1.0)
                }
            });
            match next {
                Some(part) => {
                    cpu -= part.size[0];
                    memory -= part.size[1];
                    let row = &rows[part.row as usize];
                    let fits = super::knapsack::copies(&left, &row.requests, 1) == 1;
                    if !fits {
                        continue;
                    }
                    take(&mut left, &row.requests, 1);
                    value += values[part.row as usize];
                    match pattern.iter_mut().find(|(known, _)| *known == part.row) {
                        Some((_, count)) => *count += 1,
                        None => pattern.push((part.row, 1)),
                    }
                }
                None if memory > 0 => memory -= 1,
                None if cpu > 0 => cpu -= 1,
                None => break,
            }
        }
        (value > kind.price).then_some(pattern)
    }
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

    fn kind(cpu: i64, memory: i64, price: f64, demands: &[usize]) -> Kind {
        let mut bits = Bits::empty(2);
        demands.iter().for_each(|demand| bits.insert(*demand));
        Kind {
            template: 0,
            instance_type: 0,
            free: amounts(cpu, memory),
            price,
            demands: bits,
            is_spot: false,
        }
    }

    #[test]
    fn nodes_hold_whole_pods_of_their_own() {
        let rows = [row(7, 10, 0), row(5, 10, 0), row(16, 10, 1)];
        let values = [7.0, 5.0, 100.0];
        // 5 + 5 + 5 is the most that fits, and the third row goes elsewhere.
        let (worst, found) = fillings(&rows, &values, &[kind(16, 1_000, 10.0, &[0])]);
        assert!((worst - 1.5).abs() < 1e-3, "{worst}");
        assert_eq!(found, [(0, vec![(1, 3)])]);
        // Of memory there is only enough for one.
        let (worst, _) = fillings(&rows, &values, &[kind(16, 19, 10.0, &[0])]);
        assert!((worst - 0.7).abs() < 1e-3, "{worst}");
        let (worst, found) =
            fillings(&rows, &values, &[kind(16, 19, 10.0, &[0]), kind(16, 19, 50.0, &[0, 1])]);
        assert!((worst - 2.0).abs() < 1e-3, "{worst}");
        assert_eq!(found, [(1, vec![(2, 1)])]);
    }

    #[test]
    fn steps_that_are_too_large_promise_too_much_and_never_too_little() {
        // No two of these have a divisor in common, and there are more of them than steps.
        let rows = [row(3_001, 300_007, 0), row(1_999, 100_003, 0)];
        let values = [3.1, 2.0];
        let (worst, found) = fillings(&rows, &values, &[kind(32_000, 2_000_003, 20.0, &[0])]);
        // 2 of the first and 13 of the second.
        let best = (2.0 * 3.1 + 13.0 * 2.0) / 20.0;
        assert!(worst >= best && worst < best * 1.01, "{worst} {best}");
        for (_, pattern) in found {
            let cpu: i64 =
                pattern.iter().map(|(row, count)| rows[*row as usize].requests[0] * i64::from(*count)).sum();
            assert!(cpu <= 32_000);
        }
    }
}
