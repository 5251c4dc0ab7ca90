//! Requests of pods and allocatable resources of nodes, computed as kube-scheduler does.
//!
//! The requests of a pod are added exactly, and the sum is rounded up once: cpu to millicores, other resources to whole
//! units. Allocatable resources are rounded in the same way. `storage` is not a schedulable resource and is ignored;
//! the maximum number of pods of a node is kept separately.
//!
//! Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use karpenter_model::quantity::{Quantity, QuantityFormat};
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, request_amount};

/// The cpu that scores assume for a container without a cpu request.
const DEFAULT_CPU: Quantity = Quantity::from_milli(100);
/// The memory that scores assume for a container without a memory request.
const DEFAULT_MEMORY: Quantity = Quantity::from_value(200 * 1024 * 1024, QuantityFormat::BinarySi);

type Texts = BTreeMap<String, Text>;
type Sums<'a> = BTreeMap<&'a str, Quantity>;

/// Amounts per resource; a missing name is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
    /// Extended resources, huge pages and attachable volumes.
    pub scalars: BTreeMap<Arc<str>, i64>,
}

impl Amounts {
    fn from_sums(sums: &Sums<'_>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in sums {
            let amount = request_amount(name, quantity);
            match *name {
                CPU => amounts.cpu_milli = amount,
                MEMORY => amounts.memory_bytes = amount,
                EPHEMERAL_STORAGE => amounts.ephemeral_storage_bytes = amount,
                name if is_scalar(name) => {
                    amounts.scalars.insert(Arc::from(name), amount);
                }
                _ => {}
            }
        }
        amounts
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.ephemeral_storage_bytes =
            self.ephemeral_storage_bytes.saturating_add(other.ephemeral_storage_bytes);
        for (name, amount) in &other.scalars {
            let sum = self.scalars.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        self.ephemeral_storage_bytes =
            self.ephemeral_storage_bytes.saturating_sub(other.ephemeral_storage_bytes);
        for (name, amount) in &other.scalars {
            let sum = self.scalars.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_sub(*amount);
        }
    }

    pub(super) fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    /// Whether there are no requests, so that only the number of pods matters.
    pub(super) fn is_empty(&self) -> bool {
        self.cpu_milli == 0
            && self.memory_bytes == 0
            && self.ephemeral_storage_bytes == 0
            && self.scalars.is_empty()
    }
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

/// The requests of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequests {
    pub total: Amounts,
    /// The cpu request with default amounts for containers without requests; only scores use it.
    pub scored_cpu_milli: i64,
    pub scored_memory_bytes: i64,
}

impl PodRequests {
    pub fn of(pod: &Pod) -> Self {
        let sums = sum_requests(pod, &Sums::new());
        let pod_level = pod_level_requests(pod).next().is_some();
        let mut defaults = Sums::from([(CPU, DEFAULT_CPU), (MEMORY, DEFAULT_MEMORY)]);
        if pod_level {
            defaults.retain(|name, _| !sums.contains_key(name));
        }
        let scored = sum_requests(pod, &defaults);
        let amount = |name| scored.get(name).map_or(0, |quantity| request_amount(name, quantity));
        Self {
            total: Amounts::from_sums(&sums),
            scored_cpu_milli: amount(CPU),
            scored_memory_bytes: amount(MEMORY),
        }
    }
}

/// Sums the requests of a pod. Containers run together; init containers run one after another beside the sidecars that
/// started before them. Pod-level requests replace the sum, and the overhead is added.
fn sum_requests<'a>(pod: &'a Pod, defaults: &Sums<'a>) -> Sums<'a> {
    let Some(spec) = &pod.spec else { return Sums::new() };
    let infeasible = resize_is_infeasible(pod);
    let statuses = |name: &str, of_init: bool| {
        let status = pod.status.as_ref()?;
        let all = if of_init { &status.init_container_statuses } else { &status.container_statuses };
        all.iter().flatten().find(|status| status.name == name)
    };
    let mut sums = Sums::new();
    for container in &spec.containers {
        let requests = container_requests(container, statuses(&container.name, false), infeasible);
        add(&mut sums, with_defaults(requests, defaults));
    }
    let mut sidecars = Sums::new();
    let mut peak = Sums::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let requests = container_requests(container, statuses(&container.name, true), infeasible);
            let requests = with_defaults(requests, defaults);
            add(&mut sums, requests.clone());
            add(&mut sidecars, requests);
            raise(&mut peak, sidecars.clone());
        } else {
            let mut together = with_defaults(container_requests(container, None, infeasible), defaults);
            add(&mut together, sidecars.clone());
            raise(&mut peak, together);
        }
    }
    raise(&mut sums, peak);
    for (name, quantity) in pod_level_requests(pod) {
        sums.insert(name, quantity);
    }
    add(&mut sums, read(spec.overhead.as_ref()));
    sums
}

/// Pod-level requests of the resources that support them.
fn pod_level_requests(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let requests = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    read(requests)
        .into_iter()
        .filter(|(name, _)| matches!(*name, CPU | MEMORY) || name.starts_with("hugepages-"))
}

/// During an in-place resize a container may use more than its spec.
fn container_requests<'a>(
    container: &'a Container,
    status: Option<&'a ContainerStatus>,
    infeasible: bool,
) -> Sums<'a> {
    let wanted = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let Some(status) = status.filter(|status| status.resources.is_some()) else { return read(wanted) };
    let held = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut requests = if infeasible { Sums::new() } else { read(wanted) };
    raise(&mut requests, read(held));
    raise(&mut requests, read(status.allocated_resources.as_ref()));
    requests
}

fn resize_is_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions
        .filter(|condition| condition.type_ == "PodResizePending")
        .any(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

fn with_defaults<'a>(mut requests: Sums<'a>, defaults: &Sums<'a>) -> Sums<'a> {
    for (name, quantity) in defaults {
        requests.entry(name).or_insert(*quantity);
    }
    requests
}

/// The API server rejects malformed quantities; others count as zero.
fn read(texts: Option<&Texts>) -> Sums<'_> {
    let texts = texts.into_iter().flatten();
    texts.map(|(name, text)| (name.as_str(), text.0.parse().unwrap_or(Quantity::ZERO))).collect()
}

fn add<'a>(sums: &mut Sums<'a>, more: Sums<'a>) {
    for (name, quantity) in more {
        *sums.entry(name).or_insert(Quantity::ZERO) += quantity;
    }
}

fn raise<'a>(sums: &mut Sums<'a>, other: Sums<'a>) {
    for (name, quantity) in other {
        let present = sums.entry(name).or_insert(quantity);
        *present = (*present).max(quantity);
    }
}

/// The allocatable resources of a node and its maximum number of pods.
pub(super) fn allocatable(node: &Node) -> (Amounts, i64) {
    let sums = read(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    let pods = sums.get(PODS).map_or(0, |quantity| request_amount(PODS, quantity));
    (Amounts::from_sums(&sums), pods)
}
