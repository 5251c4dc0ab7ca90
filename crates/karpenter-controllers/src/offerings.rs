//! A cloud provider that filters the instance types of another one by feature gates and applies the corrections of
//! NodeOverlays.
//!
//! All other calls are passed to the wrapped provider. While the gate NodeOverlay is enabled, a NodePool has no
//! instance types until the NodeOverlays are evaluated for it, so that no instance is launched at a price that is about
//! to be corrected. Upstream: pkg/cloudprovider/overlay/cloudprovider.go, pkg/controllers/nodeoverlay/store.go.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cloud::{
    CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RegistrationHook, RepairPolicy,
};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::{label, name_of};
use karpenter_state::overlays::{self, Corrections};

use crate::settings::FeatureGates;

type Types = Arc<Vec<InstanceType>>;

/// The result of evaluating NodeOverlays: corrections of instance types. Clones share the state.
#[derive(Clone, Default)]
pub struct OverlayStore {
    shared: Arc<Mutex<Stored>>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Stored {
    corrections: Corrections,
    /// NodePools for which the NodeOverlays were evaluated.
    evaluated: BTreeSet<String>,
    /// Cache of the corrected instance types by NodePool.
    corrected: BTreeMap<String, CorrectedTypes>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct CorrectedTypes {
    original: Types,
    labels: Option<BTreeMap<String, String>>,
    corrected_types: Types,
    repriced: BTreeSet<Arc<str>>,
    resized: BTreeSet<Arc<str>>,
}

impl OverlayStore {
    /// Replaces the corrections of all NodePools at once.
    pub fn replace(&self, corrections: Corrections, evaluated: BTreeSet<String>) {
        let mut stored = self.stored();
        let is_changed = stored.corrections != corrections || stored.evaluated != evaluated;
        if stored.corrections != corrections {
            stored.corrected.clear();
        }
        stored.corrected.retain(|pool, _| evaluated.contains(pool));
        stored.corrections = corrections;
        stored.evaluated = evaluated;
        let listeners = if is_changed { stored.listeners.clone() } else { Vec::new() };
        drop(stored);
        for listener in listeners {
            listener();
        }
    }

    /// Calls `listener` whenever corrections change, because prices or capacities may then be different.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.stored().listeners.push(Arc::new(listener));
    }

    /// The instance types of a NodePool with corrections.
    pub fn apply(&self, pool: &NodePool, types: Types) -> Result<Types, CloudError> {
        let name = name_of(pool);
        let mut stored = self.stored();
        if !stored.evaluated.contains(name) {
            return Err(CloudError::NotEvaluated { pool: name.to_owned() });
        }
        let labels = pool.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        if let Some(corrected) = stored.corrected.get(name)
            && Arc::ptr_eq(&corrected.original, &types)
            && corrected.labels == labels
        {
            return Ok(corrected.corrected_types.clone());
        }
        let corrected = match overlays::apply(&stored.corrections, pool, &types) {
            Some(corrected) => CorrectedTypes {
                original: types,
                labels,
                corrected_types: Arc::new(corrected.types),
                repriced: corrected.repriced,
                resized: corrected.resized,
            },
            None => CorrectedTypes {
                original: types.clone(),
                labels,
                corrected_types: types,
                repriced: BTreeSet::new(),
                resized: BTreeSet::new(),
            },
        };
        let corrected_types = corrected.corrected_types.clone();
        stored.corrected.insert(name.to_owned(), corrected);
        Ok(corrected_types)
    }

    /// Annotates a NodeClaim if NodeOverlays changed the price or capacity of its instance types.
    pub fn annotate(&self, claim: &mut NodeClaim) {
        let stored = self.stored();
        let corrected = label(claim, labels::NODEPOOL).and_then(|pool| stored.corrected.get(pool));
        let Some(corrected) = corrected else { return };
        let named = claim.spec.requirements.iter().filter(|one| one.key == labels::INSTANCE_TYPE);
        let named: Vec<&str> = named.flat_map(|one| one.values.iter().map(String::as_str)).collect();
        let is_among =
            |corrected_names: &BTreeSet<Arc<str>>| named.iter().any(|name| corrected_names.contains(*name));
        let annotations = [
            (labels::ANNOTATION_PRICE_OVERLAY_APPLIED, is_among(&corrected.repriced)),
            (labels::ANNOTATION_CAPACITY_OVERLAY_APPLIED, is_among(&corrected.resized)),
        ];
        for (key, _) in annotations.into_iter().filter(|(_, is_applied)| *is_applied) {
            claim.metadata.annotations.get_or_insert_default().insert(key.to_owned(), "true".to_owned());
        }
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cloud provider whose instance types are filtered by feature gates and corrected by NodeOverlays.
pub struct Offerings {
    inner: Arc<dyn CloudProvider>,
    gates: FeatureGates,
    overlays: OverlayStore,
    /// By NodePool: the provider's list, and the same list without reserved offerings.
    without_reserved_cache: Mutex<BTreeMap<String, (Types, Types)>>,
}

impl Offerings {
    pub fn new(inner: Arc<dyn CloudProvider>, gates: FeatureGates, overlays: OverlayStore) -> Self {
        Self { inner, gates, overlays, without_reserved_cache: Mutex::default() }
    }

    /// The instance types of a NodePool without the corrections of NodeOverlays.
    pub async fn without_overlays(&self, pool: &NodePool) -> Result<Types, CloudError> {
        let types = self.inner.instance_types(pool).await?;
        Ok(if self.gates.reserved_capacity { types } else { self.without_reserved(name_of(pool), types) })
    }

    fn without_reserved(&self, pool: &str, types: Types) -> Types {
        let mut without_reserved_cache =
            self.without_reserved_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((original, corrected_types)) = without_reserved_cache.get(pool)
            && Arc::ptr_eq(original, &types)
        {
            return corrected_types.clone();
        }
        let left = without_reserved(&types).map_or_else(|| types.clone(), Arc::new);
        without_reserved_cache.insert(pool.to_owned(), (types, left.clone()));
        left
    }

    async fn offered(&self, pool: &NodePool) -> Result<Types, CloudError> {
        let types = self.without_overlays(pool).await?;
        if self.gates.node_overlay { self.overlays.apply(pool, types) } else { Ok(types) }
    }
}

/// The instance types without reserved offerings; `None` if no offering is reserved.
fn without_reserved(types: &[InstanceType]) -> Option<Vec<InstanceType>> {
    let has_reserved = |one: &InstanceType| one.offerings.iter().any(|offering| offering.is_reserved());
    if !types.iter().any(has_reserved) {
        return None;
    }
    let mut left = types.to_vec();
    for one in &mut left {
        one.offerings.retain(|offering| !offering.is_reserved());
    }
    Some(left)
}

impl CloudProvider for Offerings {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        self.inner.node_class_kinds()
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        self.inner.well_known_labels()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        self.inner.create(claim)
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.inner.delete(claim)
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        self.inner.get(provider_id)
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        self.inner.list()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Types> {
        Box::pin(self.offered(pool))
    }

    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        self.inner.drift_reason(claim)
    }

    fn reboot<'a>(&'a self, claim: &'a NodeClaim, operation_id: &'a str) -> CloudFuture<'a, ()> {
        self.inner.reboot(claim, operation_id)
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.inner.repair_policies()
    }

    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        self.inner.registration_hooks()
    }
}
