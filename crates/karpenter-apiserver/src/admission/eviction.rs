//! Decides whether a pod may be evicted, and what must be written for the eviction.
//!
//! An accepted eviction decrements `status.disruptionsAllowed` of the pod's PodDisruptionBudget, and adds the pod to
//! `status.disruptedPods` until the disruption controller has observed the deletion.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::conditions::{find, set_condition, set_pod_condition};
use super::json::{Object, child, child_mut, integer, is_deleting, is_set, name, namespace, text};
use super::selector;
use super::{EvictionDecision, Lookup};
use crate::clock::rfc3339_seconds;
use crate::status::{ApiResult, Cause, Failure};

const DISRUPTED_PODS_MAX: usize = 2000;
const BUDGET_VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub(crate) fn decide_eviction(
    pod: &Value,
    eviction: &Value,
    dry_run: bool,
    lookup: &dyn Lookup,
    now: Timestamp,
) -> ApiResult<EvictionDecision> {
    if name(eviction) != name(pod) {
        return Err(Box::new(Failure::bad_request("name in URL does not match name in Eviction object")));
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Object(options) => options.clone(),
        _ => Object::new(),
    };
    let is_dry_run = dry_run
        || options.get("dryRun").is_some_and(|value| value.as_array().is_some_and(|all| !all.is_empty()));
    if is_dry_run {
        options.insert("dryRun".into(), json!(["All"]));
    }
    check_preconditions(pod, &options)?;

    let phase = text(&pod["status"]["phase"]);
    let is_terminal = matches!(phase, "Succeeded" | "Failed") || is_deleting(pod);
    let mut budget = None;
    // If the pod is not ready, its deletion gets the pod's resource version as a precondition, because the pod may
    // become ready in the meantime.
    let mut requires_version = false;
    if is_terminal || phase == "Pending" {
        requires_version = !is_terminal;
    } else if let Some(found) = budget_of(pod, lookup)? {
        let status = &found["status"];
        let (healthy, desired) = (count(status, "currentHealthy"), count(status, "desiredHealthy"));
        let always = text(&found["spec"]["unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        if !is_ready(pod) && (always || (healthy >= desired && desired > 0)) {
            requires_version = true;
        } else {
            budget = Some(charge(&found, name(pod), now)?).filter(|_| !is_dry_run);
        }
    }
    if requires_version {
        let preconditions = child(&mut options, "preconditions");
        if !preconditions.contains_key("resourceVersion") {
            preconditions.insert("resourceVersion".into(), pod["metadata"]["resourceVersion"].clone());
        }
    }
    let with_disruption_target = with_disruption_target(pod, now).filter(|_| !is_dry_run);
    if with_disruption_target.is_some() {
        // Storing the condition changes the resource version, so it cannot be a precondition of the deletion. Instead,
        // the caller stores the condition at the resource version that was read.
        if let Some(preconditions) = child_mut(&mut options, "preconditions") {
            preconditions.remove("resourceVersion");
            if preconditions.is_empty() {
                options.remove("preconditions");
            }
        }
    }
    Ok(EvictionDecision { budget, pod: with_disruption_target, delete_options: Value::Object(options) })
}

pub(crate) fn mark_evicted(pod: &Value, eviction: &Value, now: Timestamp) -> ApiResult<Option<Value>> {
    if let Value::Object(options) = &eviction["deleteOptions"] {
        check_preconditions(pod, options)?;
    }
    Ok(with_disruption_target(pod, now))
}

/// The pod with the condition `DisruptionTarget` added; `None` if it has the condition.
fn with_disruption_target(pod: &Value, now: Timestamp) -> Option<Value> {
    let mut with_disruption_target = pod.clone();
    if let Value::Object(map) = &mut with_disruption_target {
        let message = "Eviction API: evicting";
        set_pod_condition(
            child(map, "status"),
            "DisruptionTarget",
            "True",
            "EvictionByEvictionAPI",
            message,
            now,
        );
    }
    (with_disruption_target != *pod).then_some(with_disruption_target)
}

fn check_preconditions(pod: &Value, options: &Object) -> ApiResult<()> {
    let Some(preconditions) = options.get("preconditions") else { return Ok(()) };
    for (key, word, ending) in [
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ] {
        let (asked, actual) = (text(&preconditions[key]), text(&pod["metadata"][key]));
        if !asked.is_empty() && asked != actual {
            let why = format!(
                "the {word} in the precondition ({asked}) does not match the {word} in record ({actual}). {ending}"
            );
            return Err(Box::new(Failure::conflict("", "Pod", name(pod), &why)));
        }
    }
    Ok(())
}

fn budget_of(pod: &Value, lookup: &dyn Lookup) -> ApiResult<Option<Arc<Value>>> {
    let mut budgets = lookup.list("policy", "poddisruptionbudgets", namespace(pod));
    budgets.retain(|budget| {
        selector::matches(&budget["spec"]["selector"], &pod["metadata"]["labels"]) == Some(true)
    });
    if budgets.len() > 1 {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Box::new(Failure::new(500, "", message)));
    }
    Ok(budgets.pop())
}

