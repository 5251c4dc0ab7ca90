//! Decides which values of an API pod are stored. Only fields of [`crate::fields`] are read; of these, only values that
//! are used are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod as RawPod, PodSpec, PodStatus};
use karpenter_api::pod_requests::occupied;

use super::{Pod, SharedMeta, Status};
use crate::fields::Kept;

/// A pod before its parts are shared.
pub(super) struct TrimmedPod {
    name: Box<str>,
    uid: Box<str>,
    version: u64,
    generation: i64,
    created_at: Option<Timestamp>,
    deleted_at: Option<Timestamp>,
    node_name: Option<Box<str>>,
    pub(super) shared_meta: SharedMeta,
    spec: PodSpec,
    status: Status,
}

impl TrimmedPod {
    pub(super) fn joined(
        self,
        shared_meta: impl FnOnce(SharedMeta) -> Arc<SharedMeta>,
        spec: impl FnOnce(PodSpec) -> Arc<PodSpec>,
    ) -> Pod {
        Pod {
            name: self.name,
            uid: self.uid,
            version: self.version,
            generation: self.generation,
            created_at: self.created_at,
            deleted_at: self.deleted_at,
            node_name: self.node_name,
            shared_meta: shared_meta(self.shared_meta),
            spec: spec(self.spec),
            status: self.status,
        }
    }
}

pub(super) fn split(raw: RawPod) -> TrimmedPod {
    let raw = raw.keep();
    let metadata = raw.metadata;
    let mut spec = raw.spec.unwrap_or_default();
    trim_spec(&mut spec);
    let node_name = spec.node_name.take().filter(|name| !name.is_empty());
    let owners = metadata.owner_references.unwrap_or_default();
    let is_daemon = owners.iter().any(|owner| owner.kind == "DaemonSet" && owner.api_version == "apps/v1");
    if is_daemon && node_name.is_some() {
        unpin(&mut spec);
    }
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| is_known(key));
    let actual_resources = raw.status.as_ref().and_then(|status| actual_resources(&spec, status));
    let status = Status {
        actual_resources: actual_resources.map(Box::new),
        ..raw.status.map(Status::from).unwrap_or_default()
    };
    TrimmedPod {
        name: metadata.name.unwrap_or_default().into(),
        uid: metadata.uid.unwrap_or_default().into(),
        version: metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0),
        generation: metadata.generation.unwrap_or(0),
        created_at: metadata.creation_timestamp.map(|time| time.0),
        deleted_at: metadata.deletion_timestamp.map(|time| time.0),
        node_name: node_name.map(String::into_boxed_str),
        shared_meta: SharedMeta {
            namespace: metadata
                .namespace
                .filter(|name| !name.is_empty())
                .map_or("default".into(), Into::into),
            labels: metadata.labels.unwrap_or_default(),
            annotations,
            owners,
        },
        spec,
        status,
    }
}

/// Whether the annotation is one of Karpenter or Kubernetes.
fn is_known(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    domain.ends_with("karpenter.sh") || domain.ends_with("kubernetes.io")
}

/// Removes the affinity that pins a DaemonSet pod to its node. It contains no other information and would make the spec
/// of every pod different.
fn unpin(spec: &mut PodSpec) {
    let Some(affinity) = &mut spec.affinity else { return };
    if let Some(of_nodes) = &mut affinity.node_affinity {
        of_nodes.required_during_scheduling_ignored_during_execution = None;
        if of_nodes.preferred_during_scheduling_ignored_during_execution.is_none() {
            affinity.node_affinity = None;
        }
    }
    let affinity = spec.affinity.take();
    spec.affinity = affinity.filter(|affinity| *affinity != Default::default());
}

/// Removes volumes without a claim, and ports that are not ports of the host.
fn trim_spec(spec: &mut PodSpec) {
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    }
    spec.volumes.take_if(|volumes| volumes.is_empty());
    // On the host network, every container port is a host port, so ports are kept.
    let keeps_ports = spec.host_network == Some(true);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if let Some(ports) = &mut container.ports {
            ports.retain(|port| keeps_ports || port.host_port.is_some());
        }
        container.ports.take_if(|ports| ports.is_empty());
    }
}

/// The resources of containers, if they differ from the spec: a resize is in progress or was deferred.
fn actual_resources(spec: &PodSpec, status: &PodStatus) -> Option<PodStatus> {
    let statuses = [&status.container_statuses, &status.init_container_statuses];
    let mut sized = statuses.into_iter().flatten().flatten().filter(|one| one.resources.is_some()).peekable();
    sized.peek()?;
    let asked: BTreeMap<&str, &Container> = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .map(|one| (one.name.as_str(), one))
        .collect();
    let is_as_asked = |one: &ContainerStatus| {
        asked.get(one.name.as_str()).is_some_and(|container| {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            let allocated = one.allocated_resources.as_ref();
            container.resources == one.resources && (allocated.is_none() || allocated == requests)
        })
    };
    // The usual case: no resize, so that all resources equal the spec.
    if sized.all(is_as_asked) {
        return None;
    }
    let conditions = status.conditions.iter().flatten().filter(|one| one.type_.starts_with("PodResize"));
    let kept = PodStatus {
        conditions: Some(conditions.cloned().collect()),
        container_statuses: status.container_statuses.as_deref().map(sizes),
        init_container_statuses: status.init_container_statuses.as_deref().map(sizes),
        ..PodStatus::default()
    };
    let differs = match (occupied(spec, Some(&kept)), occupied(spec, None)) {
        (Ok(actual_resources), Ok(asked)) => actual_resources != asked,
        _ => true,
    };
    differs.then_some(kept)
}

fn sizes(statuses: &[ContainerStatus]) -> Vec<ContainerStatus> {
    let sized = statuses.iter().filter(|status| status.resources.is_some());
    sized
        .map(|status| ContainerStatus {
            name: status.name.clone(),
            resources: status.resources.clone(),
            allocated_resources: status.allocated_resources.clone(),
            ..ContainerStatus::default()
        })
        .collect()
}
