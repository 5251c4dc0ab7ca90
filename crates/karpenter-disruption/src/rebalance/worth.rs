//! The dual price of a node: the minimum that its pods cost in any fleet.
//!
//! A node's price minus the dual price of its pods is the maximum saving from packing these pods elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Problem};
use karpenter_scheduling::simulate::{dual_prices, estimated_optimum_per_hour};

pub(crate) struct Worths {
    pub(crate) lower_bound_per_hour: f64,
    by_spec: BTreeMap<Arc<PodSpec>, f64>,
}

impl Worths {
    pub(crate) fn of(problem: &Problem, effort: u64) -> Self {
        let specs = specs(problem);
        let worth = dual_prices(problem, &specs, effort);
        let total: f64 = specs
            .iter()
            .zip(&worth.dual_price_per_spec)
            .map(|((_, count), price)| price * f64::from(*count))
            .sum();
        // If another relaxation proved the bound, the dual prices add up to less than the bound and are scaled up.
        let scale = if total > 0.0 { worth.lower_bound_per_hour / total } else { 1.0 };
        let by_spec = specs
            .into_iter()
            .zip(worth.dual_price_per_spec)
            .map(|((spec, _), price)| (spec, price * scale))
            .collect();
        Self { lower_bound_per_hour: worth.lower_bound_per_hour, by_spec }
    }

    /// An estimate of the price of an optimal fleet for the same pods. Unlike the lower bound, it includes capacity
    /// that must remain unused; it is not a proven bound.
    pub(crate) fn estimated_optimum_per_hour(&self, problem: &Problem) -> f64 {
        estimated_optimum_per_hour(problem, &specs(problem)).unwrap_or(0.0).max(self.lower_bound_per_hour)
    }

    /// The dual price of all pods of a node that would have to move.
    pub(crate) fn node(&self, problem: &Problem, node: usize) -> f64 {
        let pods = problem.nodes.get(node).map_or(&[][..], |node| &node.pods);
        let worths = pods.iter().filter(|pod| pod.mobility != Mobility::Stays);
        worths.map(|pod| self.by_spec.get(&pod.spec).copied().unwrap_or(0.0)).sum()
    }
}

/// All pods that could run on other nodes.
fn specs(problem: &Problem) -> Vec<(Arc<PodSpec>, u32)> {
    let mut counts: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
    for pod in problem.nodes.iter().flat_map(|node| &node.pods).filter(|pod| pod.mobility != Mobility::Stays)
    {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    counts.into_iter().collect()
}
