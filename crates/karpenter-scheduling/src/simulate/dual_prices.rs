//! Dual prices of pods: a price per pod such that no set of pods that fits on a node has a total above the price of
//! that node.
//!
//! The sum of the prices of a node's pods is a lower bound for what these pods cost in any fleet. If the sum is far
//! below the price of the node, the node is inefficient. The sum over all pods of a cluster is the lower bound of the
//! whole fleet.

use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{PodGroup, PodNames, Problem};

use crate::cost;

/// Dual prices of pods, and the lower bound that they prove.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DualPrices {
    /// A price per hour; no fleet of new nodes that holds all of the pods costs less.
    pub lower_bound_per_hour: f64,
    /// For each entry of `specs`: the price per hour of one pod. New nodes for any of these pods cost at least the sum
    /// of the pods' prices.
    pub dual_price_per_spec: Vec<f64>,
}

/// Computes dual prices for pods that are placed on new nodes only. The nodes and pods of the problem are ignored,
/// except that hostname spreads count its pods.
///
/// The price of pods that no NodePool can run is 0.
pub fn dual_prices(problem: &Problem, specs: &[(Arc<PodSpec>, u32)], effort: u64) -> DualPrices {
    let pods_only = pods_only(problem, specs);
    let (lower_bound_per_hour, prices) = cost::dual_prices(&pods_only, problem, effort);
    DualPrices { lower_bound_per_hour, dual_price_per_spec: prices }
}

fn pods_only(problem: &Problem, specs: &[(Arc<PodSpec>, u32)]) -> Problem {
    let mut pods_only = Problem {
        catalogs: problem.catalogs.clone(),
        pools: problem.pools.clone(),
        nodes: Vec::new(),
        pods: Vec::new(),
        daemons: problem.daemons.clone(),
        well_known: problem.well_known.clone(),
        options: problem.options.clone(),
    };
    pods_only.pods = specs
        .iter()
        .enumerate()
        .map(|(number, (spec, count))| PodGroup {
            spec: spec.clone(),
            names: PodNames::Numbered { prefix: format!("pod-{number}").into(), count: *count },
            created_at_secs: 0,
        })
        .collect();
    pods_only
}
