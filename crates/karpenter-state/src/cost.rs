//! What it costs to move pods: a number that has no unit, made to compare nodes.
//!
//! Upstream: pkg/utils/disruption.

#[cfg(test)]
mod tests;

use karpenter_api::labels::{ANNOTATION_DISRUPTION_COST, ANNOTATION_POD_DELETION_COST};

use crate::pod::Pod;
use crate::pods;

const LOWEST: f64 = -10.0;
const HIGHEST: f64 = 10.0;
/// A deletion cost and a priority that are this large count as much as the pod itself.
const DELETION_COST_UNIT: f64 = (1u64 << 27) as f64;
const PRIORITY_UNIT: f64 = (1u64 << 25) as f64;

/// Who writes `controller.kubernetes.io/pod-deletion-cost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionCosts {
    /// Users, so it says what a pod is worth to them.
    #[default]
    OfUsers,
    /// A controller of ours (gate PodDeletionCostManagement), so it says nothing about the pod.
    Managed,
}

/// One for an ordinary pod; more or less by what its owner says it is worth.
pub fn eviction_cost(pod: &Pod, deletion_costs: DeletionCosts) -> f64 {
    let priority = pod.spec.priority.unwrap_or(0);
    let stated = f64::from(stated_cost(pod, deletion_costs));
    let cost = 1.0 + stated / DELETION_COST_UNIT + f64::from(priority) / PRIORITY_UNIT;
    cost.clamp(LOWEST, HIGHEST)
}

fn stated_cost(pod: &Pod, deletion_costs: DeletionCosts) -> i32 {
    stated(pod, deletion_costs).and_then(|(_, text)| text.parse().ok()).unwrap_or(0)
}

/// The annotation that counts and what it says. Our own wins, also when it cannot be read: then neither counts.
fn stated(pod: &Pod, deletion_costs: DeletionCosts) -> Option<(&'static str, &str)> {
    let annotation = |key: &'static str| Some((key, pod.annotation(key)?));
    annotation(ANNOTATION_DISRUPTION_COST).or_else(|| match deletion_costs {
        DeletionCosts::OfUsers => annotation(ANNOTATION_POD_DELETION_COST),
        DeletionCosts::Managed => None,
    })
}

/// The annotation about a pod's cost and its value, if that is no whole number of 32 bits and so counts as zero.
pub fn unreadable_cost(pod: &Pod, deletion_costs: DeletionCosts) -> Option<(&'static str, &str)> {
    stated(pod, deletion_costs).filter(|(_, text)| text.parse::<i32>().is_err())
}

/// One for the node itself, and what each pod adds that would have to run somewhere else.
pub fn reschedule_cost<'a>(on_node: impl IntoIterator<Item = &'a Pod>, deletion_costs: DeletionCosts) -> f64 {
    let moving = on_node.into_iter().filter(|pod| pods::is_reschedulable(pod));
    1.0 + moving.map(|pod| eviction_cost(pod, deletion_costs).max(0.0)).sum::<f64>()
}
