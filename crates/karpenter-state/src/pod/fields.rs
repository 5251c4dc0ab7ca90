//! Reads pods without unused fields. Most of a pod's text describes how containers are run, mounted and probed, and
//! deserializing that took most of the time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, ContainerStatus, EphemeralVolumeSource,
    PersistentVolumeClaimVolumeSource, Pod as RawPod, PodCondition, PodOS, PodResourceClaim,
    PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements, Toleration, TopologySpreadConstraint,
    Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

/// A pod of the API with only the kept fields set. API requests use this type instead of `Pod`.
#[derive(Debug, Clone)]
pub struct PodFields(pub RawPod);

impl k8s_openapi::Resource for PodFields {
    const API_VERSION: &'static str = RawPod::API_VERSION;
    const GROUP: &'static str = RawPod::GROUP;
    const KIND: &'static str = RawPod::KIND;
    const VERSION: &'static str = RawPod::VERSION;
    const URL_PATH_SEGMENT: &'static str = RawPod::URL_PATH_SEGMENT;
    type Scope = <RawPod as k8s_openapi::Resource>::Scope;
}

impl k8s_openapi::Metadata for PodFields {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl<'de> Deserialize<'de> for PodFields {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let Object { metadata, spec, status } = Object::deserialize(source)?;
        Ok(Self(RawPod { metadata, spec: spec.map(Into::into), status: status.map(Into::into) }))
    }
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<State>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    active_deadline_seconds: Option<i64>,
    affinity: Option<Affinity>,
    #[serde(default)]
    containers: Option<Vec<ContainerFields>>,
    host_network: Option<bool>,
    init_containers: Option<Vec<ContainerFields>>,
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    os: Option<PodOS>,
    overhead: Option<BTreeMap<String, Quantity>>,
    preemption_policy: Option<String>,
    priority: Option<i32>,
    priority_class_name: Option<String>,
    resource_claims: Option<Vec<PodResourceClaim>>,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
    runtime_class_name: Option<String>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Option<Vec<Toleration>>,
    topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    volumes: Option<Vec<VolumeFields>>,
}

impl From<Spec> for PodSpec {
    fn from(spec: Spec) -> Self {
        let containers = |parts: Vec<ContainerFields>| parts.into_iter().map(Into::into).collect();
        Self {
            active_deadline_seconds: spec.active_deadline_seconds,
            affinity: spec.affinity,
            containers: spec.containers.map(containers).unwrap_or_default(),
            host_network: spec.host_network,
            init_containers: spec.init_containers.map(containers),
            node_name: spec.node_name,
            node_selector: spec.node_selector,
            os: spec.os,
            overhead: spec.overhead,
            preemption_policy: spec.preemption_policy,
            priority: spec.priority,
            priority_class_name: spec.priority_class_name,
            resource_claims: spec.resource_claims,
            resources: spec.resources,
            restart_policy: spec.restart_policy,
            runtime_class_name: spec.runtime_class_name,
            scheduler_name: spec.scheduler_name,
            scheduling_gates: spec.scheduling_gates,
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            tolerations: spec.tolerations,
            topology_spread_constraints: spec.topology_spread_constraints,
            volumes: spec.volumes.map(|mounts| mounts.into_iter().map(Into::into).collect()),
            ..Self::default()
        }
    }
}

/// A container.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerFields {
    #[serde(default)]
    name: String,
    ports: Option<Vec<ContainerPort>>,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

impl From<ContainerFields> for Container {
    fn from(part: ContainerFields) -> Self {
        Self {
            name: part.name,
            ports: part.ports,
            resources: part.resources,
            restart_policy: part.restart_policy,
            ..Self::default()
        }
    }
}

/// A volume.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeFields {
    #[serde(default)]
    name: String,
    persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    ephemeral: Option<EphemeralVolumeSource>,
}

impl From<VolumeFields> for Volume {
    fn from(mount: VolumeFields) -> Self {
        Self {
            name: mount.name,
            persistent_volume_claim: mount.persistent_volume_claim,
            ephemeral: mount.ephemeral,
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    start_time: Option<Time>,
    nominated_node_name: Option<String>,
    container_statuses: Option<Vec<ContainerStatusFields>>,
    init_container_statuses: Option<Vec<ContainerStatusFields>>,
}

impl From<State> for PodStatus {
    fn from(state: State) -> Self {
        let statuses = |parts: Vec<ContainerStatusFields>| parts.into_iter().map(Into::into).collect();
        Self {
            phase: state.phase,
            conditions: state.conditions,
            start_time: state.start_time,
            nominated_node_name: state.nominated_node_name,
            container_statuses: state.container_statuses.map(statuses),
            init_container_statuses: state.init_container_statuses.map(statuses),
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatusFields {
    #[serde(default)]
    name: String,
    resources: Option<ResourceRequirements>,
    allocated_resources: Option<BTreeMap<String, Quantity>>,
}

impl From<ContainerStatusFields> for ContainerStatus {
    fn from(state: ContainerStatusFields) -> Self {
        Self {
            name: state.name,
            resources: state.resources,
            allocated_resources: state.allocated_resources,
            ..Self::default()
        }
    }
}
