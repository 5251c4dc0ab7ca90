//! Controllers of instance types: discovery every 12 hours, offering metrics every minute, and prices from
//! NodeOverlays.
//!
//! Upstream: `pkg/controllers/providers/instancetype`

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karpenter_api::types::NodeOverlay;
use karpenter_controllers::Context;
use karpenter_controllers::stores::listed;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::InstanceTypes;
use super::metrics::{TypeMetrics, merged_offerings};
use super::overlay_prices::stated_prices;

const DISCOVERY_PERIOD: Duration = Duration::from_secs(12 * 60 * 60);
const METRICS_PERIOD: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(60);

/// Discovers instance types again at an interval. [`crate::assembly`] makes the first discovery at start.
pub struct DiscoveryController {
    types: InstanceTypes,
    metrics: TypeMetrics,
    /// Names of instance types that the built-in tables lack and for which this was logged.
    logged: Mutex<BTreeSet<String>>,
}

impl DiscoveryController {
    pub fn new(types: InstanceTypes, metrics: TypeMetrics) -> Self {
        Self { types, metrics, logged: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    /// Logs which instance types the built-in tables lack: each only once, and new ones in one line.
    fn log_types_newer_than_tables(&self) {
        let discovered = self.types.discovered();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<&str> =
            discovered.newer_than_tables().filter(|name| logged.insert((*name).to_owned())).collect();
        if !new.is_empty() {
            let instance_types = new.join(",");
            tracing::warn!(
                instance_types,
                "instance types are missing in the built-in tables, they have no pod-eni capacity"
            );
        }
    }
}

impl Reconcile for DiscoveryController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let outcome = self.types.discover().await;
        self.log_types_newer_than_tables();
        self.metrics.record_instance_types(&self.types.discovered());
        match outcome {
            Ok(()) => Ok(Requeue::After(DISCOVERY_PERIOD)),
            Err(error) => {
                tracing::error!(%error, "failed to discover instance types, using last known instance types");
                Ok(Requeue::After(RETRY))
            }
        }
    }
}

/// Updates the metrics of offerings from the instance types of all NodePools.
pub struct OfferingMetricsController {
    context: Context,
    metrics: TypeMetrics,
    uses_reservations: bool,
}

impl OfferingMetricsController {
    pub fn new(context: Context, metrics: TypeMetrics, uses_reservations: bool) -> Self {
        Self { context, metrics, uses_reservations }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }
}

impl Reconcile for OfferingMetricsController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let mut catalogs: Vec<Arc<Vec<InstanceType>>> = Vec::new();
        for pool in self.context.stores.node_pools.list() {
            if !self.context.is_managed(&pool.spec.template.spec.node_class_ref) {
                continue;
            }
            // If the node class of a NodePool is not ready, the metrics of other NodePools are still updated.
            match self.context.cloud.instance_types(&pool).await {
                Ok(types) if catalogs.iter().any(|known| Arc::ptr_eq(known, &types)) => {}
                Ok(types) => catalogs.push(types),
                Err(error) => tracing::debug!(%error, "nodepool has no instance types"),
            }
        }
        self.metrics.record_offerings(&merged_offerings(
            catalogs.iter().map(|types| types.as_slice()),
            self.uses_reservations,
        ));
        Ok(Requeue::After(METRICS_PERIOD))
    }
}

/// Passes prices that NodeOverlays state to the instance types. It runs only with the feature gate NodeOverlay.
pub struct OverlayPricesController {
    context: Context,
    types: InstanceTypes,
}

impl OverlayPricesController {
    pub fn new(context: Context, types: InstanceTypes) -> Self {
        Self { context, types }
    }

    pub fn watch(&self, queue: &Queue) {
        if let Some(overlays) = &self.context.stores.node_overlays {
            let to = queue.clone();
            overlays.observe(move |_: &Change<NodeOverlay>| to.add_debounced(ObjectKey::new("", "all")));
        }
        queue.add(ObjectKey::new("", "all"));
    }
}

impl Reconcile for OverlayPricesController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let overlays = listed(self.context.stores.node_overlays.as_ref());
        self.types.set_stated_prices(stated_prices(overlays.iter().map(|overlay| &**overlay)));
        Ok(Requeue::No)
    }
}
