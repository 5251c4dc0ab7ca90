//! Converts a planned node to the Node that it will become: labels, capacity and price of the planned instance type and
//! offering.

use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::{Node, Problem};
use karpenter_model::requirements::Requirements;
use karpenter_model::resources::ResourceList;

use crate::ledger::Ledger;
use crate::templates::catalog;

/// Converts the planned node with this index, without pods. The resulting Node is not initialized, so other nodes are
/// tried before it.
pub(super) fn node(problem: &Problem, planned: &PlannedNode, index: usize) -> Node {
    let pool = problem.pools.get(planned.pool);
    let instance_type = pool.and_then(|pool| catalog(problem, pool).get(planned.instance_type));
    let offering = instance_type.and_then(|one| one.offerings.get(planned.offering));
    // Names of planned nodes sort after the names of real nodes, in the order of their indexes.
    let name: Arc<str> = format!("~planned-{index:08}").into();
    let mut node = Node {
        labels: pool.map(|pool| pool.labels.clone()).unwrap_or_default(),
        taints: pool.map(|pool| pool.taints.clone()).unwrap_or_default(),
        initialized: false,
        pool: pool.map(|pool| pool.name.clone()),
        allocatable: match (instance_type, offering) {
            (Some(one), Some(offering)) => one.allocatable_of(offering),
            _ => ResourceList::new(),
        },
        pods: Vec::new(),
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

/// Counts a planned node towards the limits of its NodePool and, if it was planned into a reservation, takes one slot
/// of it.
pub(super) fn charge(ledger: &mut Ledger, planned: &PlannedNode) {
    let prepared = ledger.prepared.clone();
    let Some(template) = prepared.templates.iter().position(|one| one.pool == planned.pool) else { return };
    let of_type = prepared.templates[template].types.iter().find(|one| one.index == planned.instance_type);
    if let Some(of_type) = of_type {
        ledger.charge(template, &of_type.limited_capacity, 1);
    }
    let catalog = ledger.problem.pools[planned.pool].catalog;
    let offering = planned.offering as u32;
    if let Some(taken) = prepared.reservations.of_offering(catalog, planned.instance_type, offering) {
        ledger.take_slot(taken);
    }
}

/// Gives the resources of a removed node back to the limits of its NodePool. Only its allocatable resources are known;
/// they never exceed its capacity.
pub(super) fn give_back_limits(ledger: &mut Ledger, node: &Node) {
    let prepared = ledger.prepared.clone();
    let of_pool = |pool: usize| Some(&ledger.problem.pools[pool].name) == node.pool.as_ref();
    let Some(template) = prepared.templates.iter().position(|one| of_pool(one.pool)) else { return };
    let limited = &prepared.templates[template].limited;
    let amounts: Vec<i64> = limited.iter().map(|(name, _)| -node.allocatable.get(name)).collect();
    ledger.charge(template, &amounts, -1);
}
