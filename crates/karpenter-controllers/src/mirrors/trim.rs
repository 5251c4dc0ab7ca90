//! What is dropped from objects before they are kept. A large cluster has ten pods for every node, and most of a pod is
//! about how it runs, which nobody here looks at.
//!
//! A pod on a node keeps what it occupies as one sum instead of its containers: a container is as large as all the rest.
//! The sum stands where overhead stands, which is added to whatever containers ask for, so that the usual way of
//! counting ([`pod_requests`]) finds it. What it may use at most, which only metrics tell, is a short text in the place
//! of a host name that nobody reads; [`pod_limits`] finds it.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use karpenter_api::error::FieldError;
use karpenter_api::pod_requests::{self as counting, pod_requests};
use karpenter_api::types::Quantities;

use crate::pods;

/// Stands between the name and the amount of a limit, and in no host name.
const IS: char = '=';

/// Conditions of pods that decide something.
const CONDITIONS: [&str; 5] =
    ["PodScheduled", "Ready", "PodResizePending", "PodResizeInProgress", "DisruptionTarget"];

pub(super) fn node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        // The largest part of a node.
        status.images = None;
        status.volumes_in_use = None;
        status.volumes_attached = None;
        status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
    }
}

/// The most a pod may use, where that is limited, whether or not it has been trimmed.
pub(crate) fn pod_limits(pod: &Pod) -> Result<Quantities, FieldError> {
    match pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).filter(|text| text.contains(IS)) {
        Some(text) => Ok(text
            .split(' ')
            .filter_map(|limit| limit.split_once(IS))
            .filter_map(|(name, amount)| Some((name.to_owned(), amount.parse().ok()?)))
            .collect()),
        None => counting::pod_limits(pod),
    }
}

pub(super) fn pod(pod: &mut Pod) {
    let metadata = &mut pod.metadata;
    metadata.generate_name = None;
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| is_known(key));
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
    metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    if let Some(status) = pod.status.take() {
        pod.status = Some(trimmed_status(status));
    }
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(trimmed_spec(spec));
    }
    if pods::is_bound(pod) {
        fold(pod);
    }
}

/// Karpenter's own annotations and those of Kubernetes.
fn is_known(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    domain.ends_with("karpenter.sh") || domain.ends_with("kubernetes.io")
}

fn trimmed_status(status: PodStatus) -> PodStatus {
    let conditions = status.conditions.map(|mut conditions| {
        conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
        conditions.shrink_to_fit();
        conditions
    });
    PodStatus {
        phase: status.phase,
        reason: status.reason,
        conditions,
        start_time: status.start_time,
        nominated_node_name: status.nominated_node_name,
        container_statuses: status.container_statuses.map(trimmed_statuses),
        init_container_statuses: status.init_container_statuses.map(trimmed_statuses),
        ..PodStatus::default()
    }
}

/// Only what a resize has reached so far.
fn trimmed_statuses(statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    let sized = statuses.into_iter().filter(|status| status.resources.is_some());
    let mut kept: Vec<ContainerStatus> = sized
        .map(|status| ContainerStatus {
            name: status.name,
            resources: status.resources,
            allocated_resources: status.allocated_resources,
            ..ContainerStatus::default()
        })
        .collect();
    kept.shrink_to_fit();
    kept
}

fn trimmed_spec(spec: PodSpec) -> PodSpec {
    let volumes = spec.volumes.map(|mut volumes| {
        volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        volumes.shrink_to_fit();
        volumes
    });
    let tolerations = spec.tolerations.map(|mut tolerations| {
        tolerations.shrink_to_fit();
        tolerations
    });
    PodSpec {
        active_deadline_seconds: spec.active_deadline_seconds,
        affinity: spec.affinity,
        containers: trimmed_containers(spec.containers),
        hostname: spec.hostname.filter(|text| text.contains(IS)),
        host_network: spec.host_network,
        init_containers: spec.init_containers.map(trimmed_containers),
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
        tolerations,
        topology_spread_constraints: spec.topology_spread_constraints,
        volumes: volumes.filter(|volumes| !volumes.is_empty()),
        ..PodSpec::default()
    }
}

fn trimmed_containers(containers: Vec<Container>) -> Vec<Container> {
    let mut kept: Vec<Container> = containers
        .into_iter()
        .map(|container| Container {
            name: container.name,
            ports: container.ports.map(|mut ports| {
                ports.retain(|port| port.host_port.is_some());
                ports.shrink_to_fit();
                ports
            }),
            resources: container.resources,
            restart_policy: container.restart_policy,
            ..Container::default()
        })
        .collect();
    kept.shrink_to_fit();
    kept
}

/// Puts one sum in the place of the containers. Pods that occupy ports or devices, or are being resized, keep them.
fn fold(pod: &mut Pod) {
    let (Ok(occupied), Ok(limits)) = (pod_requests(pod), pod_limits(pod)) else { return };
    if is_resizing(pod) {
        return;
    }
    let Some(spec) = &mut pod.spec else { return };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let is_plain = containers.all(|container| {
        let claims = container.resources.as_ref().and_then(|resources| resources.claims.as_ref());
        container.ports.as_ref().is_none_or(Vec::is_empty) && claims.is_none_or(Vec::is_empty)
    });
    if !is_plain || spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return;
    }
    let limits: Vec<String> = limits.iter().map(|(name, amount)| format!("{name}{IS}{amount}")).collect();
    spec.hostname = (!limits.is_empty()).then(|| limits.join(" "));
    spec.containers = Vec::new();
    spec.init_containers = None;
    spec.resources = None;
    let sum = occupied.into_iter().map(|(name, amount)| (name, Quantity(amount.to_string())));
    spec.overhead = Some(sum.collect()).filter(|sum: &std::collections::BTreeMap<_, _>| !sum.is_empty());
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
    }
}

fn is_resizing(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_.starts_with("PodResize") && condition.status == "True")
}
