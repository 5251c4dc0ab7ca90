//! Inputs of the provider that are created after the provider: stores, NodeOverlays and the metrics registry.

use std::sync::{Arc, OnceLock};

use karpenter_api::types::NodePool;
use karpenter_controllers::offerings::OverlayStore;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::store::Store;
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::node_class::Lookup;
use crate::provider::{Objects, OverlaySource, WatchedObjects};

/// The operator's stores of watched objects; empty until `set` is called.
#[derive(Clone, Default)]
pub(super) struct DeferredObjects(Arc<OnceLock<WatchedObjects>>);

impl DeferredObjects {
    /// Sets the objects; only the first call has an effect.
    pub(super) fn set(&self, objects: WatchedObjects) {
        let _ = self.0.set(objects);
    }
}

impl Objects for DeferredObjects {
    fn class(&self, name: &str) -> Lookup {
        self.0.get().map_or(Lookup::Missing, |objects| objects.class(name))
    }

    fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.0.get()?.pool(name)
    }
}

/// The evaluated NodeOverlays; empty until they are set.
#[derive(Clone, Default)]
pub(super) struct DeferredOverlays(Arc<OnceLock<(OverlayStore, Store<NodePool>)>>);

impl DeferredOverlays {
    pub(super) fn set(&self, overlays: OverlayStore, pools: Store<NodePool>) {
        let _ = self.0.set((overlays, pools));
    }
}

impl OverlaySource for DeferredOverlays {
    /// Applies NodeOverlays. A NodePool whose overlays are not evaluated yet launches no NodeClaims, so its instance
    /// types are returned unchanged.
    fn apply(&self, pool_name: &str, types: Arc<Vec<InstanceType>>) -> Arc<Vec<InstanceType>> {
        let Some((overlays, pools)) = self.0.get() else { return types };
        let Some(pool) = pools.get("", pool_name) else { return types };
        overlays.apply(&pool, types.clone()).unwrap_or(types)
    }
}

/// Exports one metrics registry through another.
pub(super) struct Forwarded {
    registry: Registry,
    described: Vec<Desc>,
}

impl Forwarded {
    pub(super) fn new(registry: Registry) -> Self {
        let help = "Whether the metrics of the provider are exported; always 1.";
        let described = Desc::new(
            "karpenter_cloudprovider_counts_told".to_owned(),
            help.to_owned(),
            Vec::new(),
            Default::default(),
        );
        Self { registry, described: described.into_iter().collect() }
    }
}

impl Collector for Forwarded {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}
