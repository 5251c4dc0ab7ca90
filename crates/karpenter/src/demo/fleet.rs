//! Reads the nodes of the cluster, and computes the lower bound of the price for its pods.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_controllers::Context;
use karpenter_runtime::object::label;
use karpenter_scheduling::schedule;
use karpenter_state::pod::Pod;
use karpenter_state::{ClusterInput, PoolInput, assemble_cluster};

use super::chronicle::Machine;

/// Karpenter's nodes, by name.
pub(super) fn nodes(context: &Context) -> Vec<Arc<Node>> {
    let nodes = context.stores.nodes.list();
    nodes.into_iter().filter(|node| label(&**node, labels::NODEPOOL).is_some()).collect()
}

pub(super) fn price_per_hour(nodes: &[Arc<Node>]) -> f64 {
    nodes.iter().map(|node| Machine::of(&**node).price_per_hour).sum()
}

/// The lower bound of the price of a fleet for the current pods.
pub(super) async fn lower_bound_per_hour(context: &Context) -> Result<f64> {
    let mut pools = Vec::new();
    for pool in context.stores.node_pools.list() {
        let instance_types =
            context.cloud.instance_types(&pool).await.context("the provider has no instance types")?;
        pools.push(PoolInput { pool, instance_types });
    }
    let pods = context.stores.pods.list().into_iter();
    let unbound = pods.map(|pod| Arc::new(Pod { node_name: None, ..(*pod).clone() }));
    let live = ClusterInput {
        pools,
        well_known: context.cloud.well_known_labels(),
        pending: unbound.collect(),
        daemon_sets: context.stores.daemon_sets.list(),
        namespaces: context.stores.namespaces.list(),
        ..ClusterInput::default()
    };
    Ok(schedule(&assemble_cluster(&live).problem).lower_bound_per_hour)
}
