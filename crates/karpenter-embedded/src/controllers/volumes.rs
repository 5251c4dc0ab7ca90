//! PersistentVolume controller: binds claims to volumes, provisions volumes for classes with a provisioner, and
//! reclaims volumes whose claim is gone.
//!
//! Every provisioner is simulated: its volumes appear at once, in the zone of the node that the scheduler selected for
//! the first pod. With `WaitForFirstConsumer`, volumes are provisioned only after the scheduler has selected a node.
//!
//! Upstream: pkg/controller/volume/persistentvolume/pv_controller.go

mod attach;
mod decide;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;

pub use self::attach::Attachments;
use karpenter_runtime::object::{ObjectKey, is_already_exists, is_deleting, name_of, namespace_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use self::decide::{ClaimStep, VolumeStep};
use super::context::Context;
use super::pods;
use crate::stores::{BY_CLAIM, claims_of};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Binds, provisions and protects claims.
pub struct Claims {
    pub context: Context,
}

impl Claims {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.claims.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let (to, claims) = (queue.clone(), stores.claims.clone());
        stores.volumes.observe(move |change: &Change<PersistentVolume>| {
            let claim = change.object().spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            match claim {
                Some(claim) => to.add(ObjectKey::new(
                    claim.namespace.clone().unwrap_or_default(),
                    claim.name.clone().unwrap_or_default(),
                )),
                // An available volume may match any unbound claim, so all of them are reconciled.
                None => {
                    for claim in claims.list().iter().filter(|claim| decide::volume_of(claim).is_none()) {
                        to.add(ObjectKey::of(&claim.metadata));
                    }
                }
            }
        });
        let (to, claims) = (queue.clone(), stores.claims.clone());
        stores.storage_classes.observe(move |_| {
            for claim in claims.list().iter().filter(|claim| decide::volume_of(claim).is_none()) {
                to.add(ObjectKey::of(&claim.metadata));
            }
        });
        // Changes of pods matter for two reasons: a deleted claim is kept until its last pod is gone, and the claim of
        // an ephemeral volume is created with the pod.
        let to = queue.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            let pod = change.object();
            for claim in claims_of(pod) {
                to.add(ObjectKey::new(namespace_of(&**pod), claim));
            }
        });
    }

    fn is_used(&self, key: &ObjectKey) -> bool {
        let pods = self.context.stores.pods.by(BY_CLAIM, &key.to_string());
        pods.iter().any(|pod| !pods::is_finished(pod))
    }

    /// Creates the claim of a generic ephemeral volume.
    async fn create_ephemeral(&self, key: &ObjectKey) -> kube::Result<()> {
        let stores = &self.context.stores;
        for pod in stores.pods.by(BY_CLAIM, &key.to_string()) {
            if is_deleting(&*pod) || pods::is_finished(&pod) {
                continue;
            }
            if let Some(claim) = decide::ephemeral_claim(&pod, &key.name) {
                match self.context.create(&stores.claims, &claim).await {
                    Err(error) if is_already_exists(&error) => {}
                    outcome => drop(outcome?),
                }
            }
        }
        Ok(())
    }

    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> kube::Result<()> {
        let stores = &self.context.stores;
        if let Some(patch) = decide::volume_binding(claim, volume)
            && self.context.merge_unchanged(&stores.volumes, volume, patch).await?.is_none()
        {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"volumeName": name_of(volume)},
        });
        let bound = match decide::volume_of(claim) {
            Some(_) if karpenter_runtime::object::annotation(claim, BIND_COMPLETED).is_some() => {
                Some(claim.clone())
            }
            _ => self.context.merge_unchanged(&stores.claims, claim, patch).await?,
        };
        let Some(bound) = bound else { return Ok(()) };
        let old = bound.status.clone().unwrap_or_default();
        let new = decide::bound_status(&old, volume);
        self.context.merge_status(&stores.claims, &bound, &old, &new).await
    }
}

impl Reconcile for Claims {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(claim) = stores.claims.get_key(key) else {
            self.create_ephemeral(key).await?;
            return Ok(Requeue::No);
        };
        if is_deleting(&*claim) {
            if !self.is_used(key) {
                unprotect(&self.context, &stores.claims, &*claim, CLAIM_PROTECTION).await?;
            }
            return Ok(Requeue::No);
        }
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
        let class = stores.storage_classes.get("", &class);
        let node = karpenter_runtime::object::annotation(&*claim, SELECTED_NODE)
            .and_then(|name| stores.nodes.get("", name));
        match decide::claim_step(&claim, class.as_deref(), node.as_deref(), &stores.volumes.list()) {
            ClaimStep::Nothing => {}
            ClaimStep::Bind(volume) => self.bind(&claim, &volume).await?,
            ClaimStep::Provision(volume) => {
                let provisioner = class.as_ref().map(|class| class.provisioner.clone()).unwrap_or_default();
                let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner}}});
                self.context.merge(&stores.claims, &*claim, patch).await?;
                match self.context.create(&stores.volumes, &volume).await {
                    Err(error) if is_already_exists(&error) => {}
                    outcome => drop(outcome?),
                }
            }
            ClaimStep::Lost => {
                let old = claim.status.clone().unwrap_or_default();
                let mut new = old.clone();
                new.phase = Some("Lost".into());
                self.context.merge_status(&stores.claims, &*claim, &old, &new).await?;
            }
        }
        Ok(Requeue::No)
    }
}

async fn unprotect<K: super::context::Kind>(
    context: &Context,
    store: &karpenter_runtime::store::Store<K>,
    object: &K,
    finalizer: &str,
) -> kube::Result<()> {
    let finalizers = object.meta().finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|known| known == finalizer) {
        return Ok(());
    }
    let left: Vec<&String> = finalizers.iter().filter(|known| *known != finalizer).collect();
    let patch = json!({"metadata": {"finalizers": left}});
    context.merge_unchanged(store, object, patch).await.map(drop)
}

/// Sets the phases of volumes, and releases and reclaims them.
pub struct Volumes {
    pub context: Context,
}

impl Volumes {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.volumes.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let to = queue.clone();
        stores.claims.observe(move |change: &Change<PersistentVolumeClaim>| {
            for claim in change.both() {
                if let Some(volume) = decide::volume_of(claim) {
                    to.add(ObjectKey::new("", volume));
                }
            }
        });
    }
}

impl Reconcile for Volumes {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(volume) = stores.volumes.get_key(key) else { return Ok(Requeue::No) };
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let claim = reference.as_ref().and_then(|reference| {
            let claim = stores.claims.get(reference.namespace.as_deref()?, reference.name.as_deref()?)?;
            let same = reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || uid == uid_of(&*claim));
            same.then_some(claim)
        });
        match decide::volume_step(&volume, claim.as_deref()) {
            VolumeStep::Nothing => {}
            VolumeStep::Phase(phase) => {
                let old = volume.status.clone().unwrap_or_default();
                let mut new = old.clone();
                new.phase = Some(phase.to_string());
                new.last_phase_transition_time = Some(self.context.clock.time());
                self.context.merge_status(&stores.volumes, &*volume, &old, &new).await?;
            }
            VolumeStep::Delete => self.context.delete(&stores.volumes, &*volume).await?,
            VolumeStep::Unprotect => {
                unprotect(&self.context, &stores.volumes, &*volume, VOLUME_PROTECTION).await?;
            }
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests;
