//! What no cluster for the same pods can cost less than, whatever is decided about the cluster that is there.

use crate::cluster::Cluster;
use crate::rebalance::worth::Worths;

/// Dollars per hour; `None` if nothing is known.
pub fn lower_bound_per_hour(cluster: &Cluster, effort: u64) -> Option<f64> {
    Some(Worths::of(&cluster.problem, effort).lower_bound_per_hour).filter(|bound| *bound > 0.0)
}
