//! Capacity buffers: resolves the references and sizes of a buffer and creates its virtual pods.
//!
//! Virtual pods exist only in plans; this module does not write objects.
//!
//! Upstream: pkg/controllers/capacitybuffer, pkg/state/virtualpods.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplate, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::{CapacityBuffer, ConditionStatus, Quantities, ScalableReference};
use karpenter_model::resources::{capacity_amount, request_amount};

use crate::pod::{ConditionStamp, Pod, SharedMeta, Status};
use crate::requests::{RequestSource, effective_requests};
use crate::workloads::{name_of, namespace_of};

pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
pub const PROVISIONING: &str = "Provisioning";

/// Looks up the objects that buffers reference.
pub trait Workloads {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>>;
    fn deployment(&self, namespace: &str, name: &str) -> Option<Arc<Deployment>>;
    fn stateful_set(&self, namespace: &str, name: &str) -> Option<Arc<StatefulSet>>;
    fn replica_set(&self, namespace: &str, name: &str) -> Option<Arc<ReplicaSet>>;
}

/// The pod template and number of replicas of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub template: PodTemplateSpec,
    /// Name and generation of the PodTemplate, if the buffer references one.
    pub pod_template: Option<(String, i64)>,
    pub replicas: i32,
}

/// Why a buffer cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    pub reason: &'static str,
    pub message: String,
}

/// Resolves the reference of a buffer and computes its replicas.
pub fn resolve(buffer: &CapacityBuffer, workloads: &impl Workloads) -> Result<Resolved, Unresolved> {
    let namespace = namespace_of(&buffer.metadata);
    if let Some(reference) = &buffer.spec.pod_template_ref {
        let found = workloads.pod_template(namespace, &reference.name);
        let found = found.ok_or_else(|| missing("PodTemplateNotFound", "podtemplates", &reference.name))?;
        let template = found.template.clone().unwrap_or_default();
        let replicas = replicas(buffer, &template, None);
        let generation = found.metadata.generation.unwrap_or_default();
        return Ok(Resolved { template, pod_template: Some((reference.name.clone(), generation)), replicas });
    }
    let Some(reference) = &buffer.spec.scalable_ref else {
        let message = "Neither podTemplateRef nor scalableRef is set".to_owned();
        return Err(Unresolved { reason: "ResolutionFailed", message });
    };
    let (template, running) = scalable(namespace, reference, workloads)?;
    let replicas = replicas(buffer, &template, Some(running));
    Ok(Resolved { template, pod_template: None, replicas })
}

/// The template of a workload and its replicas.
fn scalable(
    namespace: &str,
    reference: &ScalableReference,
    workloads: &impl Workloads,
) -> Result<(PodTemplateSpec, i32), Unresolved> {
    let failed = |message: String| Unresolved { reason: "ResolutionFailed", message };
    let group = reference.api_group.as_deref().unwrap_or_default();
    if !matches!(group, "" | "apps") {
        return Err(failed(format!("unsupported scalableRef API group {group:?}")));
    }
    let name = reference.name.as_str();
    let missing = |plural: &str| missing("ScalableRefNotFound", plural, name);
    match reference.kind.as_str() {
        "Deployment" => {
            let found = workloads.deployment(namespace, name).ok_or_else(|| missing("deployments.apps"))?;
            let spec = found.spec.clone().unwrap_or_default();
            Ok((spec.template, spec.replicas.unwrap_or(1)))
        }
        "StatefulSet" => {
            let found =
                workloads.stateful_set(namespace, name).ok_or_else(|| missing("statefulsets.apps"))?;
            let spec = found.spec.clone().unwrap_or_default();
            Ok((spec.template, spec.replicas.unwrap_or(1)))
        }
        "ReplicaSet" => {
            let found = workloads.replica_set(namespace, name).ok_or_else(|| missing("replicasets.apps"))?;
            let spec = found.spec.clone().unwrap_or_default();
            Ok((spec.template.unwrap_or_default(), spec.replicas.unwrap_or(1)))
        }
        kind => Err(failed(format!("unsupported kind {kind:?}"))),
    }
}

fn missing(reason: &'static str, plural: &str, name: &str) -> Unresolved {
    Unresolved { reason, message: format!("{plural} {name:?} not found") }
}

/// The number of virtual pods: the larger of the fixed number and the share of a workload, but at most as many as fit
/// into the limits.
fn replicas(buffer: &CapacityBuffer, template: &PodTemplateSpec, running: Option<i32>) -> i32 {
    let spec = &buffer.spec;
    let share = match (spec.percentage, running) {
        (Some(percentage), Some(running)) if running > 0 => Some(share_of(running, percentage)),
        _ => None,
    };
    let wanted = spec.replicas.into_iter().chain(share).max();
    let fitting = spec.limits.as_ref().and_then(|limits| fitting(limits, template.spec.as_ref()?));
    match (wanted, fitting) {
        (Some(wanted), Some(fitting)) => wanted.min(fitting),
        (one, other) => one.or(other).unwrap_or(0),
    }
}

