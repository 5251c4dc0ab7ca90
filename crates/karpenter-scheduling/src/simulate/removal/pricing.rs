//! The pricing problem: which pods are worth most on the free capacity of a node, at the dual prices.

use super::instance::{Class, DIMENSIONS, Vector};

/// The number of weightings of cpu and memory; each orders the classes by value per weighted resource.
const MIXTURES: usize = 12;

/// The maximum number of classes that a step of the search tries, on average.
const CLASSES_PER_STEP: u64 = 30;

/// Dual prices with classes ordered by value per weighted resource, for several weightings.
pub(super) struct Pricing<'a> {
    classes: &'a [Class],
    pub(super) values: Vec<f64>,
    orders: Vec<Order>,
}

struct Order {
    weights: [f64; DIMENSIONS],
    /// (density, class), highest density first.
    ranked: Vec<(f64, u32)>,
}

/// Buffers that are reused between calls, and the work done.
#[derive(Default)]
pub(super) struct Scratch {
    usable: Vec<(f64, u32, u32)>,
    current: Vec<u32>,
    best: Vec<u32>,
    pub(super) work: u64,
}

/// (class, pods)
pub(super) type Content = Vec<(u32, u32)>;

fn weigh(weights: &[f64; DIMENSIONS], amounts: &Vector) -> f64 {
    weights.iter().zip(amounts).map(|(weight, amount)| weight * *amount as f64).sum()
}

fn fits(room: &Vector, requests: &Vector) -> bool {
    room.iter().zip(requests).all(|(room, request)| request <= room)
}

/// How many pods of these requests fit, at most `most`.
pub(super) fn copies(room: &Vector, requests: &Vector, most: u32) -> u32 {
    let mut copies = i64::from(most);
    for (room, request) in room.iter().zip(requests) {
        if *request > 0 && request * copies > *room {
            copies = (*room).max(0) / request;
        }
    }
    copies as u32
}

pub(super) fn take(room: &mut Vector, requests: &Vector, count: u32) {
    room.iter_mut().zip(requests).for_each(|(room, request)| *room -= request * i64::from(count));
}

impl<'a> Pricing<'a> {
    /// `scale` is what a typical node has of each resource.
    pub(super) fn new(classes: &'a [Class], values: Vec<f64>, scale: &[f64; DIMENSIONS]) -> Self {
        let mut weightings: Vec<[f64; DIMENSIONS]> = Vec::new();
        for mixture in 0..=MIXTURES {
            let share = mixture as f64 / MIXTURES as f64;
            let mut weights = [0.0; DIMENSIONS];
            (weights[0], weights[1]) = (share / scale[0], (1.0 - share) / scale[1]);
            weightings.push(weights);
        }
        for dimension in 2..DIMENSIONS {
            if classes.iter().any(|class| class.requests[dimension] > 0) {
                for share in [0.3, 0.7] {
                    let mut weights = [0.0; DIMENSIONS];
                    (weights[0], weights[1]) =
                        ((1.0 - share) / 2.0 / scale[0], (1.0 - share) / 2.0 / scale[1]);
                    weights[dimension] = share / scale[dimension];
                    weightings.push(weights);
                }
            }
        }
        let orders = weightings
            .into_iter()
            .map(|weights| {
                let mut ranked: Vec<(f64, u32)> = classes
                    .iter()
                    .zip(&values)
                    .enumerate()
                    .filter(|(_, (_, value))| **value > 1e-9)
                    .map(|(index, (class, value))| {
                        (value / weigh(&weights, &class.requests).max(1e-12), index as u32)
                    })
                    .collect();
                ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                Order { weights, ranked }
            })
            .collect();
        Self { classes, values, orders }
    }

    /// The most valuable content within the free capacity, found with at most `search_nodes` steps of a
    /// depth-first search. Returns its value and an upper bound for the value of any content.
    pub(super) fn fill(
        &self,
        free: &Vector,
        limit: impl Fn(usize) -> u32,
        search_nodes: u64,
        scratch: &mut Scratch,
        content: &mut Content,
    ) -> (f64, f64) {
        content.clear();
        // The weighting with the lowest bound.
        let mut chosen: Option<(f64, &Order)> = None;
        for order in &self.orders {
            let first = order.ranked.iter().find(|(_, class)| {
                fits(free, &self.classes[*class as usize].requests) && limit(*class as usize) > 0
            });
            let Some((density, _)) = first else { return (0.0, 0.0) };
            let bound = density * weigh(&order.weights, free);
            if chosen.is_none_or(|(best, _)| bound < best) {
                chosen = Some((bound, order));
            }
        }
        let Some((bound, order)) = chosen else { return (0.0, 0.0) };
        let Scratch { usable, current, best, work } = scratch;
        usable.clear();
        for (density, class) in &order.ranked {
            let most = limit(*class as usize);
            if most > 0 && fits(free, &self.classes[*class as usize].requests) {
                usable.push((*density, *class, most));
            }
        }
        let count = usable.len();
        current.clear();
        current.resize(count, 0);
        best.clear();
        best.resize(count, 0);
        let (mut left, mut value, mut best_value) = (*free, 0.0, -1.0);
        let mut position = 0;
        let (mut steps, mut visits) = (0, 0);
        let mut is_complete = true;
        loop {
            let from = position;
            // Descend: as many pods of each class as fit, in order of density.
            while position < count {
                let (density, class, most) = usable[position];
                if value + density * weigh(&order.weights, &left) <= best_value * (1.0 + 1e-6) + 1e-12 {
                    break;
                }
                let requests = &self.classes[class as usize].requests;
                let taken = copies(&left, requests, most);
                current[position] = taken;
                value += f64::from(taken) * self.values[class as usize];
                take(&mut left, requests, taken);
                position += 1;
            }
            visits += (position - from) as u64;
            if value > best_value {
                best_value = value;
                best[..position].copy_from_slice(&current[..position]);
                best[position..].iter_mut().for_each(|one| *one = 0);
            }
            steps += 1;
            if steps > search_nodes || visits > search_nodes * CLASSES_PER_STEP {
                is_complete = false;
                break;
            }
            // Backtrack: one pod fewer of the last class that has any.
            current[position..].iter_mut().for_each(|one| *one = 0);
            let Some(last) = (0..position).rev().find(|position| current[*position] > 0) else { break };
            current[last] -= 1;
            let class = usable[last].1 as usize;
            value -= self.values[class];
            left.iter_mut().zip(&self.classes[class].requests).for_each(|(left, request)| *left += request);
            position = last + 1;
        }
        *work += steps + (visits + count as u64) / 4;
        content.extend(
            usable
                .iter()
                .zip(best.iter())
                .filter(|(_, count)| **count > 0)
                .map(|((_, class, _), count)| (*class, *count)),
        );
        content.sort_unstable();
        (best_value, if is_complete { best_value * (1.0 + 1e-6) } else { bound.max(best_value) })
    }
}
