//! What pools can buy as this process sees it: the provider's offers, without what a gate switches off and with what
//! overlays correct.
//!
//! A cloud that wraps a cloud; every other call goes through. While the gate NodeOverlay is on, a pool has no offers
//! until overlays have been evaluated for it, so that nothing is bought at a price that an overlay is about to correct.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cloud::{
    CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RegistrationHook, RepairPolicy,
};
use karpenter_cluster::controllers::context::{label, name_of};
use karpenter_model::instance_type::InstanceType;
use karpenter_state::overlays::{self, Corrections};

use crate::operator::options::FeatureGates;

type Types = Arc<Vec<InstanceType>>;

/// What overlays come to at present. Clones share it.
#[derive(Clone, Default)]
pub struct OverlayStore {
    shared: Arc<Mutex<Stored>>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Stored {
    corrections: Corrections,
    /// Pools that the corrections were corrected for.
    evaluated: BTreeSet<String>,
    /// The last outcome by pool: asked for often, and only worth making once.
    corrected: BTreeMap<String, CorrectedTypes>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct CorrectedTypes {
    from: Types,
    labels: Option<BTreeMap<String, String>>,
    to: Types,
    repriced: BTreeSet<Arc<str>>,
    resized: BTreeSet<Arc<str>>,
}

impl OverlayStore {
    /// Replaces everything at one stroke.
    pub fn replace(&self, corrections: Corrections, evaluated: BTreeSet<String>) {
        let mut stored = self.stored();
        let is_news = stored.corrections != corrections || stored.evaluated != evaluated;
        if stored.corrections != corrections {
            stored.corrected.clear();
        }
        stored.corrected.retain(|pool, _| evaluated.contains(pool));
        stored.corrections = corrections;
        stored.evaluated = evaluated;
        let listeners = if is_news { stored.listeners.clone() } else { Vec::new() };
        drop(stored);
        for listener in listeners {
            listener();
        }
    }

    /// Calls `listener` whenever prices or sizes may have become others.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.stored().listeners.push(Arc::new(listener));
    }

    /// The types of a pool as overlays correct them.
    pub fn apply(&self, pool: &NodePool, types: Types) -> Result<Types, CloudError> {
        let name = name_of(pool);
        let mut stored = self.stored();
        if !stored.evaluated.contains(name) {
            return Err(CloudError::NotEvaluated { pool: name.to_owned() });
        }
        let labels = pool.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        if let Some(corrected) = stored.corrected.get(name)
            && Arc::ptr_eq(&corrected.from, &types)
            && corrected.labels == labels
        {
            return Ok(corrected.to.clone());
        }
        let corrected = match overlays::apply(&stored.corrections, pool, &types) {
            Some(corrected) => CorrectedTypes {
                from: types,
                labels,
                to: Arc::new(corrected.types),
                repriced: corrected.repriced,
                resized: corrected.resized,
            },
            None => CorrectedTypes {
                from: types.clone(),
                labels,
                to: types,
                repriced: BTreeSet::new(),
                resized: BTreeSet::new(),
            },
        };
        let to = corrected.to.clone();
        stored.corrected.insert(name.to_owned(), corrected);
        Ok(to)
    }

    /// Says on a claim whether overlays had a hand in its choice of instance types.
    pub fn annotate(&self, claim: &mut NodeClaim) {
        let stored = self.stored();
        let corrected = label(claim, labels::NODEPOOL).and_then(|pool| stored.corrected.get(pool));
        let Some(corrected) = corrected else { return };
        let named = claim.spec.requirements.iter().filter(|one| one.key == labels::INSTANCE_TYPE);
        let named: Vec<&str> = named.flat_map(|one| one.values.iter().map(String::as_str)).collect();
        let is_among = |touched: &BTreeSet<Arc<str>>| named.iter().any(|name| touched.contains(*name));
        let marks = [
            (labels::ANNOTATION_PRICE_OVERLAY_APPLIED, is_among(&corrected.repriced)),
            (labels::ANNOTATION_CAPACITY_OVERLAY_APPLIED, is_among(&corrected.resized)),
        ];
        for (key, _) in marks.into_iter().filter(|(_, is_applied)| *is_applied) {
            claim.metadata.annotations.get_or_insert_default().insert(key.to_owned(), "true".to_owned());
        }
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cloud whose offers pass through the gates.
pub struct Offerings {
    inner: Arc<dyn CloudProvider>,
    gates: FeatureGates,
    overlays: OverlayStore,
    /// The last list that was cut, and what was left of it, by pool.
    cut: Mutex<BTreeMap<String, (Types, Types)>>,
}

impl Offerings {
    pub fn new(inner: Arc<dyn CloudProvider>, gates: FeatureGates, overlays: OverlayStore) -> Self {
        Self { inner, gates, overlays, cut: Mutex::default() }
    }

    /// What a pool could buy if there were no overlays.
    pub async fn without_overlays(&self, pool: &NodePool) -> Result<Types, CloudError> {
        let types = self.inner.instance_types(pool).await?;
        Ok(if self.gates.reserved_capacity { types } else { self.without_reserved(name_of(pool), types) })
    }

    fn without_reserved(&self, pool: &str, types: Types) -> Types {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, to)) = cut.get(pool)
            && Arc::ptr_eq(from, &types)
        {
            return to.clone();
        }
        let left = without_reserved(&types).map_or_else(|| types.clone(), Arc::new);
        cut.insert(pool.to_owned(), (types, left.clone()));
        left
    }

    async fn offered(&self, pool: &NodePool) -> Result<Types, CloudError> {
        let types = self.without_overlays(pool).await?;
        if self.gates.node_overlay { self.overlays.apply(pool, types) } else { Ok(types) }
    }
}

/// The types without their reserved offerings; `None` if there are none.
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
