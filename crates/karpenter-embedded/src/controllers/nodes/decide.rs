//! Decides whether a node's kubelet stopped reporting, which taints the node should have, and when a pod is evicted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::clock::{until, whole_seconds};
use karpenter_runtime::taints::{taints_of, tolerates};
use serde_json::{Value, json};

use super::Options;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
/// Conditions that prevent scheduling while they are true, and their taints.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
];

#[derive(Debug, Default, PartialEq)]
pub(super) struct Liveness {
    /// The conditions to set on a node whose kubelet stopped reporting.
    pub(super) conditions: Option<Vec<Value>>,
    pub(super) again: Option<Duration>,
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

pub(super) fn liveness(node: &Node, lease: Option<&Lease>, options: &Options, now: Timestamp) -> Liveness {
    let ready = condition(node, "Ready");
    let heartbeat = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0);
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let Some(sign) = heartbeat.max(renewed).or(created) else { return Liveness::default() };
    let grace = if ready.is_some() { options.monitor_grace } else { options.startup_grace };
    let deadline = SignedDuration::try_from(grace).ok().and_then(|grace| sign.checked_add(grace).ok());
    let Some(deadline) = deadline else { return Liveness::default() };
    if now <= deadline {
        return Liveness { conditions: None, again: Some(until(now, deadline) + Duration::from_millis(1)) };
    }
    let stamp = Time(whole_seconds(now));
    let conditions: Vec<Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
        .into_iter()
        .filter_map(|kind| match condition(node, kind) {
            None => Some(json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node.metadata.creation_timestamp, "lastTransitionTime": stamp,
            })),
            Some(known) if known.status != "Unknown" => Some(json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastHeartbeatTime": known.last_heartbeat_time, "lastTransitionTime": stamp,
            })),
            Some(_) => None,
        })
        .collect();
    Liveness { conditions: Some(conditions).filter(|conditions| !conditions.is_empty()), again: None }
}

/// The node's desired taints; `None` if they are unchanged.
pub(super) fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let status = |kind: &str| condition(node, kind).map(|condition| condition.status.as_str());
    let health = match status("Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    };
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    wanted.extend(health.map(|key| (key, NO_SCHEDULE)));
    wanted.extend(
        PRESSURES.iter().filter(|(kind, _)| status(kind) == Some("True")).map(|(_, key)| (*key, NO_SCHEDULE)),
    );
    if unschedulable {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    wanted.extend(health.map(|key| (key, NO_EXECUTE)));

    let known = taints_of(node);
    // If the kubelet never reported, the node keeps the taint that it was created with.
    let undecided = status("Ready").is_none();
    let ours = |taint: &Taint| {
        let key = taint.key.as_str();
        let of_health = [NOT_READY, UNREACHABLE].contains(&key) && !undecided;
        let of_pressure =
            PRESSURES.iter().any(|(_, pressure)| *pressure == key) && taint.effect == NO_SCHEDULE;
        let of_cordon = key == UNSCHEDULABLE && taint.effect == NO_SCHEDULE;
        of_health || of_pressure || of_cordon
    };
    let is_wanted =
        |taint: &Taint| wanted.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect);
    let mut taints: Vec<Taint> =
        known.iter().filter(|taint| !ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            taints.push(Taint {
                key: key.to_string(),
                effect: effect.to_string(),
                time_added: Some(Time(whole_seconds(now))),
                value: None,
            });
        }
    }
    (taints != known).then_some(taints)
}

pub(super) fn has_no_execute(node: &Node) -> bool {
    taints_of(node).iter().any(|taint| taint.effect == NO_EXECUTE)
}

#[derive(Debug, PartialEq)]
pub(super) enum Eviction {
    Never,
    In(Duration),
}

/// When the pod is evicted from a node with these taints. `since` returns when a taint without `timeAdded` was first
/// seen.
pub(super) fn eviction(
    pod: &Pod,
    taints: &[Taint],
    since: impl Fn(&str) -> Timestamp,
    now: Timestamp,
) -> Eviction {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut leaves: Option<Timestamp> = None;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let matching: Vec<&Toleration> =
            tolerations.iter().filter(|toleration| tolerates(toleration, taint)).collect();
        if matching.is_empty() {
            return Eviction::In(Duration::ZERO);
        }
        let Some(seconds) = matching.iter().filter_map(|toleration| toleration.toleration_seconds).min()
        else {
            continue;
        };
        let from = taint.time_added.as_ref().map(|time| time.0).unwrap_or_else(|| since(&taint.key));
        let at = from.checked_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX);
        leaves = Some(leaves.map_or(at, |earlier| earlier.min(at)));
    }
    leaves.map_or(Eviction::Never, |at| Eviction::In(until(now, at)))
}
