//! Predicates of pods: unschedulable, reschedulable, evictable, blocking.
//!
//! The predicates depend on one pod at one time only, and make no decisions.
//!
//! Upstream: pkg/utils/pod/scheduling.go.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karpenter_api::labels;
use karpenter_model::duration::parse_go_duration;

use crate::pod::Pod;
use crate::workloads::namespace_of;

/// A pod that still exists this long after its deletion timestamp no longer blocks the drain.
pub const STUCK_TERMINATING_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Whether the scheduler tried to schedule the pod and found no node; the pod may be nominated or not.
///
/// Unlike upstream, a terminating pod is not provisionable, because kube-scheduler would not bind it.
pub fn is_provisionable(pod: &Pod) -> bool {
    let may_wait = is_active(pod) && !is_owned_by_daemon_set(pod) && !is_owned_by_node(pod);
    pod.status.is_unschedulable && !is_bound(pod) && may_wait
}

pub fn is_bound(pod: &Pod) -> bool {
    node_name(pod).is_some()
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.node_name.as_deref()
}

pub fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.nominated_node.as_deref()
}

/// Succeeded or failed.
pub fn is_terminal(pod: &Pod) -> bool {
    pod.status.phase.is_terminal()
}

pub fn is_terminating(pod: &Pod) -> bool {
    pod.deleted_at.is_some()
}

pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

/// Whether the pod has an owner of this kind, which need not be the controller.
pub(crate) fn is_owned_by(pod: &Pod, api_version: &str, kind: &str) -> bool {
    pod.owners().iter().any(|owner| owner.kind == kind && owner.api_version == api_version)
}

pub fn is_owned_by_daemon_set(pod: &Pod) -> bool {
    is_owned_by(pod, "apps/v1", "DaemonSet")
}

/// Whether the pod is a static pod: the kubelet of its node runs it, and the API object only mirrors it.
pub fn is_owned_by_node(pod: &Pod) -> bool {
    is_owned_by(pod, "v1", "Node")
}

/// Whether the pod has to be rescheduled if its node is deleted. A pod of a StatefulSet is recreated with its name, so
/// it counts even while it terminates.
pub fn is_reschedulable(pod: &Pod) -> bool {
    let returns = is_active(pod) || (is_owned_by(pod, "apps/v1", "StatefulSet") && is_terminating(pod));
    returns && !is_owned_by_daemon_set(pod) && !is_owned_by_node(pod)
}

/// Whether the pod is reschedulable and nothing prevents its eviction permanently. `budgets` are those of its
/// namespace.
pub fn is_currently_reschedulable<'a>(
    pod: &Pod,
    budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>,
    now: Timestamp,
) -> bool {
    is_reschedulable(pod) && !is_do_not_disrupt(pod, now) && !is_fully_blocked(pod, budgets, now)
}

/// Whether the pod is active and protected by the do-not-disrupt annotation. The annotation of a DaemonSet pod or
/// static pod counts as well: it protects the node.
pub fn is_do_not_disrupt(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod) && is_do_not_disrupt_active(pod, now)
}

/// Whether the pod is active and protected by the v1alpha5 annotation `karpenter.sh/do-not-evict`.
pub fn is_do_not_evict(pod: &Pod) -> bool {
    is_active(pod) && pod.annotation(labels::ANNOTATION_DO_NOT_EVICT) == Some("true")
}

/// Whether the API server rejects every eviction of the pod: several PodDisruptionBudgets select it, or one that allows
/// none.
fn is_fully_blocked<'a>(
    pod: &Pod,
    budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>,
    now: Timestamp,
) -> bool {
    // PodDisruptionBudgets do not matter for pods that are not evicted.
    if !is_evictable(pod, now) {
        return false;
    }
    let mut of_pod = budgets.into_iter().filter(|budget| budget_selects(budget, pod));
    match (of_pod.next(), of_pod.next()) {
        (None, _) => false,
        (Some(_), Some(_)) => true,
        (Some(only), None) => allows_nothing(only) && !(always_allows_unready(only) && is_unready(pod)),
    }
}

/// Whether the spec of the PodDisruptionBudget allows no eviction at any time.
pub fn allows_nothing(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    let is_none = match &spec.max_unavailable {
        Some(IntOrString::Int(count)) => *count == 0,
        Some(IntOrString::String(text)) => text == "0%" || text == "0",
        None => false,
    };
    let is_all = matches!(&spec.min_available, Some(IntOrString::String(text)) if text == "100%");
    is_none || is_all
}

