//! What provisioning, disruption and the CapacityBuffer controller have in common: the virtual pods of buffers, the
//! detection of relevant changes, and status patches.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_api::types::{CapacityBuffer, CapacityBufferStatus, Condition, ConditionStatus};
use karpenter_runtime::object::{is_not_found, name_of, namespace_of, uid_of};
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::write::difference;
use karpenter_state::buffers::{self, READY_FOR_PROVISIONING, Workloads};
use karpenter_state::pod::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::json;

use crate::settings::FeatureGates;
use crate::stores::{Stores, listed};

/// Whether a buffer has the same virtual pods before and after a change. Changes of the conditions that provisioning
/// writes are ignored.
pub(crate) fn asks_for_same_pods(old: &CapacityBuffer, new: &CapacityBuffer) -> bool {
    let requested = |buffer: &CapacityBuffer| {
        let status = buffer.status.clone().unwrap_or_default();
        let ready = status.conditions.into_iter().find(|one| one.type_ == READY_FOR_PROVISIONING);
        (status.replicas, status.pod_template_generation, ready.map(|one| (one.status, one.reason)))
    };
    old.metadata.generation == new.metadata.generation && requested(old) == requested(new)
}

/// Calls `notify` with every buffer that refers to an object whose spec changed.
pub(crate) fn observe_referenced_objects(
    stores: &Stores,
    notify: impl Fn(&CapacityBuffer) + Clone + Send + Sync + 'static,
) {
    let Some(buffers) = &stores.capacity_buffers else { return };
    observe_referenced(stores.pod_templates.as_ref(), buffers, notify.clone(), "PodTemplate");
    observe_referenced(stores.deployments.as_ref(), buffers, notify.clone(), "Deployment");
    observe_referenced(stores.stateful_sets.as_ref(), buffers, notify.clone(), "StatefulSet");
    observe_referenced(stores.replica_sets.as_ref(), buffers, notify, "ReplicaSet");
}

fn observe_referenced<K>(
    store: Option<&Store<K>>,
    buffers: &Store<CapacityBuffer>,
    notify: impl Fn(&CapacityBuffer) + Send + Sync + 'static,
    kind: &'static str,
) where
    K: Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let Some(store) = store else { return };
    let buffers = buffers.clone();
    store.observe(move |change| {
        if let Change::Applied { old: Some(old), new } = change
            && old.meta().generation == new.meta().generation
            && old.meta().generation.is_some()
        {
            return;
        }
        let object = &**change.object();
        for buffer in buffers.list_in(namespace_of(object)) {
            if is_reference_to(&buffer, kind, name_of(object)) {
                notify(&buffer);
            }
        }
    });
}

pub(crate) fn is_reference_to(buffer: &CapacityBuffer, kind: &str, name: &str) -> bool {
    let spec = &buffer.spec;
    match kind {
        "PodTemplate" => spec.pod_template_ref.as_ref().is_some_and(|one| one.name == name),
        _ => spec.scalable_ref.as_ref().is_some_and(|one| {
            one.kind == kind
                && one.name == name
                && matches!(one.api_group.as_deref(), None | Some("" | "apps"))
        }),
    }
}

impl Workloads for Stores {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>> {
        self.pod_templates.as_ref()?.get(namespace, name)
    }

    fn deployment(&self, namespace: &str, name: &str) -> Option<Arc<Deployment>> {
        self.deployments.as_ref()?.get(namespace, name)
    }

    fn stateful_set(&self, namespace: &str, name: &str) -> Option<Arc<StatefulSet>> {
        self.stateful_sets.as_ref()?.get(namespace, name)
    }

    fn replica_set(&self, namespace: &str, name: &str) -> Option<Arc<ReplicaSet>> {
        self.replica_sets.as_ref()?.get(namespace, name)
    }
}

/// Sets a condition. Its transition time changes only with its status.
pub(crate) fn set_condition(
    status: &mut CapacityBufferStatus,
    buffer: &CapacityBuffer,
    type_: &str,
    (value, reason, message): (ConditionStatus, &str, &str),
    now: Timestamp,
) {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let present = status.conditions.iter_mut().find(|condition| condition.type_ == type_);
    let moved = present.as_ref().is_none_or(|condition| condition.status != value);
    let since = present.as_ref().and_then(|condition| condition.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: value,
        observed_generation: buffer.metadata.generation,
        last_transition_time: if moved { Some(now) } else { since },
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match present {
        Some(present) => *present = condition,
        None => status.conditions.push(condition),
    }
}

/// Patches the changed fields of the status. Fails with a conflict if the buffer changed since it was read.
pub(crate) async fn write_status(
    client: &Client,
    stores: &Stores,
    buffer: &CapacityBuffer,
    new: &CapacityBufferStatus,
) -> kube::Result<()> {
    let old = buffer.status.clone().unwrap_or_default();
    let Some(difference) = difference(&old, new) else { return Ok(()) };
    let api = Api::<CapacityBuffer>::namespaced(client.clone(), namespace_of(buffer));
    let metadata = json!({"uid": uid_of(buffer), "resourceVersion": buffer.metadata.resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": difference}));
    match api.patch_status(name_of(buffer), &PatchParams::default(), &patch).await {
        Ok(written) => {
            if let Some(store) = &stores.capacity_buffers {
                store.apply(written);
            }
            Ok(())
        }
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The virtual pods of all ready buffers.
pub(crate) fn virtual_pods(stores: &Stores, gates: &FeatureGates) -> Vec<Arc<Pod>> {
    if !gates.capacity_buffer {
        return Vec::new();
    }
    let ready = listed(stores.capacity_buffers.as_ref());
    let ready = ready.iter().filter(|buffer| buffers::is_ready(buffer));
    let pods = ready.filter_map(|buffer| {
        // The number of virtual pods is read from the status of the buffer, so that all controllers use the same
        // number.
        let count = buffer.status.as_ref()?.replicas.and_then(|count| u32::try_from(count).ok())?;
        let resolved = buffers::resolve(buffer, stores).ok()?;
        Some(buffers::virtual_pods(buffer, &resolved.template, count))
    });
    pods.flatten().collect()
}
