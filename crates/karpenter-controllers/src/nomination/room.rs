//! Whether a pod still fits a node beside the pods that were bound to it: resources only, which is what pods that were
//! bound otherwise than planned take from each other.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{PODS, ResourceList};
use karpenter_state::pod::Pod;

use crate::pods;

/// What is left of a node.
pub(crate) struct Room(ResourceList);

impl Room {
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

    /// When those that are on their way out have left.
    pub(crate) fn in_the_end(node: &Node, on_it: &[Arc<Pod>]) -> Self {
        let staying: Vec<Arc<Pod>> = on_it.iter().filter(|pod| pod.deleted_at.is_none()).cloned().collect();
        Self::of(node, &staying)
    }

    /// Whether the pod fits; if so, its room is taken.
    pub(crate) fn take(&mut self, pod: &Pod) -> bool {
        let wanted = occupied(pod);
        let fits = wanted.iter().all(|(name, amount)| amount <= 0 || amount <= self.0.get(name));
        if fits {
            self.0.subtract(&wanted);
        }
        fits
    }
}

/// A pod whose requests cannot be read occupies nothing but its place.
fn occupied(pod: &Pod) -> ResourceList {
    let requests = pod.requests().unwrap_or_default();
    let mut occupied =
        ResourceList::from_requests(requests.iter().map(|(name, amount)| (name.as_str(), amount)));
    occupied.set(PODS, 1);
    occupied
}
