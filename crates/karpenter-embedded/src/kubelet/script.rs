//! Scripted behaviour of simulated nodes and pods, by annotations.
//!
//! On a node:
//! - `fake-kubelet/boot-seconds`: from the node's creation until its kubelet starts
//! - `fake-kubelet/never-ready`: `true`: the kubelet reports, but the node is never Ready
//! - `fake-kubelet/dies-after-seconds` (after creation) or `fake-kubelet/dies-at` (a time): then the kubelet stops
//! - `fake-kubelet/sick-conditions`: conditions of the unhealthy node, such as `DiskPressure=True,Ready=False`
//! - `fake-kubelet/sick-after-seconds`: from the node's creation until it is unhealthy; 0 if absent
//! - `fake-kubelet/remove-taints`: keys of taints that are removed once the node is Ready, as a startup agent does
//!
//! On a pod:
//! - `fake-kubelet/start-seconds`: from binding until it runs
//! - `fake-kubelet/ready-seconds`: from running until it is ready
//! - `fake-kubelet/never-ready`: `true`
//! - `fake-kubelet/run-seconds`: how long it runs, if its restart policy is Never or OnFailure
//! - `fake-kubelet/exit-code`: of its containers; 0 if absent
//! - `fake-kubelet/stop-seconds`: from the end of its preStop hook until it has stopped; kwok's
//!   `pod-delete.stage.kwok.x-k8s.io/delay` means the same
//!
//! With kwok's label `kwok.x-k8s.io/stage=unhealthy` a pod is not ready. A node with this label is frozen: its kubelet
//! renews the Lease and does not write the status, so that conditions that other clients write are not overwritten.
//! Invalid values are ignored.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::object::{annotation, label};

use super::Options;

/// The label by which kwok selects a stage other than the default.
pub const STAGE_LABEL: &str = "kwok.x-k8s.io/stage";
pub const STAGE_UNHEALTHY: &str = "unhealthy";

/// The scripted behaviour of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeScript {
    pub boot: Duration,
    pub never_ready: bool,
    /// Whether the kubelet leaves the status of the node to another client.
    pub is_frozen: bool,
    pub dies_at: Option<Timestamp>,
    pub sick_from: Option<Timestamp>,
    /// The types and statuses of conditions while the node is unhealthy.
    pub sick_conditions: Vec<(String, String)>,
    pub remove_taints: Vec<String>,
}

/// The scripted behaviour of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodScript {
    pub start: Duration,
    pub ready: Duration,
    pub never_ready: bool,
    pub run: Option<Duration>,
    pub exit_code: i32,
    pub stop: Duration,
}

fn seconds(text: Option<&str>) -> Option<Duration> {
    let seconds = text?.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A duration in Go's format: `300ms`, `1m30s`.
fn go_duration(text: Option<&str>) -> Option<Duration> {
    let mut rest = text?;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                _ => return None,
            };
        rest = &rest[end..];
    }
    Duration::try_from_secs_f64(total).ok()
}

fn later(time: Timestamp, wait: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(wait).ok()?).ok()
}

impl NodeScript {
    pub fn of(node: &Node, options: &Options) -> Self {
        let get = |key: &str| annotation(node, &format!("fake-kubelet/{key}"));
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let after = |key: &str| later(created?, seconds(get(key))?);
        let list = |key: &str| -> Vec<String> {
            let parts = get(key).unwrap_or_default().split(',').map(str::trim);
            parts.filter(|part| !part.is_empty()).map(str::to_string).collect()
        };
        let sick_conditions = list("sick-conditions")
            .iter()
            .filter_map(|part| part.split_once('='))
            .map(|(kind, status)| (kind.to_string(), status.to_string()))
            .collect();
        Self {
            boot: seconds(get("boot-seconds")).unwrap_or(options.boot),
            never_ready: get("never-ready") == Some("true"),
            is_frozen: label(node, STAGE_LABEL) == Some(STAGE_UNHEALTHY),
            dies_at: get("dies-at")
                .and_then(|text| text.parse().ok())
                .or_else(|| after("dies-after-seconds")),
            sick_from: after("sick-after-seconds"),
            sick_conditions,
            remove_taints: list("remove-taints"),
        }
    }

    /// When the node's kubelet starts.
    pub fn boots_at(&self, node: &Node) -> Option<Timestamp> {
        later(node.metadata.creation_timestamp.as_ref()?.0, self.boot)
    }
}

impl PodScript {
    pub fn of(pod: &Pod, options: &Options) -> Self {
        let get = |key: &str| annotation(pod, &format!("fake-kubelet/{key}"));
        Self {
            start: seconds(get("start-seconds")).unwrap_or(options.pod_start),
            ready: seconds(get("ready-seconds")).unwrap_or(Duration::ZERO),
            never_ready: get("never-ready") == Some("true")
                || label(pod, STAGE_LABEL) == Some(STAGE_UNHEALTHY),
            run: seconds(get("run-seconds")),
            exit_code: get("exit-code").and_then(|text| text.parse().ok()).unwrap_or(0),
            stop: seconds(get("stop-seconds"))
                .or_else(|| go_duration(annotation(pod, "pod-delete.stage.kwok.x-k8s.io/delay")))
                .unwrap_or(options.pod_stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        assert_eq!(go_duration(Some("1m30s")), Some(Duration::from_secs(90)));
        assert_eq!(go_duration(Some("300ms")), Some(Duration::from_millis(300)));
        assert_eq!(go_duration(Some("1.5s")), Some(Duration::from_millis(1500)));
        assert_eq!(go_duration(Some("soon")), None);
        assert_eq!(go_duration(Some("5")), None);
    }
}
