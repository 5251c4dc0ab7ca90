//! The status of a Deployment: counts over its ReplicaSets, and the conditions that `kubectl rollout status` and
//! `kubectl wait` read.
//!
//! Upstream: pkg/controller/deployment/progress.go

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::clock::{until, whole_seconds};
use karpenter_runtime::object::name_of;

use super::plan::{available, bounds, size};
use crate::controllers::context::unless_zero;

const NEWEST_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

pub(super) fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> DeploymentCondition {
    let now = Some(Time(whole_seconds(now)));
    DeploymentCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
}

/// Sets a condition unless its status and reason are unchanged. If only the reason changes, the transition time is
/// kept.
pub(super) fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(old) = find(status, &new.type_) {
        if old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time.clone();
        }
    }
    remove(status, &new.type_);
    status.conditions.get_or_insert_default().push(new);
}

fn has_deadline(spec: &DeploymentSpec) -> bool {
    spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

fn reason<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a str> {
    find(status, kind)?.reason.as_deref()
}

/// Records that a rollout was paused or resumed, so that the pause does not count towards the progress deadline.
pub(super) fn note_pause(status: &mut DeploymentStatus, spec: &DeploymentSpec, paused: bool, now: Timestamp) {
    let current = reason(status, "Progressing");
    if !has_deadline(spec) || current == Some(TIMED_OUT) {
        return;
    }
    let noted = current == Some(PAUSED);
    if paused && !noted {
        set_condition(status, condition("Progressing", "Unknown", PAUSED, "Deployment is paused", now));
    } else if !paused && noted {
        let resumed = condition("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now);
        set_condition(status, resumed);
    }
}

/// The status with the counts of pods and the condition Available, but without the progress of a rollout.
pub(super) fn calculate<'a>(
    deployment: &Deployment,
    base: &DeploymentStatus,
    sets: impl Iterator<Item = &'a ReplicaSet>,
    newest: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let (mut total, mut replicas, mut ready, mut is_available, mut terminating) = (0, 0, 0, 0, 0);
    let mut terminating_known = true;
    for set in sets {
        total += size(set);
        is_available += available(set);
        let Some(status) = &set.status else { continue };
        replicas += status.replicas;
        ready += status.ready_replicas.unwrap_or(0);
        match status.terminating_replicas {
            Some(count) => terminating += count,
            None => terminating_known = false,
        }
    }
    let updated = newest.and_then(|set| set.status.as_ref()).map(|status| status.replicas).unwrap_or(0);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: unless_zero(replicas),
        updated_replicas: unless_zero(updated),
        ready_replicas: unless_zero(ready),
        available_replicas: unless_zero(is_available),
        unavailable_replicas: unless_zero((total - is_available).max(0)),
        terminating_replicas: Some(terminating).filter(|_| terminating_known),
        collision_count: base.collision_count,
        conditions: base.conditions.clone(),
    };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let max_unavailable = deployment.spec.as_ref().map(|spec| bounds(spec).1).unwrap_or(0);
    let availability = if is_available >= wanted - max_unavailable {
        condition(
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
            now,
        )
    } else {
        let message = "Deployment does not have minimum availability.";
        condition("Available", "False", "MinimumReplicasUnavailable", message, now)
    };
    set_condition(&mut status, availability);
    status
}

/// The status during a rollout, including the condition Progressing: the rollout progresses, is complete, or timed out.
pub(super) fn rollout<'a>(
    deployment: &Deployment,
    mut base: DeploymentStatus,
    sets: impl Iterator<Item = &'a ReplicaSet> + Clone,
    newest: Option<&'a ReplicaSet>,
    created: bool,
    now: Timestamp,
) -> DeploymentStatus {
    let default_spec = DeploymentSpec::default();
    let spec = deployment.spec.as_ref().unwrap_or(&default_spec);
    if has_deadline(spec) {
        if let Some(set) = newest.filter(|_| created) {
            let message = format!("Created new replica set {:?}", name_of(set));
            let created = condition("Progressing", "True", "NewReplicaSetCreated", &message, now);
            set_condition(&mut base, created);
        } else if let Some(set) = newest.filter(|_| find(&base, "Progressing").is_none()) {
            let message = format!("Found new replica set {:?}", name_of(set));
            set_condition(&mut base, condition("Progressing", "True", "FoundNewReplicaSet", &message, now));
        }
    }
    let mut status = calculate(deployment, &base, sets.clone(), newest, now);
    let subject = newest
        .map(|set| format!("ReplicaSet {:?}", name_of(set)))
        .unwrap_or_else(|| format!("Deployment {:?}", name_of(deployment)));
    let was_complete = status.replicas.unwrap_or(0) == status.updated_replicas.unwrap_or(0)
        && reason(&base, "Progressing") == Some(NEWEST_AVAILABLE);
    if !has_deadline(spec) {
        remove(&mut status, "Progressing");
    } else if !was_complete {
        if is_complete(deployment, &status) {
            let message = format!("{subject} has successfully progressed.");
            set_condition(&mut status, condition("Progressing", "True", NEWEST_AVAILABLE, &message, now));
        } else if is_progressing(deployment, &status) {
            let message = format!("{subject} is progressing.");
            let mut progress = condition("Progressing", "True", "ReplicaSetUpdated", &message, now);
            if let Some(current) = find(&base, "Progressing") {
                if current.status == "True" {
                    progress.last_transition_time = current.last_transition_time.clone();
                }
                remove(&mut status, "Progressing");
            }
            set_condition(&mut status, progress);
        } else if is_timed_out(spec, &status, now) {
            let message = format!("{subject} has timed out progressing.");
            set_condition(&mut status, condition("Progressing", "False", TIMED_OUT, &message, now));
        }
    }
    note_failures(&mut status, sets, newest);
    status
}

fn note_failures<'a>(
    status: &mut DeploymentStatus,
    sets: impl Iterator<Item = &'a ReplicaSet>,
    newest: Option<&'a ReplicaSet>,
) {
    let failure = newest.into_iter().chain(sets).find_map(|set| {
        let conditions = set.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure")
    });
    match failure {
        Some(failure) => set_condition(
            status,
            DeploymentCondition {
                type_: failure.type_.clone(),
                status: failure.status.clone(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                last_transition_time: failure.last_transition_time.clone(),
                last_update_time: failure.last_transition_time.clone(),
            },
        ),
        None => remove(status, "ReplicaFailure"),
    }
}

pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

fn is_progressing(deployment: &Deployment, new: &DeploymentStatus) -> bool {
    let old = deployment.status.clone().unwrap_or_default();
    let outdated =
        |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
    new.updated_replicas > old.updated_replicas
        || outdated(new) < outdated(&old)
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

fn deadline(spec: &DeploymentSpec, progress: &DeploymentCondition) -> Option<Timestamp> {
    let seconds = i64::from(spec.progress_deadline_seconds?);
    progress.last_update_time.as_ref()?.0.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn is_timed_out(spec: &DeploymentSpec, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(progress) = find(status, "Progressing") else { return false };
    match progress.reason.as_deref() {
        Some(NEWEST_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => deadline(spec, progress).is_some_and(|deadline| deadline < now),
    }
}

/// When to check the progress deadline again.
pub(super) fn next_check(
    spec: &DeploymentSpec,
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let progress = find(status, "Progressing")?;
    if !has_deadline(spec)
        || is_complete(deployment, status)
        || matches!(progress.reason.as_deref(), Some(TIMED_OUT | NEWEST_AVAILABLE))
    {
        return None;
    }
    Some(until(now, deadline(spec, progress)?) + Duration::from_secs(1))
}
