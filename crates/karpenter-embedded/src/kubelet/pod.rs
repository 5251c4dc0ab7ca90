//! Decides the next step of a kubelet for one of its pods.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::clock::{until, whole_seconds};
use karpenter_runtime::object::{annotation, name_of};
use serde_json::{Map, Value, json};

use super::Options;
use super::node::internal_address;
use super::script::{NodeScript, PodScript};
use crate::controllers::pods;

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    Wait(Duration),
    Write(Change),
    /// The pod has stopped, so its object is deleted.
    Remove,
}

/// A change of the pod's status to report.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    Running {
        ready: bool,
    },
    /// A container exited and is restarted.
    Restarted,
    Finished {
        exit_code: i32,
        reason: Option<&'static str>,
        message: Option<&'static str>,
    },
}

pub(super) fn decide(
    pod: &Pod,
    node: &Node,
    boots_at: Option<Timestamp>,
    claims_bound: impl Fn() -> bool,
    options: &Options,
    now: Timestamp,
) -> Step {
    let node_script = NodeScript::of(node, options);
    if node_script.dies_at.is_some_and(|dies_at| dies_at <= now) {
        return Step::Nothing;
    }
    match boots_at {
        None => return Step::Nothing,
        Some(boots_at) if now < boots_at => return Step::Wait(until(now, boots_at)),
        Some(_) => {}
    }
    if annotation(pod, "kubernetes.io/config.mirror").is_some() && pod.metadata.deletion_timestamp.is_some() {
        // A static pod runs from the kubelet's own file; deleting its mirror pod in the API does not stop it.
        return Step::Nothing;
    }
    let script = PodScript::of(pod, options);
    if let Some(stop) = stops_at(pod, &script) {
        return stopping(pod, &script, stop, now);
    }
    if pods::is_finished(pod) {
        return Step::Nothing;
    }
    let Some(started_at) = pod_started_at(pod) else {
        let Some(bound_at) = bound_at(pod) else { return Step::Nothing };
        let due = later(bound_at, script.start);
        return match due {
            Some(due) if now < due => Step::Wait(until(now, due)),
            _ if claims_bound() => Step::Write(Change::Running { ready: is_ready(pod, &script, now, now) }),
            _ => Step::Nothing,
        };
    };
    running(pod, &script, started_at, now)
}

/// When a terminating pod has stopped; `None` if it is not terminating.
fn stops_at(pod: &Pod, script: &PodScript) -> Option<Timestamp> {
    let deadline = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    let asked = deadline.checked_sub(grace).unwrap_or(deadline);
    let unstarted = pod_started_at(pod).is_none();
    if unstarted || pods::is_finished(pod) {
        return Some(asked);
    }
    Some(later(asked, pre_stop(pod) + script.stop).unwrap_or(deadline).min(deadline))
}

fn stopping(pod: &Pod, script: &PodScript, stops_at: Timestamp, now: Timestamp) -> Step {
    if now < stops_at {
        return Step::Wait(until(now, stops_at));
    }
    // The object is kept as long as it has a finalizer, because the client with the finalizer needs to read the
    // outcome.
    let held = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    if held && !pods::is_finished(pod) {
        let killed = 128 + 15;
        let exit_code = if script.exit_code == 0 { killed } else { script.exit_code };
        return Step::Write(Change::Finished { exit_code, reason: None, message: None });
    }
    if held && pod.metadata.deletion_grace_period_seconds == Some(0) {
        return Step::Nothing;
    }
    Step::Remove
}

