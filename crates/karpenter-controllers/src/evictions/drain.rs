//! Which pods of a node are evicted or deleted next. A pure function.
//!
//! Upstream: pkg/controllers/node/termination/terminator/terminator.go.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_state::pod::Pod;

use super::needs_deletion;
use crate::pods;

/// The minimum duration of a drain. It gives endpoints and load balancers time to stop sending traffic to the node.
pub const MIN_DRAIN_TIME: Duration = Duration::from_secs(5);

/// The pods to delete or evict now, and how many still run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drain {
    /// Pods that must be deleted now, because with their own grace period they would run beyond the termination
    /// deadline.
    pub delete: Vec<Arc<Pod>>,
    /// Pods to evict now: those of the first group, in the order of eviction, that still has pods.
    pub evict: Vec<Arc<Pod>>,
    pub waiting: usize,
}

/// Decides which pods are removed next. Pods are evicted in this order: workloads, DaemonSet pods, critical workloads,
/// critical DaemonSet pods.
pub fn decide_drain(on_node: &[Arc<Pod>], terminate_by: Option<Timestamp>, now: Timestamp) -> Drain {
    let waiting: Vec<&Arc<Pod>> = on_node.iter().filter(|pod| pods::is_waiting_eviction(pod, now)).collect();
    let must_be_deleted = |pod: &Pod| terminate_by.is_some_and(|by| needs_deletion(pod, by, now));
    let (delete, evictable): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        waiting.iter().copied().partition(|pod| must_be_deleted(pod));
    let first_group = evictable.iter().map(|pod| group(pod)).min();
    let evict = evictable
        .iter()
        .filter(|pod| Some(group(pod)) == first_group && pods::is_active(pod))
        .map(|pod| Arc::clone(pod))
        .collect();
    Drain { delete: delete.into_iter().cloned().collect(), evict, waiting: waiting.len() }
}

/// The group of a pod in the order of eviction: (is critical, is owned by a DaemonSet).
fn group(pod: &Pod) -> (bool, bool) {
    let class = pod.spec.priority_class_name.as_deref();
    let is_critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    (is_critical, pods::is_owned_by_daemon_set(pod))
}
