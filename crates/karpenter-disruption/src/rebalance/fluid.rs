//! A quick guess at what pods would cost on nodes made to measure: cpu and memory as if they could be poured.
//!
//! Pods that need much of one and pods that need much of the other are cheaper together than apart; that is what this
//! tells, a thousand times faster than packing them. It knows nothing of labels, of counts, or of pods that do not fit
//! next to each other, so it only ever decides which nodes are looked at together.

use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::resources::{CPU, MEMORY};

/// Directions in which prices of cpu and memory are looked for.
const DIRECTIONS: u32 = 96;

/// Cpu in thousandths and memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Amount {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
}

impl Amount {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    /// What it costs at prices of a unit each.
    pub(crate) fn of(self, amount: Self) -> f64 {
        self.cpu * amount.cpu + self.memory * amount.memory
    }

    /// Of a node's pods that would have to move.
    pub(crate) fn of_node(problem: &Problem, node: usize) -> Self {
        let pods = problem.nodes.get(node).map_or(&[][..], |node| &node.pods);
        pods.iter().filter(|pod| pod.mobility == Mobility::Moves).fold(Self::default(), |sum, pod| {
            sum.plus(Self {
                cpu: pod.spec.requests.get(CPU) as f64,
                memory: pod.spec.requests.get(MEMORY) as f64,
            })
        })
    }
}

/// Prices of cpu and memory at which no instance type is worth more than it costs, in all proportions.
pub(crate) struct Fluid {
    prices: Vec<Amount>,
}

impl Fluid {
    /// Of what one pool may launch.
    pub(crate) fn of_pool(problem: &Problem, pool: usize) -> Self {
        let mut types: Vec<(f64, f64, f64)> = Vec::new();
        let pool = &problem.pools[pool];
        for instance_type in problem.catalogs.get(pool.catalog).into_iter().flat_map(|types| types.iter()) {
            if !instance_type.requirements.intersects(&pool.requirements) {
                continue;
            }
            let offerings = instance_type.offerings.iter().filter(|offering| {
                offering.is_launchable() && offering.requirements.intersects(&pool.requirements)
            });
            let price = offerings.map(|offering| offering.price_per_hour).fold(f64::MAX, f64::min);
            let allocatable = instance_type.allocatable();
            let (cpu, memory) = (allocatable.get(CPU) as f64, allocatable.get(MEMORY) as f64);
            if price < f64::MAX && cpu > 0.0 && memory > 0.0 {
                types.push((cpu, memory, price));
            }
        }
        let mut prices: Vec<Amount> = Vec::new();
        for step in 0..=DIRECTIONS {
            let share = f64::from(step) / f64::from(DIRECTIONS);
            // A core against four GiB in the middle, which is about what they cost.
            let (cpu, memory) = (share / 1_000.0, (1.0 - share) / (4.0 * f64::from(1 << 30)));
            let scale =
                types.iter().map(|(c, m, price)| price / (cpu * c + memory * m)).fold(f64::MAX, f64::min);
            if scale < f64::MAX {
                prices.push(Amount { cpu: cpu * scale, memory: memory * scale });
            }
        }
        Self { prices }
    }

    pub(crate) fn price(&self, amount: Amount) -> f64 {
        self.prices.iter().map(|prices| prices.of(amount)).fold(0.0, f64::max)
    }

    /// The same, and the prices of a unit each at which it is so much.
    pub(crate) fn price_and_prices(&self, amount: Amount) -> (f64, Amount) {
        let costs = self.prices.iter().map(|prices| (prices.of(amount), *prices));
        costs.fold((0.0, Amount::default()), |best, next| if next.0 > best.0 { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_costs_at_least_what_it_costs_at_the_prices_before() {
        let prices = (0..=10).map(|step| f64::from(step) / 10.0);
        let fluid =
            Fluid { prices: prices.map(|cpu| Amount { cpu: cpu * cpu, memory: 1.0 - cpu }).collect() };
        for (cpu, memory) in [(1.0, 0.0), (3.0, 5.0), (9.0, 2.0), (0.0, 4.0)] {
            let amount = Amount { cpu, memory };
            let (cost, at) = fluid.price_and_prices(amount);
            assert_eq!(cost, fluid.price(amount));
            assert_eq!(cost, at.of(amount));
            for (cpu, memory) in [(0.5, 0.5), (4.0, 0.0), (0.0, 7.0)] {
                let more = Amount { cpu, memory };
                assert!(fluid.price(amount.plus(more)) + 1e-9 >= cost + at.of(more));
            }
        }
    }
}