fn is_ready(pod: &Value) -> bool {
    find(&pod["status"], "Ready").is_some_and(|condition| condition["status"] == "True")
}

fn count(status: &Value, key: &str) -> i64 {
    integer(&status[key]).unwrap_or(0)
}

/// The PodDisruptionBudget after one more eviction; an error if it allows no more evictions.
fn charge(budget: &Value, pod_name: &str, now: Timestamp) -> ApiResult<Value> {
    let budget_name = name(budget);
    let status = &budget["status"];
    if count(status, "observedGeneration") < integer(&budget["metadata"]["generation"]).unwrap_or(0) {
        let message = format!("The disruption budget {budget_name} is still being processed by the server.");
        return Err(too_many_requests(message, Some(10)));
    }
    let allowed = count(status, "disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Box::new(Failure::forbidden("policy", "poddisruptionbudget", budget_name, why)));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Box::new(Failure::forbidden("policy", "poddisruptionbudget", budget_name, why)));
    }
    if allowed == 0 {
        return Err(too_many_requests(denial_message(budget), None));
    }
    let mut taken = budget.clone();
    if let Value::Object(map) = &mut taken {
        let status = child(map, "status");
        status.insert("disruptionsAllowed".into(), json!(allowed - 1));
        if allowed == 1 {
            let observed = status.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
            set_condition(status, "DisruptionAllowed", "False", "InsufficientPods", observed, now);
        }
        child(status, "disruptedPods").insert(pod_name.to_string(), json!(rfc3339_seconds(now)));
    }
    Ok(taken)
}

fn denial_message(budget: &Value) -> String {
    let budget_name = name(budget);
    let status = &budget["status"];
    let (healthy, desired) = (count(status, "currentHealthy"), count(status, "desiredHealthy"));
    let refused = find(status, "DisruptionAllowed")
        .filter(|condition| condition["status"] == "False" && is_set(&condition["message"]))
        .map(|condition| (text(&condition["reason"]), text(&condition["message"])))
        .filter(|(_, message)| !message.is_empty());
    match refused {
        Some(("SyncFailed", message)) => format!(
            "The disruption budget {budget_name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if healthy <= desired => {
            format!(
                "The disruption budget {budget_name} needs {desired} healthy pods and has {healthy} currently"
            )
        }
        Some((reason, message)) => {
            format!(
                "The disruption budget {budget_name} does not allow evicting pods currently ({reason}): {message}"
            )
        }
        None => format!("The disruption budget {budget_name} does not allow evicting pods currently"),
    }
}

fn too_many_requests(message: String, retry_after_seconds: Option<u32>) -> Box<Failure> {
    let mut failure = Failure::new(429, "TooManyRequests", BUDGET_VIOLATED);
    failure.retry_after_seconds = retry_after_seconds;
    failure.causes.push(Cause { reason: "DisruptionBudget".into(), message, field: None });
    Box::new(failure)
}

#[cfg(test)]
mod tests;