/// The share of a number of replicas, rounded up; at least one for any positive share.
fn share_of(running: i32, percentage: i32) -> i32 {
    let exact = i64::from(running).saturating_mul(i64::from(percentage));
    let share = exact.max(0).saturating_add(99) / 100;
    i32::try_from(share).unwrap_or(i32::MAX)
}

/// The number of pods that fit into the limits; `None` if the limits have no resource that the pods request.
fn fitting(limits: &Quantities, spec: &PodSpec) -> Option<i32> {
    let requests = effective_requests(RequestSource::Template(spec));
    let counts = limits.iter().filter_map(|(name, limit)| {
        let request = request_amount(name, requests.get(name)?);
        (request > 0).then(|| capacity_amount(name, limit).max(0) / request)
    });
    counts.min().map(|count| i32::try_from(count).unwrap_or(i32::MAX))
}

/// Whether the status of the buffer requires that capacity is kept for its virtual pods.
pub fn is_ready(buffer: &CapacityBuffer) -> bool {
    let Some(status) = &buffer.status else { return false };
    let is_true = |one: &karpenter_api::types::Condition| {
        one.type_ == READY_FOR_PROVISIONING && one.status == ConditionStatus::True
    };
    status.replicas.is_some_and(|count| count > 0) && status.conditions.iter().any(is_true)
}

/// The virtual pods of a buffer. As long as the buffer and its template are unchanged, the result is the same.
pub fn virtual_pods(buffer: &CapacityBuffer, template: &PodTemplateSpec, count: u32) -> Vec<Arc<Pod>> {
    let (namespace, name) = (namespace_of(&buffer.metadata), name_of(&buffer.metadata));
    let uid = buffer.metadata.uid.as_deref().unwrap_or_default();
    let spec = Arc::new(placeholder(template.spec.clone().unwrap_or_default()));
    let annotations = [
        (labels::ANNOTATION_BUFFER_FAKE_POD, "true"),
        (labels::ANNOTATION_BUFFER_NAME, name),
        (labels::ANNOTATION_BUFFER_NAMESPACE, namespace),
    ];
    let shared_meta = Arc::new(SharedMeta {
        namespace: namespace.into(),
        labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        owners: Vec::new(),
    });
    let refused = ConditionStamp { is_true: false, is_false: true, since: None };
    let make = |number: u32| {
        Arc::new(Pod {
            name: format!("capacity-buffer-{name}-{number}").into(),
            uid: format!("{uid}-{number}").into(),
            // The creation time is later than that of any pod, so that virtual pods are placed last among equal pods.
            created_at: Some(Timestamp::MAX),
            shared_meta: shared_meta.clone(),
            spec: spec.clone(),
            status: Status { scheduled: Some(refused), is_unschedulable: true, ..Status::default() },
            ..Pod::default()
        })
    };
    (1..=count).map(make).collect()
}

/// The template without the fields that only a real pod can use: a node name, and volume claims.
fn placeholder(mut spec: PodSpec) -> PodSpec {
    spec.node_name = None;
    spec.priority = Some(i32::MIN);
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none());
    }
    spec
}

/// Whether a pod is a virtual pod of a buffer.
pub fn is_virtual(pod: &Pod) -> bool {
    pod.annotation(labels::ANNOTATION_BUFFER_FAKE_POD) == Some("true")
}

/// Namespace and name of the buffer of a virtual pod.
pub fn buffer_of(pod: &Pod) -> Option<(&str, &str)> {
    if !is_virtual(pod) {
        return None;
    }
    let namespace = pod.annotation(labels::ANNOTATION_BUFFER_NAMESPACE)?;
    Some((namespace, pod.annotation(labels::ANNOTATION_BUFFER_NAME)?))
}

impl Workloads for crate::objects::Objects {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>> {
        find(&self.pod_templates, |one| &one.metadata, namespace, name)
    }

    fn deployment(&self, namespace: &str, name: &str) -> Option<Arc<Deployment>> {
        find(&self.deployments, |one| &one.metadata, namespace, name)
    }

    fn stateful_set(&self, namespace: &str, name: &str) -> Option<Arc<StatefulSet>> {
        find(&self.stateful_sets, |one| &one.metadata, namespace, name)
    }

    fn replica_set(&self, namespace: &str, name: &str) -> Option<Arc<ReplicaSet>> {
        find(&self.replica_sets, |one| &one.metadata, namespace, name)
    }
}

fn find<K: Clone>(
    objects: &[K],
    metadata: impl Fn(&K) -> &ObjectMeta,
    namespace: &str,
    name: &str,
) -> Option<Arc<K>> {
    let is_meant = |one: &&K| namespace_of(metadata(one)) == namespace && name_of(metadata(one)) == name;
    objects.iter().find(is_meant).cloned().map(Arc::new)
}
