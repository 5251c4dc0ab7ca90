//! VolumeAttachments: attaches a volume to the node of a pod that mounts it, and detaches it when the last such pod is
//! gone. Attaching always succeeds at once.
//!
//! Upstream: pkg/controller/volume/attachdetach/attach_detach_controller.go

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_model::stdx::fnv32a;
use karpenter_runtime::object::{ObjectKey, is_already_exists, namespace_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::decide::volume_of;
use crate::controllers::context::Context;
use crate::controllers::pods;
use crate::stores::{BY_CLAIM, BY_NODE_AND_VOLUME, claims_of};

/// The controller; the keys of its queue are a node (as the namespace) and a volume (as the name).
pub struct Attachments {
    pub context: Context,
}

/// The volumes that a pod's claims are bound to.
fn volumes_of(pod: &Pod, claims: &Store<k8s_openapi::api::core::v1::PersistentVolumeClaim>) -> Vec<String> {
    let found = claims_of(pod).into_iter().filter_map(|claim| claims.get(namespace_of(pod), &claim));
    found.filter_map(|claim| volume_of(&claim).map(str::to_string)).collect()
}

impl Attachments {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let (to, claims) = (queue.clone(), stores.claims.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            for pod in change.both() {
                let Some(node) = pods::node_name(pod) else { continue };
                for volume in volumes_of(pod, &claims) {
                    to.add(ObjectKey::new(node, volume));
                }
            }
        });
        let (to, pods) = (queue.clone(), stores.pods.clone());
        stores.claims.observe(move |change| {
            let key = ObjectKey::of(&change.object().metadata);
            let Some(volume) = volume_of(change.object()) else { return };
            for pod in pods.by(BY_CLAIM, &key.to_string()) {
                if let Some(node) = pods::node_name(&pod) {
                    to.add(ObjectKey::new(node, volume));
                }
            }
        });
        let to = queue.clone();
        stores.attachments.observe(move |change| to.add(key_of(change.object())));
    }

    /// Whether a pod on the node still mounts the volume.
    fn is_wanted(&self, key: &ObjectKey) -> bool {
        let stores = &self.context.stores;
        let on_node = stores.pods.by(crate::stores::BY_NODE, &key.namespace);
        on_node
            .iter()
            .filter(|pod| !pods::is_finished(pod))
            .any(|pod| volumes_of(pod, &stores.claims).contains(&key.name))
    }
}

fn key_of(attachment: &VolumeAttachment) -> ObjectKey {
    let spec = &attachment.spec;
    ObjectKey::new(&spec.node_name, spec.source.persistent_volume_name.clone().unwrap_or_default())
}

fn attachment_name(key: &ObjectKey, driver: &str) -> String {
    let first = fnv32a(format!("{}/{}/{driver}", key.name, key.namespace).as_bytes());
    let second = fnv32a(format!("{driver}/{}/{}", key.namespace, key.name).as_bytes());
    format!("csi-{first:08x}{second:08x}")
}

impl Reconcile for Attachments {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let known = stores.attachments.by(BY_NODE_AND_VOLUME, &key.to_string());
        let known = known.first();
        let volume = stores.volumes.get("", &key.name);
        let driver =
            volume.as_ref().and_then(|volume| Some(volume.spec.as_ref()?.csi.as_ref()?.driver.clone()));
        let node_exists = stores.nodes.get("", &key.namespace).is_some();
        match (known, driver.filter(|_| self.is_wanted(key) && node_exists)) {
            (None, Some(driver)) => {
                let metadata =
                    ObjectMeta { name: Some(attachment_name(key, &driver)), ..ObjectMeta::default() };
                let source = VolumeAttachmentSource {
                    persistent_volume_name: Some(key.name.clone()),
                    ..VolumeAttachmentSource::default()
                };
                let spec =
                    VolumeAttachmentSpec { attacher: driver, node_name: key.namespace.clone(), source };
                let attachment = VolumeAttachment { metadata, spec, status: None };
                match self.context.create(&stores.attachments, &attachment).await {
                    Err(error) if is_already_exists(&error) => {}
                    outcome => drop(outcome?),
                }
            }
            (Some(attachment), Some(_)) => {
                let old = attachment.status.clone().unwrap_or_default();
                let mut new = old.clone();
                new.attached = true;
                let unset = attachment.status.is_none() || !old.attached;
                if unset {
                    self.context.merge_status(&stores.attachments, &**attachment, &old, &new).await?;
                }
            }
            (Some(attachment), None) => self.context.delete(&stores.attachments, &**attachment).await?,
            (None, None) => {}
        }
        Ok(Requeue::No)
    }
}
