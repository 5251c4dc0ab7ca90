//! The resource requests of a pod, as kube-scheduler computes them.
//!
//! The total covers containers, init containers, sidecars, in-place resizes, pod-level resources and overhead. A
//! missing request is not derived from a limit, because the API server has already done so for existing pods; for pods
//! of a DaemonSet's template, [`daemonset_pod`] does. Amounts are not rounded, because the right direction depends on
//! what they are compared with.
//!
//! Upstream: Kubernetes `k8s.io/component-helpers/resource/helpers.go`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_model::quantity::{Quantity, QuantityFormat};
use karpenter_model::resources::PODS;

use crate::error::{FieldError, Rule};
use crate::types::Quantities;

type RawQuantities = BTreeMap<String, RawQuantity>;

/// The requests of a pod plus its overhead. During an in-place resize, these are the larger of the old and new amounts.
pub fn pod_requests(pod: &Pod) -> Result<Quantities, FieldError> {
    match &pod.spec {
        Some(spec) => occupied(spec, pod.status.as_ref()),
        None => Ok(Quantities::new()),
    }
}

/// The requests of a pod with this spec, ignoring the pod's status.
pub fn spec_requests(spec: &PodSpec) -> Result<Quantities, FieldError> {
    occupied(spec, None)
}

/// The limits of a pod, for those resources for which the whole pod is limited.
pub fn pod_limits(pod: &Pod) -> Result<Quantities, FieldError> {
    pod.spec.as_ref().map_or_else(|| Ok(Quantities::new()), limits_of_spec)
}

/// The limits of a pod with this spec, for those resources for which the whole pod is limited.
pub fn limits_of_spec(spec: &PodSpec) -> Result<Quantities, FieldError> {
    let mut total = container_totals(spec, |container, path| {
        parse_all(limits_of(container.resources.as_ref()), &format!("{path}.resources.limits"))
    })?;
    override_with_pod_level(&mut total, limits_of(spec.resources.as_ref()), "spec.resources.limits")?;
    for (name, overhead) in parse_all(spec.overhead.as_ref(), "spec.overhead")? {
        // A resource without a limit must not become limited by the overhead.
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit += overhead;
        }
    }
    Ok(total)
}

/// The sum of the requests of several pods; the resource `pods` is their number.
pub fn requests_for_pods<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Result<Quantities, FieldError> {
    sum_with_count(pods, pod_requests)
}

/// The sum of the limits of several pods; the resource `pods` is their number.
pub fn limits_for_pods<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Result<Quantities, FieldError> {
    sum_with_count(pods, pod_limits)
}

