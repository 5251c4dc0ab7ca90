//! The disruption cost of pods: a number without a unit, to compare nodes.
//!
//! Upstream: pkg/utils/disruption.

#[cfg(test)]
mod tests;

use karpenter_api::labels::{ANNOTATION_DISRUPTION_COST, ANNOTATION_POD_DELETION_COST};

use crate::pod::Pod;
use crate::pods;

/// The minimum eviction cost of a pod.
const EVICTION_COST_MIN: f64 = -10.0;
/// The maximum eviction cost of a pod.
const EVICTION_COST_MAX: f64 = 10.0;
/// A deletion cost of this size adds 1 to the eviction cost.
const DELETION_COST_UNIT: f64 = (1u64 << 27) as f64;
/// A priority of this size adds 1 to the eviction cost.
const PRIORITY_UNIT: f64 = (1u64 << 25) as f64;

/// Who sets the annotation `controller.kubernetes.io/pod-deletion-cost` on pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionCosts {
    /// Users set the annotation, so its value is the cost of disrupting the pod.
    #[default]
    SetByUsers,
    /// Our controller sets the annotation (feature gate PodDeletionCostManagement), so its value is ignored here.
    Managed,
}

/// The eviction cost of a pod: 1 for an ordinary pod, more or less depending on its deletion cost and priority.
pub fn eviction_cost(pod: &Pod, deletion_costs: DeletionCosts) -> f64 {
    let priority = pod.spec.priority.unwrap_or(0);
    let stated = f64::from(stated_cost(pod, deletion_costs));
    let cost = 1.0 + stated / DELETION_COST_UNIT + f64::from(priority) / PRIORITY_UNIT;
    cost.clamp(EVICTION_COST_MIN, EVICTION_COST_MAX)
}

fn stated_cost(pod: &Pod, deletion_costs: DeletionCosts) -> i32 {
    stated(pod, deletion_costs).and_then(|(_, text)| text.parse().ok()).unwrap_or(0)
}

/// The annotation that determines the cost, and its value. Karpenter's annotation has priority over Kubernetes', even
/// if the value of the former is invalid; then neither is used.
fn stated(pod: &Pod, deletion_costs: DeletionCosts) -> Option<(&'static str, &str)> {
    let annotation = |key: &'static str| Some((key, pod.annotation(key)?));
    annotation(ANNOTATION_DISRUPTION_COST).or_else(|| match deletion_costs {
        DeletionCosts::SetByUsers => annotation(ANNOTATION_POD_DELETION_COST),
        DeletionCosts::Managed => None,
    })
}

/// The annotation that determines the cost, and its value, if the value is not a 32-bit integer and therefore counts as
/// 0.
pub fn unreadable_cost(pod: &Pod, deletion_costs: DeletionCosts) -> Option<(&'static str, &str)> {
    stated(pod, deletion_costs).filter(|(_, text)| text.parse::<i32>().is_err())
}

/// The disruption cost of a node: 1 for the node itself, plus the eviction cost of each pod that has to be rescheduled.
pub fn reschedule_cost<'a>(on_node: impl IntoIterator<Item = &'a Pod>, deletion_costs: DeletionCosts) -> f64 {
    let moving = on_node.into_iter().filter(|pod| pods::is_reschedulable(pod));
    1.0 + moving.map(|pod| eviction_cost(pod, deletion_costs).max(0.0)).sum::<f64>()
}
