//! The lower bound of a cluster's price: no valid fleet for the same pods is cheaper.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Problem};
use karpenter_scheduling::simulate::dual_prices;

use crate::cluster::Cluster;

/// Dollars per hour; `None` if there is no bound.
pub fn lower_bound_per_hour(cluster: &Cluster, effort: u64) -> Option<f64> {
    let bound = dual_prices(&cluster.problem, &specs(&cluster.problem), effort).lower_bound_per_hour;
    Some(bound).filter(|bound| *bound > 0.0)
}

/// All pods that could run on other nodes, with their number by spec.
fn specs(problem: &Problem) -> Vec<(Arc<PodSpec>, u32)> {
    let mut counts: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
    for pod in problem.nodes.iter().flat_map(|node| &node.pods).filter(|pod| pod.mobility != Mobility::Stays)
    {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    counts.into_iter().collect()
}
