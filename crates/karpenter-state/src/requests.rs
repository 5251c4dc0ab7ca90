//! What a pod asks of a node: containers, sidecars, init containers, pod-level resources and overhead.
//!
//! The sums follow the scheduler's own helper, resizes in progress included. Limits stand in for missing requests,
//! because a pod read from a manifest has not yet passed the server that would copy them; on a pod that has, the
//! copy changes nothing. Quantities were checked before; one that cannot be read counts as nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use karpenter_model::quantity::{Quantity, QuantityFormat};

/// Amounts by resource name, borrowed from the pod.
pub(crate) type Amounts<'a> = BTreeMap<&'a str, Quantity>;
type RawAmounts = BTreeMap<String, RawQuantity>;

/// Effective requests, with `pods: 1`.
pub(crate) fn pod_requests<'a>(spec: &'a PodSpec, status: Option<&'a PodStatus>) -> Amounts<'a> {
    let infeasible = status.is_some_and(resize_is_infeasible);
    let app_statuses = status.and_then(|status| status.container_statuses.as_ref());
    let init_statuses = status.and_then(|status| status.init_container_statuses.as_ref());
    let mut total = Amounts::new();
    for container in &spec.containers {
        let running = find_status(app_statuses, &container.name);
        add(&mut total, &container_requests(container, running, infeasible));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let running = find_status(init_statuses, &container.name);
            let requests = container_requests(container, running, infeasible);
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            maximum(&mut peak, &sidecars);
        } else {
            let mut requests = container_requests(container, None, false);
            add(&mut requests, &sidecars);
            maximum(&mut peak, &requests);
        }
    }
    maximum(&mut total, &peak);
    if let Some(resources) = &spec.resources {
        for (name, amount) in amounts(resources.requests.as_ref()).filter(|(name, _)| is_pod_level(name)) {
            total.insert(name, amount);
        }
        let requested =
            |name: &str| resources.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
        for (name, amount) in amounts(resources.limits.as_ref()).filter(|(name, _)| is_pod_level(name)) {
            if !requested(name) {
                total.entry(name).or_insert(amount);
            }
        }
    }
    for (name, amount) in amounts(spec.overhead.as_ref()) {
        *total.entry(name).or_default() += amount;
    }
    total.insert("pods", Quantity::from_value(1, QuantityFormat::DecimalSi));
    total
}

fn resize_is_infeasible(status: &PodStatus) -> bool {
    let pending = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

fn find_status<'a>(statuses: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    statuses.into_iter().flatten().find(|status| status.name == name)
}

fn container_requests<'a>(
    container: &'a Container,
    running: Option<&'a ContainerStatus>,
    infeasible: bool,
) -> Amounts<'a> {
    let mut requests = Amounts::new();
    if let Some(resources) = &container.resources {
        requests.extend(amounts(resources.requests.as_ref()));
        for (name, limit) in amounts(resources.limits.as_ref()) {
            requests.entry(name).or_insert(limit);
        }
    }
    let Some((status, resources)) = running.and_then(|status| Some((status, status.resources.as_ref()?)))
    else {
        return requests;
    };
    let mut actual: Amounts<'a> = amounts(resources.requests.as_ref()).collect();
    maximum(&mut actual, &amounts(status.allocated_resources.as_ref()).collect());
    if infeasible {
        return actual;
    }
    maximum(&mut requests, &actual);
    requests
}

fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

fn amounts(raw: Option<&RawAmounts>) -> impl Iterator<Item = (&str, Quantity)> {
    raw.into_iter().flatten().filter_map(|(name, amount)| Some((name.as_str(), amount.0.parse().ok()?)))
}

fn add<'a>(total: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        *total.entry(name).or_default() += *amount;
    }
}

fn maximum<'a>(total: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        let present = total.entry(name).or_insert(*amount);
        *present = (*present).max(*amount);
    }
}