/// Whether unready pods may be evicted even if the PodDisruptionBudget allows no disruptions.
pub fn always_allows_unready(budget: &PodDisruptionBudget) -> bool {
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    policy == Some("AlwaysAllow")
}

/// Whether the condition `Ready` is `False`.
pub fn is_unready(pod: &Pod) -> bool {
    pod.status.ready.is_some_and(|ready| ready.is_false)
}

/// Whether a budget selects a pod. An empty selector selects all pods of the namespace, a missing one selects
/// none.
pub fn budget_selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    namespace_of(&budget.metadata) == pod.namespace()
        && budget
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref())
            .is_some_and(|selector| selector_matches(selector, pod))
}

fn selector_matches(selector: &LabelSelector, pod: &Pod) -> bool {
    let value_of = |key: &str| pod.labels().get(key);
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| value_of(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = value_of(&expression.key);
            let listed = |value: &String| expression.values.iter().flatten().any(|one| one == value);
            match expression.operator.as_str() {
                "In" => value.is_some_and(listed),
                "NotIn" => !value.is_some_and(listed),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The effect that the annotation `karpenter.sh/do-not-disrupt` of a pod has at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// The pod has no such annotation.
    Absent,
    /// The value is `"true"`, or a duration that cannot elapse because the pod has not started.
    Always,
    /// The value is a duration since the start of the pod; it ends at this time.
    Until(Timestamp),
    Elapsed,
    /// The value is neither `"true"` nor a positive duration. It protects nothing and is reported to the user.
    Invalid,
}

pub fn do_not_disrupt(pod: &Pod, now: Timestamp) -> DoNotDisrupt {
    let Some(value) = pod.annotation(labels::ANNOTATION_DO_NOT_DISRUPT) else { return DoNotDisrupt::Absent };
    if value == "true" {
        return DoNotDisrupt::Always;
    }
    let nanos = parse_go_duration(value).unwrap_or(0);
    if nanos <= 0 {
        return DoNotDisrupt::Invalid;
    }
    let Some(started) = pod.status.started_at else { return DoNotDisrupt::Always };
    let until = started.checked_add(SignedDuration::from_nanos(nanos)).unwrap_or(Timestamp::MAX);
    if now < until { DoNotDisrupt::Until(until) } else { DoNotDisrupt::Elapsed }
}

pub fn is_do_not_disrupt_active(pod: &Pod, now: Timestamp) -> bool {
    matches!(do_not_disrupt(pod, now), DoNotDisrupt::Always | DoNotDisrupt::Until(_))
}

/// Whether the pod may be evicted now.
pub fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod)
        && !tolerates_disruption(pod)
        && !is_owned_by_node(pod)
        && !is_do_not_disrupt_active(pod, now)
}

/// Whether the pod must have terminated before its node can be terminated.
pub fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    !tolerates_disruption(pod) && !is_stuck_terminating(pod, now) && !is_owned_by_node(pod)
}

pub fn is_waiting_eviction(pod: &Pod, now: Timestamp) -> bool {
    !is_terminal(pod) && is_drainable(pod, now)
}

pub fn is_stuck_terminating(pod: &Pod, now: Timestamp) -> bool {
    pod.deleted_at.is_some_and(|deleted| now.duration_since(deleted) > STUCK_TERMINATING_AFTER)
}

/// Whether the pod tolerates the taint of a disrupted node, so that it is not evicted.
pub fn tolerates_disruption(pod: &Pod) -> bool {
    pod.spec.tolerations.iter().flatten().any(tolerates_disrupted_taint)
}

/// Whether the pod tolerates the taint of a cordoned node.
pub fn tolerates_unschedulable(pod: &Pod) -> bool {
    pod.spec.tolerations.iter().flatten().any(|one| tolerates_taint(one, labels::TAINT_UNSCHEDULABLE))
}

fn tolerates_disrupted_taint(toleration: &Toleration) -> bool {
    tolerates_taint(toleration, labels::TAINT_DISRUPTED)
}

/// Whether a toleration matches this taint without a value, with effect NoSchedule.
fn tolerates_taint(toleration: &Toleration, taint: &str) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_effect = effect.is_empty() || effect == "NoSchedule";
    let is_key = key.is_empty() || key == taint;
    let is_value = match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        // The taint has no value, and an empty key is valid with Exists only.
        "" | "Equal" => !key.is_empty() && toleration.value.as_deref().unwrap_or_default().is_empty(),
        _ => false,
    };
    is_effect && is_key && is_value
}

/// The uid, which distinguishes pods with the same name.
pub fn uid_of(pod: &Pod) -> &str {
    &pod.uid
}
