//! Whether a pod still fits on a node next to the pods that are bound to it. Only resources are checked: a pod that was
//! bound to another node than planned takes only resources from the pods that are planned for that node.
//!
//! Upstream: `StateNode.Available` in pkg/controllers/state/statenode.go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{PODS, ResourceList};
use karpenter_state::pod::Pod;

use crate::pods;

/// The allocatable resources of a node minus the requests of its pods.
pub(crate) struct AvailableCapacity(ResourceList);

impl AvailableCapacity {
    pub(crate) fn of(node: &Node, on_it: &[Arc<Pod>]) -> Self {
        let amounts = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
        let amounts: Vec<(&str, Quantity)> =
            amounts.filter_map(|(name, text)| Some((name.as_str(), text.0.parse().ok()?))).collect();
        let mut left = ResourceList::from_capacity(amounts.iter().map(|(name, amount)| (*name, amount)));
        for pod in on_it.iter().filter(|pod| !pods::is_terminal(pod)) {
            left.subtract(&occupied(pod));
        }
        Self(left)
    }

    /// The available capacity after all terminating pods are gone.
    pub(crate) fn after_terminations(node: &Node, on_it: &[Arc<Pod>]) -> Self {
        let staying: Vec<Arc<Pod>> = on_it.iter().filter(|pod| pod.deleted_at.is_none()).cloned().collect();
        Self::of(node, &staying)
    }

    /// Reserves the requests of the pod if it fits. Returns whether it fits.
    pub(crate) fn try_reserve(&mut self, pod: &Pod) -> bool {
        let wanted = occupied(pod);
        let fits = wanted.iter().all(|(name, amount)| amount <= 0 || amount <= self.0.get(name));
        if fits {
            self.0.subtract(&wanted);
        }
        fits
    }
}

/// The requests of a pod, plus one of the resource `pods`. Requests that cannot be parsed count as zero.
fn occupied(pod: &Pod) -> ResourceList {
    let requests = pod.requests().unwrap_or_default();
    let mut occupied =
        ResourceList::from_requests(requests.iter().map(|(name, amount)| (name.as_str(), amount)));
    occupied.set(PODS, 1);
    occupied
}
