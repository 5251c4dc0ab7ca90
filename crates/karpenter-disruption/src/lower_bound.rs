//! The lower bound of a cluster's price: no valid fleet for the same pods is cheaper.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{BoundPod, Mobility, Problem};
use karpenter_scheduling::simulate::dual_prices;

use crate::cluster::Cluster;

/// The lower bound of a cluster's price, and the part of it that the pods of each NodePool account for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LowerBound {
    pub(crate) per_hour: f64,
    pub(crate) by_pool: BTreeMap<Arc<str>, f64>,
}

/// The lower bound in dollars per hour; `None` if none can be computed.
pub fn lower_bound_per_hour(cluster: &Cluster, effort: u64) -> Option<f64> {
    Some(lower_bound(cluster, effort).per_hour).filter(|bound| *bound > 0.0)
}

/// The lower bound, with the dual prices of the pods summed by the NodePool of their nodes.
pub(crate) fn lower_bound(cluster: &Cluster, effort: u64) -> LowerBound {
    let mut counts: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
    for pod in cluster.problem.nodes.iter().flat_map(|node| movable(&node.pods)) {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    let specs: Vec<(Arc<PodSpec>, u32)> = counts.into_iter().collect();
    let prices = dual_prices(&cluster.problem, &specs, effort);
    LowerBound {
        per_hour: prices.lower_bound_per_hour,
        by_pool: by_pool(&cluster.problem, &specs, &prices.dual_price_per_spec),
    }
}

fn by_pool(problem: &Problem, specs: &[(Arc<PodSpec>, u32)], prices: &[f64]) -> BTreeMap<Arc<str>, f64> {
    let price_of: BTreeMap<&PodSpec, f64> =
        specs.iter().zip(prices).map(|((spec, _), price)| (&**spec, *price)).collect();
    let mut by_pool: BTreeMap<Arc<str>, f64> = BTreeMap::new();
    for node in &problem.nodes {
        let Some(pool) = &node.pool else { continue };
        let price: f64 = movable(&node.pods).filter_map(|pod| price_of.get(&*pod.spec)).sum();
        *by_pool.entry(pool.clone()).or_default() += price;
    }
    by_pool
}

/// Pods that could run on other nodes.
fn movable(pods: &[BoundPod]) -> impl Iterator<Item = &BoundPod> {
    pods.iter().filter(|pod| pod.mobility != Mobility::Stays)
}
