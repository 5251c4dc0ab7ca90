//! Dual prices of pods: prices per pod at which the pods of no column have more value than the price of its node.
//!
//! The sum over the pods of a node is a lower bound for the cost of these pods in any fleet. If it is far below the
//! price of the node, the node is inefficient. The sum over all pods of a cluster is the lower bound of the whole
//! fleet.

use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{PodGroup, PodNames, Problem};

use crate::cost;

/// Dual prices and their lower bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DualPrices {
    /// No fleet of new nodes for all of the pods costs less.
    pub lower_bound_per_hour: f64,
    /// Per spec as given, for one pod. Any number of pods together costs at least the sum of their prices.
    pub dual_price_per_spec: Vec<f64>,
}

/// Dual prices for pods that are placed on new nodes only. The nodes and pods of the problem are ignored,
/// except that hostname spreads count its pods.
///
/// Pods that no NodePool can run have the price 0.
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
