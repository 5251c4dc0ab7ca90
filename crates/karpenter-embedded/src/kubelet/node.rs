//! Decides the node status that a kubelet reports now, and when it reports next.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use karpenter_runtime::clock::{since, until, whole_seconds};
use karpenter_runtime::object::name_of;
use serde_json::{Map, Value, json};

use super::script::NodeScript;
use super::{LEASE_NAMESPACE, Options};

#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// A strategic merge patch of the node's status.
    pub(super) status: Option<Value>,
    pub(super) renew: bool,
    /// The keys of the taints to remove.
    pub(super) untaint: Vec<String>,
    pub(super) again: Option<Duration>,
}

struct Wanted {
    kind: &'static str,
    status: String,
    reason: String,
    message: String,
}

pub(super) fn decide(node: &Node, lease: Option<&Lease>, options: &Options, now: Timestamp) -> Decision {
    let script = NodeScript::of(node, options);
    let Some(boots_at) = script.boots_at(node) else { return Decision::default() };
    if script.dies_at.is_some_and(|dies_at| dies_at <= now) {
        return Decision::default();
    }
    if now < boots_at {
        return Decision { again: Some(until(now, boots_at)), ..Decision::default() };
    }
    let sick = !script.sick_conditions.is_empty() && script.sick_from.is_none_or(|from| from <= now);
    let wanted = wanted(&script, sick);
    let is_ready = wanted.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");

    let heartbeat = heartbeat(node);
    let heartbeat_due = heartbeat.and_then(|last| last.checked_add(signed(options.heartbeat)).ok());
    let stale = heartbeat_due.is_none_or(|due| due <= now);
    let is_due = !script.is_frozen && (stale || !agrees(node, &wanted));
    let status = is_due.then(|| status_patch(node, &wanted, now));

    let renewed = lease
        .and_then(|lease| lease.spec.as_ref())
        .and_then(|spec| spec.renew_time.as_ref())
        .map(|time| time.0);
    let renew = renewed.is_none_or(|renewed| since(now, renewed) >= options.lease_renewal);

    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let untaint = taints
        .iter()
        .flat_map(|taints| taints.iter())
        .map(|taint| taint.key.clone())
        .filter(|key| is_ready && !script.is_frozen && script.remove_taints.contains(key))
        .collect();

    let lease_due = match renewed.filter(|_| !renew) {
        Some(renewed) => options.lease_renewal - since(now, renewed).min(options.lease_renewal),
        None => options.lease_renewal,
    };
    let due = [script.dies_at, script.sick_from, heartbeat_due.filter(|_| status.is_none())];
    let again = due
        .into_iter()
        .flatten()
        .filter(|due| *due > now)
        .map(|due| until(now, due))
        .chain([lease_due, options.heartbeat])
        .min();
    Decision { status, renew, untaint, again }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn wanted(script: &NodeScript, sick: bool) -> Vec<Wanted> {
    let healthy = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    healthy
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let scripted = script.sick_conditions.iter().find(|(scripted, _)| sick && scripted == kind);
            let status = match scripted {
                Some((_, scripted)) => scripted.as_str(),
                None if kind == "Ready" && script.never_ready => "False",
                None => status,
            };
            let (reason, message) = match (kind, status) {
                ("Ready", "True") => (reason, message),
                ("Ready", _) => ("KubeletNotReady", "container runtime network not ready"),
                ("MemoryPressure", "True") => {
                    ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
                }
                ("DiskPressure", "True") => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("PIDPressure", "True") => {
                    ("KubeletHasInsufficientPID", "kubelet has insufficient PID available")
                }
                ("NetworkUnavailable", "True") => ("NoRouteCreated", "Node created without a route"),
                _ => (reason, message),
            };
            Wanted { kind, status: status.into(), reason: reason.into(), message: message.into() }
        })
        .chain(script.sick_conditions.iter().filter_map(|(kind, status)| {
            // Conditions that kubelets do not report are added, such as those of a node problem detector.
            let known = healthy.iter().any(|(known, ..)| known == kind);
            (sick && !known).then(|| Wanted {
                kind: "",
                status: status.clone(),
                reason: kind.clone(),
                message: format!("{kind} is scripted"),
            })
        }))
        .collect()
}

