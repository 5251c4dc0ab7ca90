//! A planned node as the node it will become: labels, room and price of the type and offering that the plan expects.

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::{BoundPod, Node, Problem};
use karpenter_model::requirements::Requirements;

use crate::templates::catalog;

/// The node at an index. It is not there yet, so other nodes are tried before it.
pub(super) fn node(problem: &Problem, planned: &PlannedNode, index: usize, pods: Vec<BoundPod>) -> Node {
    let pool = problem.pools.get(planned.pool);
    let instance_type = pool.and_then(|pool| catalog(problem, pool).get(planned.instance_type));
    let offering = instance_type.and_then(|one| one.offerings.get(planned.offering));
    let name: Arc<str> = format!("planned-{index}").into();
    let mut node = Node {
        labels: pool.map(|pool| pool.labels.clone()).unwrap_or_default(),
        taints: pool.map(|pool| pool.taints.clone()).unwrap_or_default(),
        initialized: false,
        pool: pool.map(|pool| pool.name.clone()),
        allocatable: instance_type.map(|one| one.allocatable()).unwrap_or_default(),
        pods,
        volume_limits: instance_type.map(|one| one.volume_attachment_limits.clone()).unwrap_or_default(),
        price_per_hour: Some(planned.price_per_hour),
        is_settling: false,
        name: name.clone(),
    };
    let known = [
        Some(&planned.requirements),
        instance_type.map(|one| &one.requirements),
        offering.map(|one| &one.requirements),
    ];
    for requirements in known.into_iter().flatten() {
        set_definite(&mut node, requirements);
    }
    node.labels.insert(labels::HOSTNAME.into(), name);
    node
}

fn set_definite(node: &mut Node, requirements: &Requirements) {
    for requirement in requirements.iter() {
        if let Some(value) = requirement.single_value() {
            node.labels.insert(requirement.key.clone(), value.clone());
        }
    }
}
