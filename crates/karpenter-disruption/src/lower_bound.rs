//! The lower bound of a cluster's price: no valid fleet for the same pods is cheaper.

use crate::cluster::Cluster;
use crate::rebalance::worth::Worths;

/// The lower bound in dollars per hour; `None` if there is none.
pub fn lower_bound_per_hour(cluster: &Cluster, effort: u64) -> Option<f64> {
    Some(Worths::of(&cluster.problem, effort).lower_bound_per_hour).filter(|bound| *bound > 0.0)
}
