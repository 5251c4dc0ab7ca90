//! What pods are worth: prices per pod at which no node, filled in any way, is worth more than it costs.
//!
//! The sum over a node's pods is the least that any other fleet would have to pay for them; far below the node's price
//! it says that the node is wasteful. Taken over all pods of a cluster it is the bound of the whole fleet.

use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{PodGroup, PodNames, Problem};

use crate::cost;

/// Prices of pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Worth {
    /// No fleet of new nodes for all of the pods costs less.
    pub lower_bound_per_hour: f64,
    /// Per spec as asked, for one pod. Any number of pods together cost at least the sum of theirs.
    pub dual_price_per_spec: Vec<f64>,
}

/// Prices for pods that are placed on new nodes only. The problem's own nodes and pods are left out, except that hostname
/// spreads count its pods.
///
/// Pods that no pool can take are worth 0.
pub fn worth(problem: &Problem, specs: &[(Arc<PodSpec>, u32)], effort: u64) -> Worth {
    let alone = alone(problem, specs);
    let (lower_bound_per_hour, prices) = cost::prices(&alone, problem, effort);
    Worth { lower_bound_per_hour, dual_price_per_spec: prices }
}

/// What these pods cost at about the least on new nodes: a fleet of many such pods comes close to it. It is more than
/// [`Worth::lower_bound_per_hour`] by what pods leave over on every node, which takes long to prove; nothing is proved
/// here. `None` if nothing is known.
pub fn likely_least_per_hour(problem: &Problem, specs: &[(Arc<PodSpec>, u32)]) -> Option<f64> {
    cost::guess(&alone(problem, specs), problem)
}

fn alone(problem: &Problem, specs: &[(Arc<PodSpec>, u32)]) -> Problem {
    let mut alone = Problem {
        catalogs: problem.catalogs.clone(),
        pools: problem.pools.clone(),
        nodes: Vec::new(),
        pods: Vec::new(),
        daemons: problem.daemons.clone(),
        well_known: problem.well_known.clone(),
        options: problem.options.clone(),
    };
    alone.pods = specs
        .iter()
        .enumerate()
        .map(|(number, (spec, count))| PodGroup {
            spec: spec.clone(),
            names: PodNames::Numbered { prefix: format!("pod-{number}").into(), count: *count },
            created_at_secs: 0,
        })
        .collect();
    alone
}
