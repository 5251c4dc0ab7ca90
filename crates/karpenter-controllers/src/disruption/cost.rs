//! What it costs to move pods: a number that has no unit, made to compare nodes.

use k8s_openapi::api::core::v1::Pod;
use karpenter_api::labels::{ANNOTATION_DISRUPTION_COST, ANNOTATION_POD_DELETION_COST};
use karpenter_cluster::controllers::context::annotation;

use crate::pods;

const LOWEST: f64 = -10.0;
const HIGHEST: f64 = 10.0;
/// A deletion cost and a priority that are this large count as much as the pod itself.
const DELETION_COST_UNIT: f64 = (1u64 << 27) as f64;
const PRIORITY_UNIT: f64 = (1u64 << 25) as f64;

/// One for an ordinary pod; more or less by what its owner says it is worth.
pub fn eviction_cost(pod: &Pod) -> f64 {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let cost = 1.0 + f64::from(stated_cost(pod)) / DELETION_COST_UNIT + f64::from(priority) / PRIORITY_UNIT;
    cost.clamp(LOWEST, HIGHEST)
}

/// Our own annotation wins, also when it cannot be read: then neither counts.
fn stated_cost(pod: &Pod) -> i32 {
    let text =
        annotation(pod, ANNOTATION_DISRUPTION_COST).or_else(|| annotation(pod, ANNOTATION_POD_DELETION_COST));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// One for the node itself, and what each pod adds that would have to run somewhere else.
pub fn reschedule_cost<'a>(on_node: impl IntoIterator<Item = &'a Pod>) -> f64 {
    let moving = on_node.into_iter().filter(|pod| pods::is_reschedulable(pod));
    1.0 + moving.map(|pod| eviction_cost(pod).max(0.0)).sum::<f64>()
}