fn running(pod: &Pod, script: &PodScript, started_at: Timestamp, now: Timestamp) -> Step {
    let spec = pod.spec.clone().unwrap_or_default();
    let deadline = spec.active_deadline_seconds.and_then(|seconds| {
        let start = pod.status.as_ref()?.start_time.as_ref()?.0;
        start.checked_add(SignedDuration::from_secs(seconds)).ok()
    });
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Step::Write(Change::Finished {
            exit_code: 128 + 9,
            reason: Some("DeadlineExceeded"),
            message: Some("Pod was active on the node longer than the specified deadline"),
        });
    }
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let ends = script.run.filter(|_| policy != "Always").and_then(|run| later(started_at, run));
    if ends.is_some_and(|ends| ends <= now) {
        return Step::Write(match (policy, script.exit_code) {
            ("OnFailure", code) if code != 0 => Change::Restarted,
            (_, exit_code) => Change::Finished { exit_code, reason: None, message: None },
        });
    }
    let ready = is_ready(pod, script, started_at, now);
    if pods::phase(pod) != "Running" || ready != pods::is_ready(pod) {
        return Step::Write(Change::Running { ready });
    }
    let becomes_ready = later(started_at, script.ready).filter(|_| !script.never_ready);
    let next = [deadline, ends, becomes_ready].into_iter().flatten().filter(|due| *due > now).min();
    next.map_or(Step::Nothing, |due| Step::Wait(until(now, due)))
}

fn is_ready(pod: &Pod, script: &PodScript, started_at: Timestamp, now: Timestamp) -> bool {
    containers_ready(script, started_at, now)
        && pod.spec.iter().filter_map(|spec| spec.readiness_gates.as_ref()).flatten().all(|gate| {
            pods::condition(pod, &gate.condition_type).is_some_and(|condition| condition.status == "True")
        })
}

fn containers_ready(script: &PodScript, started_at: Timestamp, now: Timestamp) -> bool {
    !script.never_ready && later(started_at, script.ready).is_none_or(|due| due <= now)
}

fn later(time: Timestamp, wait: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(wait).ok()?).ok()
}

fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let scheduled = pods::condition(pod, "PodScheduled").filter(|condition| condition.status == "True");
    let bound = scheduled.and_then(|condition| condition.last_transition_time.as_ref());
    bound.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// When the pod's containers started; `None` if they never did.
fn pod_started_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses
        .iter()
        .filter_map(|status| status.state.as_ref()?.running.as_ref()?.started_at.as_ref())
        .map(|time| time.0)
        .max()
}

/// The longest sleep of a preStop hook. Other hooks take no time.
fn pre_stop(pod: &Pod) -> Duration {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let sleeps = containers.filter_map(|container| {
        container.lifecycle.as_ref()?.pre_stop.as_ref()?.sleep.as_ref().map(|sleep| sleep.seconds)
    });
    Duration::from_secs(sleeps.max().unwrap_or(0).max(0) as u64)
}

