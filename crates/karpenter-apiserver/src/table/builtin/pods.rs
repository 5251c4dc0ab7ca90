//! The columns of pods, pod templates and PodDisruptionBudgets.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE, Kind, NAME, condition_is_true, containers, created, integer, is_deleting, labels, list, name, plain,
    text, text_or,
};
use crate::table::{age_at, parse_time};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "",
        kind: "Pod",
        columns: &[
            NAME,
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            AGE,
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ],
        cells: pod,
    },
    Kind {
        group: "",
        kind: "PodTemplate",
        columns: &[NAME, ("Containers", "string", 0), ("Images", "string", 0), ("Pod Labels", "string", 0)],
        cells: |object, _| {
            let [names, images] = containers(object, "/template/spec/containers");
            vec![name(object), names, images, labels(object, "/template/metadata/labels").into()]
        },
    },
    Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[
            NAME,
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            AGE,
        ],
        cells: |object, now| {
            let bound = |pointer| object.pointer(pointer).map_or_else(|| "N/A".to_string(), plain);
            vec![
                name(object),
                bound("/spec/minAvailable").into(),
                bound("/spec/maxUnavailable").into(),
                integer(object, "/status/disruptionsAllowed").into(),
                created(object, now),
            ]
        },
    },
];

fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, age_at(time, now)),
        _ => summary.restarts.to_string(),
    };
    let gates = list(pod, "/spec/readinessGates");
    let gates = if gates.is_empty() {
        "<none>".to_string()
    } else {
        let passed = gates.iter().filter(|gate| condition_is_true(pod, text(gate, "/conditionType"))).count();
        format!("{passed}/{}", gates.len())
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        created(pod, now),
        text_or(pod, "/status/podIPs/0/ip", "<none>").into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        gates.into(),
    ]
}

/// Totals over the containers of a pod.
struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let is_sidecar = |name: &str| {
            list(pod, "/spec/initContainers")
                .iter()
                .any(|container| container["name"] == name && text(container, "/restartPolicy") == "Always")
        };
        let sidecars = list(pod, "/spec/initContainers")
            .iter()
            .filter(|container| text(container, "/restartPolicy") == "Always")
            .count();
        let mut summary = Self {
            reason: text_or(pod, "/status/reason", phase).to_string(),
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let is_gated = list(pod, "/status/conditions")
            .iter()
            .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
        if is_gated {
            summary.reason = "SchedulingGated".to_string();
        }

        let mut sidecar_restarts = 0;
        let mut last_sidecar_restart = None;
        let mut initializing = false;
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            summary.count_restarts(status);
            let sidecar = is_sidecar(text(status, "/name"));
            if sidecar {
                sidecar_restarts += integer(status, "/restartCount");
                last_sidecar_restart = last_sidecar_restart.max(last_termination(status));
            }
            let terminated = status.pointer("/state/terminated");
            let waiting = text(status, "/state/waiting/reason");
            if terminated.is_some_and(|terminated| integer(terminated, "/exitCode") == 0) {
                continue;
            }
            if sidecar && status["started"] == Value::Bool(true) {
                summary.ready += usize::from(status["ready"] == Value::Bool(true));
                continue;
            }
            summary.reason = if let Some(terminated) = terminated {
                format!("Init:{}", termination_text(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", list(pod, "/spec/initContainers").len())
            };
            initializing = true;
            break;
        }
        if !initializing || condition_is_true(pod, "Initialized") {
            summary.restarts = sidecar_restarts;
            summary.last_restart = last_sidecar_restart;
            summary.add_containers(pod);
        }
        if is_deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                summary.reason = "Unknown".to_string();
            } else if phase != "Succeeded" && phase != "Failed" {
                summary.reason = "Terminating".to_string();
            }
        }
        summary
    }

    fn add_containers(&mut self, pod: &Value) {
        let mut has_running = false;
        let mut error_reason = String::new();
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_string();
            } else if let Some(terminated) = status.pointer("/state/terminated") {
                self.reason = termination_text(terminated);
                if integer(terminated, "/exitCode") != 0 {
                    error_reason.clone_from(&self.reason);
                }
            } else if status["ready"] == Value::Bool(true) && status.pointer("/state/running").is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && condition_is_true(pod, "Ready") {
                self.reason = "Running".to_string();
            } else if !error_reason.is_empty() {
                self.reason = error_reason;
            } else if has_running {
                self.reason = "NotReady".to_string();
            }
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += integer(status, "/restartCount");
        self.last_restart = self.last_restart.max(last_termination(status));
    }
}

fn last_termination(status: &Value) -> Option<Timestamp> {
    parse_time(text(status, "/lastState/terminated/finishedAt"))
}

fn termination_text(terminated: &Value) -> String {
    let (reason, signal) = (text(terminated, "/reason"), integer(terminated, "/signal"));
    if !reason.is_empty() {
        reason.to_string()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", integer(terminated, "/exitCode"))
    }
}

/// The conditions of a row. A finished pod has the condition `Completed`, so that clients can hide the row.
pub(crate) fn row_conditions(object: &Value) -> Option<Value> {
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(serde_json::json!([
        {"type": "Completed", "status": "True", "reason": reason, "message": message}
    ]))
}
