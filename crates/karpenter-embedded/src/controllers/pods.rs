//! Properties of pods that controllers need, and pods from templates.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use karpenter_runtime::clock;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the phase is `Succeeded` or `Failed`; such a pod never runs again.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod is neither finished nor terminating.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod has a deletion timestamp and is not finished.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// When the pod became ready; `None` if it is not ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether the pod has been ready for at least `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds == 0 || available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO))
}

/// The duration until the pod is available if it stays ready; `None` if it is not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let since = ready_since(pod)?;
    let at = since.checked_add(SignedDuration::from_secs(i64::from(min_ready_seconds))).ok()?;
    Some(clock::until(now, at))
}

/// The duration until the next ready pod is available; `None` if all are.
pub fn next_available_in<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds == 0 {
        return None;
    }
    pods.into_iter()
        .filter_map(|pod| available_in(pod, min_ready_seconds, now))
        .filter(|wait| !wait.is_zero())
        .min()
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Builds a pod of a controller; the API server generates its name.
pub fn from_template(template: &PodTemplateSpec, namespace: &str, owner: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(name_prefix(&owner.name)),
        namespace: Some(namespace.to_string()),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// The prefix for the names of a controller's pods: `name-`, unless that is too long.
fn name_prefix(controller: &str) -> String {
    const NAME_BYTES_MAX: usize = 253;
    let prefix = format!("{controller}-");
    if prefix.len() > NAME_BYTES_MAX { controller.to_string() } else { prefix }
}
