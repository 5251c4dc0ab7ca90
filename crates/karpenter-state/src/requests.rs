//! The effective resource requests of a pod.
//!
//! [`karpenter_api::pod_requests`] computes the sums. This module first applies a default of API servers to pods of
//! manifests: missing requests are set to the limits. Pods from an API server already have this default.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus, ResourceRequirements};
use karpenter_api::pod_requests::{occupied, spec_requests};
use karpenter_api::types::Quantities;

use crate::pod::Pod;

/// The source of a pod's requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestSource<'a> {
    Pod(&'a Pod),
    Template(&'a PodSpec),
}

/// Effective requests without the `pods` count. Quantities were checked when the object was read.
pub(crate) fn effective_requests(source: RequestSource<'_>) -> Quantities {
    let (spec, status) = match source {
        RequestSource::Pod(pod) => (&*pod.spec, pod.status.actual_resources.as_deref()),
        RequestSource::Template(spec) => (spec, None),
    };
    let counted = match with_requests_from_limits(spec) {
        Cow::Borrowed(spec) => occupied(spec, status),
        Cow::Owned(spec) => completed_requests(spec, status),
    };
    counted.unwrap_or_default()
}

fn completed_requests(
    mut spec: PodSpec,
    status: Option<&PodStatus>,
) -> Result<Quantities, karpenter_api::error::FieldError> {
    // Limits of the whole pod count only for resources that neither the pod nor any container requests.
    let pod_limits = spec.resources.as_ref().and_then(|resources| resources.limits.clone());
    if let Some(limits) = pod_limits {
        let requested = spec_requests(&spec)?;
        let resources = spec.resources.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            if !requested.contains_key(&name) {
                requests.entry(name).or_insert(limit);
            }
        }
    }
    occupied(&spec, status)
}

fn with_requests_from_limits(spec: &PodSpec) -> Cow<'_, PodSpec> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut resources =
        containers.filter_map(|container| container.resources.as_ref()).chain(&spec.resources);
    if !resources.any(has_limit_without_request) {
        return Cow::Borrowed(spec);
    }
    let mut completed = spec.clone();
    let init_containers = completed.init_containers.iter_mut().flatten();
    for container in completed.containers.iter_mut().chain(init_containers) {
        request_limits(container);
    }
    Cow::Owned(completed)
}

fn has_limit_without_request(resources: &ResourceRequirements) -> bool {
    let has_request =
        |name: &String| resources.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
    resources.limits.iter().flatten().any(|(name, _)| !has_request(name))
}

fn request_limits(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}
