//! The resource relaxation of a set of pods: their price if cpu and memory were divisible.
//!
//! Pods that mainly need cpu and pods that mainly need memory are cheaper on common nodes than on separate ones. This
//! estimate finds such pods a thousand times faster than packing. It ignores labels, the number of nodes and whether
//! whole pods fit together, so it only decides which nodes are simulated together.

use karpenter_model::problem::{Mobility, Problem};
use karpenter_model::resources::{CPU, MEMORY};

/// The number of ratios of cpu to memory for which prices are computed.
const DIRECTIONS: u32 = 96;

/// Cpu in millicores and memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Amount {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
}

impl Amount {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    /// The price at the given unit prices.
    pub(crate) fn of(self, amount: Self) -> f64 {
        self.cpu * amount.cpu + self.memory * amount.memory
    }

    /// The sum of the requests of a node's pods that would have to move.
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

/// Unit prices of cpu and memory at which the resources of no instance type cost more than the instance type, for
/// several ratios of the two.
pub(crate) struct Fluid {
    prices: Vec<Amount>,
    /// Capacities of instance types with their prices; types are left out if another type is at least as large and not
    /// more expensive.
    types: Vec<(Amount, f64)>,
}

impl Fluid {
    /// The prices of the instance types of one NodePool.
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
            let (overridden, plain): (Vec<_>, Vec<_>) =
                offerings.partition(|offering| offering.overrides.is_some());
            let price = plain.iter().map(|offering| offering.price_per_hour).fold(f64::MAX, f64::min);
            let own = overridden
                .into_iter()
                .map(|offering| (instance_type.allocatable_of(offering), offering.price_per_hour));
            for (allocatable, price) in own.chain([(instance_type.allocatable(), price)]) {
                let (cpu, memory) = (allocatable.get(CPU) as f64, allocatable.get(MEMORY) as f64);
                if price < f64::MAX && cpu > 0.0 && memory > 0.0 {
                    types.push((cpu, memory, price));
                }
            }
        }
        types.sort_by(|a, b| a.2.total_cmp(&b.2).then(b.0.total_cmp(&a.0)).then(b.1.total_cmp(&a.1)));
        let mut whole: Vec<(Amount, f64)> = Vec::new();
        for (cpu, memory, price) in &types {
            if !whole.iter().any(|(holds, _)| holds.cpu >= *cpu && holds.memory >= *memory) {
                whole.push((Amount { cpu: *cpu, memory: *memory }, *price));
            }
        }
        let mut prices: Vec<Amount> = Vec::new();
        for step in 0..=DIRECTIONS {
            let share = f64::from(step) / f64::from(DIRECTIONS);
            // In the middle of the range, one core costs as much as four GiB, which is about the ratio of real prices.
            let (cpu, memory) = (share / 1_000.0, (1.0 - share) / (4.0 * f64::from(1 << 30)));
            let scale =
                types.iter().map(|(c, m, price)| price / (cpu * c + memory * m)).fold(f64::MAX, f64::min);
            if scale < f64::MAX {
                prices.push(Amount { cpu: cpu * scale, memory: memory * scale });
            }
        }
        Self { prices, types: whole }
    }

    /// The minimum price if this number of nodes, or as many as needed, are whole and only the rest is divisible.
    pub(crate) fn price_of_nodes(&self, amount: Amount, whole: usize) -> f64 {
        if amount.cpu <= 0.0 && amount.memory <= 0.0 {
            return 0.0;
        }
        if whole == 0 {
            return self.price(amount);
        }
        let mut least = f64::MAX;
        for (holds, price) in &self.types {
            if *price >= least {
                break;
            }
            let rest = Amount {
                cpu: (amount.cpu - holds.cpu).max(0.0),
                memory: (amount.memory - holds.memory).max(0.0),
            };
            if price + self.price(rest) < least {
                least = least.min(price + self.price_of_nodes(rest, whole - 1));
            }
        }
        if least < f64::MAX { least } else { self.price(amount) }
    }

    pub(crate) fn price(&self, amount: Amount) -> f64 {
        self.prices.iter().map(|prices| prices.of(amount)).fold(0.0, f64::max)
    }

    /// The result of [`Self::price`], and the unit prices at which it is reached.
    pub(crate) fn price_and_prices(&self, amount: Amount) -> (f64, Amount) {
        let costs = self.prices.iter().map(|prices| (prices.of(amount), *prices));
        costs.fold((0.0, Amount::default()), |best, next| if next.0 > best.0 { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_of_larger_amount_is_at_least_its_price_at_earlier_unit_prices() {
        let prices = (0..=10).map(|step| f64::from(step) / 10.0);
        let fluid = Fluid {
            prices: prices.map(|cpu| Amount { cpu: cpu * cpu, memory: 1.0 - cpu }).collect(),
            types: Vec::new(),
        };
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

    #[test]
    fn price_with_whole_nodes_is_at_least_price_of_divisible_nodes() {
        let of = |cpu: f64| Amount { cpu, memory: 0.0 };
        let fluid = Fluid {
            prices: vec![Amount { cpu: 1.0, memory: 0.0 }],
            types: vec![(of(4.0), 4.0), (of(8.0), 8.0)],
        };
        assert_eq!(fluid.price(of(5.0)), 5.0);
        assert_eq!(fluid.price_of_nodes(of(5.0), 0), 5.0);
        assert_eq!(fluid.price_of_nodes(of(5.0), 1), 5.0, "one node of four cores, and the rest divisible");
        assert_eq!(fluid.price_of_nodes(of(5.0), 2), 8.0);
        assert_eq!(fluid.price_of_nodes(of(4.0), 2), 4.0);
        assert_eq!(fluid.price_of_nodes(of(0.0), 2), 0.0);
    }
}
