//! Converts NodePools: which ones can launch nodes, and the properties of their nodes.

use std::fmt;

use karpenter_api::labels::{PROVISIONER_NAME, provisioner_of};
use karpenter_api::types::{ConditionStatus, NodePool as RawPool};
use karpenter_model::labels;
use karpenter_model::problem::NodePool;
use karpenter_model::requirements::{Operator, Requirements};
use karpenter_model::resources::ResourceList;

use super::{capacity, node_labels, requirement, taints};
use crate::controls::spread_share;
use crate::intern::Interner;

/// Why a plan cannot launch nodes of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolLeftOut {
    /// `spec.replicas` is set: the number of nodes is fixed.
    Static,
    Deleting,
    /// The condition Ready is not true.
    NotReady,
}

impl fmt::Display for PoolLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "has a fixed size (spec.replicas)",
            Self::Deleting => "is being deleted",
            Self::NotReady => "is not ready",
        })
    }
}

pub(crate) fn left_out(pool: &RawPool) -> Option<PoolLeftOut> {
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    // A manifest that was not applied has no conditions and counts as ready.
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    if pool.metadata.deletion_timestamp.is_some() {
        Some(PoolLeftOut::Deleting)
    } else if pool.spec.replicas.is_some() {
        Some(PoolLeftOut::Static)
    } else if ready.is_some_and(|ready| ready.status != ConditionStatus::True) {
        Some(PoolLeftOut::NotReady)
    } else {
        None
    }
}

/// The label with the node class of a node.
pub(crate) fn node_class_label(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

pub(crate) fn convert_pool(
    pool: &RawPool,
    catalog: usize,
    usage: ResourceList,
    interner: &mut Interner,
) -> NodePool {
    let template = &pool.spec.template;
    let name = interner.get(pool.metadata.name.as_deref().unwrap_or_default());
    let mut labels =
        node_labels(template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()), interner);
    labels.insert(interner.get(labels::NODEPOOL), name.clone());
    let class = &template.spec.node_class_ref;
    if !class.group.is_empty() && !class.kind.is_empty() {
        labels.insert(interner.get(&node_class_label(&class.group, &class.kind)), interner.get(&class.name));
    }
    if let Some(provisioner) = provisioner_of(&pool.metadata) {
        labels.insert(interner.get(PROVISIONER_NAME), interner.get(provisioner));
    }
    let limits = pool.spec.limits.iter().flatten().map(|(name, amount)| (name.as_str(), *amount));
    NodePool {
        name,
        weight: pool.spec.weight.unwrap_or(0),
        requirements: requirements(pool, interner),
        labels,
        taints: taints(template.spec.taints.iter().flatten(), interner),
        startup_taints: taints(template.spec.startup_taints.iter().flatten(), interner),
        limits: capacity(limits, interner),
        usage,
        catalog,
        hostname_spread_share: spread_share(pool).0,
    }
}

fn requirements(pool: &RawPool, interner: &mut Interner) -> Requirements {
    let listed = pool.spec.template.spec.requirements.iter();
    listed
        .filter_map(|one| {
            let operator = Operator::parse(&one.operator)?;
            let min_values = one.min_values.and_then(|count| u32::try_from(count).ok());
            Some(
                requirement::requirement(&one.key, operator, &one.values, interner)
                    .with_min_values(min_values),
            )
        })
        .collect()
}