/// The strategic merge patch that reports a change.
pub(super) fn status_patch(
    pod: &Pod,
    node: &Node,
    change: &Change,
    next_address: impl FnOnce() -> String,
    now: Timestamp,
) -> Value {
    let stamp = Time(whole_seconds(now));
    let spec = pod.spec.clone().unwrap_or_default();
    let current = pod.status.clone().unwrap_or_default();
    let mut status = Map::new();
    let (phase, initialized, containers_ready, ready) = match change {
        Change::Running { ready } => ("Running", true, *ready || gates_missing(pod, *ready), *ready),
        Change::Restarted => ("Running", true, true, true),
        Change::Finished { exit_code: 0, .. } => ("Succeeded", true, false, false),
        Change::Finished { .. } => ("Failed", true, false, false),
    };
    status.insert("phase".into(), json!(phase));
    if let Change::Finished { reason, message, .. } = change {
        status.extend(reason.map(|reason| ("reason".to_string(), json!(reason))));
        status.extend(message.map(|message| ("message".to_string(), json!(message))));
    }
    let completed = phase == "Succeeded";
    let why = |is: bool| match (is, completed, phase) {
        (true, ..) => None,
        (false, true, _) => Some("PodCompleted"),
        (false, false, "Failed") => Some("PodFailed"),
        (false, false, _) => Some("ContainersNotReady"),
    };
    let generation = pod.metadata.generation;
    let condition = |kind: &str, is: bool| {
        let wanted = if is { "True" } else { "False" };
        let known = pods::condition(pod, kind).filter(|known| known.status == wanted);
        let transition =
            known.and_then(|known| known.last_transition_time.clone()).unwrap_or_else(|| stamp.clone());
        json!({"type": kind, "status": wanted, "reason": why(is), "lastProbeTime": null,
            "lastTransitionTime": transition, "observedGeneration": generation})
    };
    let conditions = [
        condition("PodReadyToStartContainers", phase == "Running"),
        condition("Initialized", initialized),
        condition("Ready", ready),
        condition("ContainersReady", containers_ready),
        condition("PodScheduled", true),
    ];
    status.insert("conditions".into(), json!(conditions));
    if let Some(generation) = generation {
        status.insert("observedGeneration".into(), json!(generation));
    }
    if current.start_time.is_none() {
        status.insert("startTime".into(), json!(stamp));
    }
    let host = host_address(node);
    if current.host_ip.is_none() {
        status.insert("hostIP".into(), json!(host));
        status.insert("hostIPs".into(), json!([{"ip": host}]));
    }
    if current.pod_ip.is_none() && phase == "Running" {
        let address = if spec.host_network == Some(true) { host } else { next_address() };
        status.insert("podIP".into(), json!(address));
        status.insert("podIPs".into(), json!([{"ip": address}]));
    }
    let known = |list: &Option<Vec<_>>, name: &str| {
        let list: &[k8s_openapi::api::core::v1::ContainerStatus] = list.as_deref().unwrap_or_default();
        list.iter().find(|status| status.name == name).cloned()
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let one = |container: &Container,
               known: Option<k8s_openapi::api::core::v1::ContainerStatus>,
               ends: Option<i32>| {
        let started = known
            .as_ref()
            .and_then(|known| known.state.as_ref()?.running.as_ref()?.started_at.clone())
            .filter(|_| !matches!(change, Change::Restarted))
            .unwrap_or_else(|| stamp.clone());
        let restarts = known.map(|known| known.restart_count).unwrap_or(0);
        let restarts = restarts + i32::from(matches!(change, Change::Restarted));
        let state = match ends {
            Some(code) => json!({"terminated": {
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                "startedAt": started, "finishedAt": stamp,
            }, "running": null, "waiting": null}),
            None => json!({"running": {"startedAt": started}, "waiting": null, "terminated": null}),
        };
        json!({
            "name": container.name, "image": container.image.clone().unwrap_or_default(), "imageID": "",
            "containerID": format!("fake://{uid}/{}", container.name), "restartCount": restarts,
            "ready": ends.is_none() && containers_ready, "started": ends.is_none(), "state": state,
        })
    };
    let ends = match change {
        Change::Finished { exit_code, .. } => Some(*exit_code),
        _ => None,
    };
    let statuses: Vec<Value> = spec
        .containers
        .iter()
        .map(|container| one(container, known(&current.container_statuses, &container.name), ends))
        .collect();
    // Container statuses have no merge key, so the patch replaces the whole list.
    status.insert("containerStatuses".into(), json!(statuses));
    if let Some(init) = spec.init_containers.as_ref().filter(|init| !init.is_empty()) {
        let statuses: Vec<Value> = init
            .iter()
            .map(|container| {
                let sidecar = container.restart_policy.as_deref() == Some("Always");
                let ends = if sidecar { ends.map(|_| 0) } else { Some(0) };
                let mut status =
                    one(container, known(&current.init_container_statuses, &container.name), ends);
                status["ready"] = json!(!sidecar || ends.is_none());
                status
            })
            .collect();
        status.insert("initContainerStatuses".into(), json!(statuses));
    }
    json!({ "status": status })
}

/// Whether a readiness gate is missing, so that the containers are ready and the pod is not.
fn gates_missing(pod: &Pod, ready: bool) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let gated = gates.is_some_and(|gates| !gates.is_empty());
    let script = PodScript::of(pod, &Options::default());
    gated && !ready && !script.never_ready && script.ready.is_zero()
}

fn host_address(node: &Node) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP");
    internal.map(|address| address.address.clone()).unwrap_or_else(|| internal_address(name_of(node)))
}

#[cfg(test)]
mod tests;