/// The pod that a DaemonSet would create on a node. Missing requests are set to the limits, as the API server does.
pub fn daemonset_pod(daemonset: &DaemonSet) -> Pod {
    let template = daemonset.spec.as_ref().map(|spec| &spec.template);
    let template_metadata = template.and_then(|template| template.metadata.clone()).unwrap_or_default();
    let mut spec = template.and_then(|template| template.spec.clone()).unwrap_or_default();
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        default_requests_from_limits(container);
    }
    Pod {
        metadata: ObjectMeta {
            name: daemonset.metadata.name.clone(),
            namespace: daemonset.metadata.namespace.clone(),
            labels: template_metadata.labels,
            annotations: template_metadata.annotations,
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn default_requests_from_limits(container: &mut Container) {
    let Some(resources) = &mut container.resources else {
        return;
    };
    let Some(limits) = &resources.limits else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn sum_with_count<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    amounts: impl Fn(&Pod) -> Result<Quantities, FieldError>,
) -> Result<Quantities, FieldError> {
    let mut total = Quantities::new();
    let mut count = 0;
    for pod in pods {
        add(&mut total, &amounts(pod)?);
        count += 1;
    }
    total.insert(PODS.to_owned(), Quantity::from_value(count, QuantityFormat::DecimalSi));
    Ok(total)
}

/// The total requests of a pod with this spec. A container for which the status reports more allocated resources than
/// its requests counts with those.
pub fn occupied(spec: &PodSpec, status: Option<&PodStatus>) -> Result<Quantities, FieldError> {
    let held = StatusResources::new(status);
    let mut total = container_totals(spec, |container, path| {
        let requested =
            parse_all(requests_of(container.resources.as_ref()), &format!("{path}.resources.requests"))?;
        // Only sidecars among the init containers can be resized.
        if path.starts_with("spec.initContainers") && !is_sidecar(container) {
            return Ok(requested);
        }
        held.larger_of(&container.name, requested)
    })?;
    override_with_pod_level(&mut total, requests_of(spec.resources.as_ref()), "spec.resources.requests")?;
    add(&mut total, &parse_all(spec.overhead.as_ref(), "spec.overhead")?);
    Ok(total)
}

/// The resources of containers according to the pod's status. During an in-place resize they differ from the spec.
struct StatusResources<'a> {
    statuses: BTreeMap<&'a str, &'a ContainerStatus>,
    resize_is_infeasible: bool,
}

impl<'a> StatusResources<'a> {
    fn new(status: Option<&'a PodStatus>) -> Self {
        let Some(status) = status else {
            return Self { statuses: BTreeMap::new(), resize_is_infeasible: false };
        };
        let containers = status.container_statuses.iter().flatten();
        let init_containers = status.init_container_statuses.iter().flatten();
        let pending_resize =
            status.conditions.iter().flatten().find(|condition| condition.type_ == "PodResizePending");
        Self {
            statuses: containers
                .chain(init_containers)
                .map(|status| (status.name.as_str(), status))
                .collect(),
            resize_is_infeasible: pending_resize
                .is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible")),
        }
    }

    /// Until a resize is finished, the node must have capacity for the larger of both sizes; a resize that the kubelet
    /// rejected as infeasible is ignored.
    fn larger_of(&self, container_name: &str, requested: Quantities) -> Result<Quantities, FieldError> {
        let Some(status) = self.statuses.get(container_name) else {
            return Ok(requested);
        };
        let Some(resources) = &status.resources else {
            return Ok(requested);
        };
        let path = format!("status.containerStatuses[{container_name}]");
        let mut held = parse_all(resources.requests.as_ref(), &format!("{path}.resources.requests"))?;
        let allocated =
            parse_all(status.allocated_resources.as_ref(), &format!("{path}.allocatedResources"))?;
        raise_to(&mut held, &allocated);
        if !self.resize_is_infeasible {
            raise_to(&mut held, &requested);
        }
        Ok(held)
    }
}

/// The totals of all containers: app containers and sidecars run at the same time, and each init container runs with
/// the sidecars that were started before it.
fn container_totals(
    spec: &PodSpec,
    amounts: impl Fn(&Container, &str) -> Result<Quantities, FieldError>,
) -> Result<Quantities, FieldError> {
    let mut total = Quantities::new();
    for (index, container) in spec.containers.iter().enumerate() {
        add(&mut total, &amounts(container, &format!("spec.containers[{index}]"))?);
    }
    let mut sidecars = Quantities::new();
    let mut init_peak = Quantities::new();
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let mut amounts = amounts(container, &format!("spec.initContainers[{index}]"))?;
        if is_sidecar(container) {
            add(&mut total, &amounts);
            add(&mut sidecars, &amounts);
            raise_to(&mut init_peak, &sidecars);
        } else {
            add(&mut amounts, &sidecars);
            raise_to(&mut init_peak, &amounts);
        }
    }
    raise_to(&mut total, &init_peak);
    Ok(total)
}

/// If the pod states requests at pod level, these replace the sum of its containers, for resources that support this.
fn override_with_pod_level(
    total: &mut Quantities,
    pod_level: Option<&RawQuantities>,
    path: &str,
) -> Result<(), FieldError> {
    let has_pod_level = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let overrides = parse_all(pod_level, path)?;
    total.extend(overrides.into_iter().filter(|(name, _)| has_pod_level(name)));
    Ok(())
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn requests_of(resources: Option<&ResourceRequirements>) -> Option<&RawQuantities> {
    resources.and_then(|resources| resources.requests.as_ref())
}

fn limits_of(resources: Option<&ResourceRequirements>) -> Option<&RawQuantities> {
    resources.and_then(|resources| resources.limits.as_ref())
}

fn parse_all(raw: Option<&RawQuantities>, path: &str) -> Result<Quantities, FieldError> {
    let parse = |(name, quantity): (&String, &RawQuantity)| match quantity.0.parse() {
        Ok(quantity) => Ok((name.clone(), quantity)),
        Err(error) => {
            let error: karpenter_model::quantity::QuantityError = error;
            Err(FieldError::new(format!("{path}[{name}]"), Rule::Format, error.to_string()))
        }
    };
    raw.into_iter().flatten().map(parse).collect()
}

fn add(total: &mut Quantities, amounts: &Quantities) {
    for (name, amount) in amounts {
        *total.entry(name.clone()).or_insert(Quantity::from_nanos(0, amount.format())) += *amount;
    }
}

fn raise_to(total: &mut Quantities, floor: &Quantities) {
    for (name, amount) in floor {
        let present = total.entry(name.clone()).or_insert(*amount);
        *present = (*present).max(*amount);
    }
}
