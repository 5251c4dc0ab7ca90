//! What no fleet for the same pods can cost less than, whatever is decided about the fleet that is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Mobility;
use karpenter_scheduling::simulate::worth;

use crate::fleet::Fleet;

/// Dollars per hour; `None` if nothing is known.
pub fn lower_bound_per_hour(fleet: &Fleet, effort: u64) -> Option<f64> {
    let problem = &fleet.problem;
    let mut counts: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
    for pod in problem.nodes.iter().flat_map(|node| &node.pods).filter(|pod| pod.mobility != Mobility::Stays)
    {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    let specs: Vec<(Arc<PodSpec>, u32)> = counts.into_iter().collect();
    Some(worth(problem, &specs, effort).lower_bound_per_hour).filter(|bound| *bound > 0.0)
}
