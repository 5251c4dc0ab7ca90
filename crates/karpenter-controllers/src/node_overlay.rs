//! Evaluates NodeOverlays: validates them, finds conflicts, and writes their status.
//!
//! All NodeOverlays are evaluated in one pass, because one may conflict with another. When all statuses are written,
//! the result replaces the previous one as a whole. Upstream: pkg/controllers/nodeoverlay/controller.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::conditions::{ConditionSet, NODE_OVERLAY_CONDITIONS};
use karpenter_api::runtime::runtime_errors;
use karpenter_api::types::{NodeOverlay, NodeOverlayStatus};
use karpenter_cloud::CloudProvider;
use karpenter_runtime::object::{ObjectKey, is_conflict, is_not_found, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::overlays::{self, OfferedPool};
use kube::Resource;

use crate::inputs::{Reads, Writes};
use crate::offerings::{Offerings, OverlayStore};
use crate::stores::listed;
use crate::writes;

const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// NodeOverlays are evaluated again after this time, because changed prices and offerings trigger no reconcile.
const EVALUATION_PERIOD: Duration = Duration::from_secs(6 * 3600);
/// Retry after the instance types of a NodePool could not be resolved.
const RESOLUTION_RETRY: Duration = Duration::from_secs(10);

/// Evaluates NodeOverlays whenever one of them, a NodePool or a node class changes.
pub struct NodeOverlays {
    pub reads: Reads,
    pub writes: Writes,
    pub overlays: OverlayStore,
    pub offerings: Arc<Offerings>,
}

impl NodeOverlays {
    pub fn watch(&self, queue: &Queue) {
        // The evaluation must run even if there are no NodeOverlays, because a NodePool launches nothing before it is
        // evaluated.
        queue.add(key());
        if let Some(overlays) = &self.reads.stores.node_overlays {
            on_new_generation(overlays, queue);
        }
        on_new_generation(&self.reads.stores.node_pools, queue);
        for (_, classes) in &self.reads.stores.node_classes {
            on_new_generation(classes, queue);
        }
    }
}

/// The only key of this controller, because all NodeOverlays are evaluated together.
fn key() -> ObjectKey {
    ObjectKey::new("", "overlays")
}

fn on_new_generation<K>(store: &Store<K>, queue: &Queue)
where
    K: Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let to = queue.clone();
    store.observe(move |change| {
        let is_changed = match change {
            Change::Applied { old: Some(old), new } => old.meta().generation != new.meta().generation,
            Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
        };
        if is_changed {
            to.add(key());
        }
    });
}

impl Reconcile for NodeOverlays {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let overlays = listed(self.reads.stores.node_overlays.as_ref());
        let mut pools = Vec::new();
        let mut after = Requeue::After(EVALUATION_PERIOD);
        for pool in self.reads.stores.node_pools.list() {
            if !self.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
                continue;
            }
            match self.offerings.without_overlays(&pool).await {
                Ok(instance_types) => pools.push(OfferedPool { pool, instance_types }),
                Err(error) => {
                    let name = name_of(&*pool);
                    tracing::error!(nodepool = name, %error, "failed to evaluate overlays, unable to resolve instance types");
                    after = after.earlier(Requeue::After(RESOLUTION_RETRY));
                }
            }
        }
        let invalid: BTreeMap<&str, String> = overlays
            .iter()
            .filter_map(|overlay| Some((name_of(&**overlay), validation_error(overlay)?)))
            .collect();
        let valid = overlays.iter().filter(|one| !invalid.contains_key(name_of(&***one)));
        let evaluation =
            overlays::evaluate(valid.map(AsRef::as_ref), &pools, &self.offerings.well_known_labels());
        let now = self.reads.clock.now();
        for overlay in &overlays {
            let name = name_of(&**overlay);
            let error = match invalid.get(name) {
                Some(error) => Some(("RuntimeValidation", error.as_str())),
                None => evaluation
                    .conflicting
                    .contains(name)
                    .then_some(("Conflict", "conflict with another overlay")),
            };
            if !self.write(overlay, error, now).await? {
                // The NodeOverlay was changed during the evaluation, so its result is obsolete and it is evaluated
                // again.
                return Ok(Requeue::After(Duration::ZERO));
            }
        }
        let evaluated: BTreeSet<String> = pools.iter().map(|one| name_of(&*one.pool).to_owned()).collect();
        self.overlays.replace(evaluation.corrections, evaluated);
        Ok(after)
    }
}

impl NodeOverlays {
    /// Writes the status of a NodeOverlay. Returns `false` if the NodeOverlay has changed since it was read.
    async fn write(
        &self,
        overlay: &NodeOverlay,
        error: Option<(&str, &str)>,
        now: Timestamp,
    ) -> kube::Result<bool> {
        let Some(store) = &self.reads.stores.node_overlays else { return Ok(true) };
        let old = overlay.status.clone().unwrap_or_default();
        let new = decide_status(overlay, error, now);
        match writes::status_unchanged(&self.writes.client, store, overlay, &old, &new).await {
            Ok(Some(_)) => Ok(true),
            // Nothing was written: the status is unchanged, or the NodeOverlay no longer exists.
            Ok(None) => Ok(old == new),
            Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The desired status of a NodeOverlay.
pub fn decide_status(
    overlay: &NodeOverlay,
    error: Option<(&str, &str)>,
    now: Timestamp,
) -> NodeOverlayStatus {
    let mut status = overlay.status.clone().unwrap_or_default();
    let mut set = ConditionSet::open(NODE_OVERLAY_CONDITIONS, &overlay.metadata, &mut status.conditions, now);
    match error {
        Some((reason, message)) => set.set_false(VALIDATION_SUCCEEDED, reason, message),
        None => set.set_true(VALIDATION_SUCCEEDED),
    };
    status
}

/// All validation errors that only the controller can find, not the CRD, in one line.
fn validation_error(overlay: &NodeOverlay) -> Option<String> {
    let object = serde_json::to_value(overlay).ok()?;
    let errors: Vec<String> =
        runtime_errors("NodeOverlay", &object).iter().map(ToString::to_string).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}