impl Wanted {
    fn name(&self) -> &str {
        if self.kind.is_empty() { &self.reason } else { self.kind }
    }
}

fn heartbeat(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.last_heartbeat_time.as_ref().map(|time| time.0)
}

fn agrees(node: &Node, wanted: &[Wanted]) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let phase = node.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running")
        && wanted.iter().all(|wanted| {
            conditions.iter().any(|condition| {
                condition.type_ == wanted.name()
                    && condition.status == wanted.status
                    && condition.reason.as_ref() == Some(&wanted.reason)
            })
        })
}

/// Keeps existing fields of the node's status and adds those that a scheduler needs.
fn status_patch(node: &Node, wanted: &[Wanted], now: Timestamp) -> Value {
    let current = node.status.clone().unwrap_or_default();
    let now = Time(whole_seconds(now));
    let conditions: Vec<Value> = wanted
        .iter()
        .map(|wanted| {
            let before = current.conditions.iter().flatten().find(|known| known.type_ == wanted.name());
            let transition = before
                .filter(|before| before.status == wanted.status)
                .and_then(|before| before.last_transition_time.clone())
                .unwrap_or_else(|| now.clone());
            json!({
                "type": wanted.name(), "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
                "lastHeartbeatTime": now, "lastTransitionTime": transition,
            })
        })
        .collect();
    let mut status = Map::new();
    status.insert("conditions".into(), json!(conditions));
    status.insert("phase".into(), json!("Running"));
    if current.addresses.as_ref().is_none_or(Vec::is_empty) {
        let addresses = json!([
            {"type": "InternalIP", "address": internal_address(name_of(node))},
            {"type": "Hostname", "address": name_of(node)},
        ]);
        status.insert("addresses".into(), addresses);
    }
    if current.capacity.as_ref().is_none_or(|capacity| capacity.is_empty()) {
        let plenty = json!({"cpu": "1k", "memory": "1Ti", "pods": "1M"});
        status.insert("capacity".into(), plenty.clone());
        if current.allocatable.as_ref().is_none_or(|allocatable| allocatable.is_empty()) {
            status.insert("allocatable".into(), plenty);
        }
    }
    if current.node_info.as_ref().is_none_or(|info| info.kubelet_version.is_empty()) {
        let given = current.node_info.unwrap_or_default();
        let label = |key: &str, other: &str| {
            let labels = node.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_else(|| other.to_string())
        };
        let or = |given: String, other: String| if given.is_empty() { other } else { given };
        status.insert(
            "nodeInfo".into(),
            json!({
                "architecture": or(given.architecture, label("kubernetes.io/arch", "amd64")),
                "operatingSystem": or(given.operating_system, label("kubernetes.io/os", "linux")),
                "kubeletVersion": "fake", "kubeProxyVersion": "fake", "containerRuntimeVersion": "fake",
                "kernelVersion": "fake", "osImage": "fake", "bootID": "", "machineID": "", "systemUUID": "",
            }),
        );
    }
    json!({ "status": status })
}

/// An address for the node, derived from its name.
pub(super) fn internal_address(name: &str) -> String {
    let hash = karpenter_model::stdx::fnv32a(name.as_bytes());
    format!("10.{}.{}.{}", hash >> 16 & 0xff, hash >> 8 & 0xff, hash & 0xff)
}

pub(super) fn new_lease(node: &Node, options: &Options, now: MicroTime) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name_of(node).into(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: node.metadata.name.clone(),
        namespace: Some(LEASE_NAMESPACE.into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: node.metadata.name.clone(),
        lease_duration_seconds: Some(options.lease_duration.as_secs() as i32),
        renew_time: Some(now),
        ..LeaseSpec::default()
    };
    Lease { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests;
