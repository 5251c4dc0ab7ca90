//! Defaults of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/apps/v1/defaults.go, k8s.io/kubernetes/pkg/apis/batch/v1/defaults.go

use serde_json::{Value, json};

use super::pods::default_template;
use crate::admission::json::{Object, child, child_mut, objects_mut, set_default, text};

pub(super) fn default_replication_controller(map: &mut Object) {
    set_default(child(map, "spec"), "replicas", 1);
    let labels = template_labels(child(map, "spec"));
    if let Some(labels) = labels {
        set_default(child(map, "spec"), "selector", labels.clone());
        set_default(child(map, "metadata"), "labels", labels);
    }
    if let Some(template) = child_mut(child(map, "spec"), "template") {
        default_template(template);
    }
}

fn template_labels(spec: &Object) -> Option<Value> {
    let labels = spec.get("template")?["metadata"].get("labels")?;
    labels.as_object().is_some_and(|labels| !labels.is_empty()).then(|| labels.clone())
}

pub(super) fn default_deployment(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    let strategy = child(spec, "strategy");
    set_default(strategy, "type", "RollingUpdate");
    if text(&strategy["type"]) == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
    default_template(child(spec, "template"));
}

pub(super) fn default_replica_set(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "replicas", 1);
    if let Some(template) = child_mut(spec, "template") {
        default_template(template);
    }
}

pub(super) fn default_stateful_set(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    if !strategy.contains_key("type") {
        strategy.insert("type".into(), json!("RollingUpdate"));
        child(strategy, "rollingUpdate");
    }
    if text(&strategy["type"]) == "RollingUpdate"
        && let Some(rolling) = child_mut(strategy, "rollingUpdate")
    {
        set_default(rolling, "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set_default(retention, "whenDeleted", "Retain");
    set_default(retention, "whenScaled", "Retain");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    for claim in objects_mut(spec, "volumeClaimTemplates") {
        // Go encodes claim templates as complete objects, so they have `apiVersion` and `kind`.
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
        super::storage::default_claim(claim);
    }
    default_template(child(spec, "template"));
}

pub(super) fn default_daemon_set(map: &mut Object) {
    let spec = child(map, "spec");
    let strategy = child(spec, "updateStrategy");
    set_default(strategy, "type", "RollingUpdate");
    if text(&strategy["type"]) == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
    set_default(spec, "revisionHistoryLimit", 10);
    default_template(child(spec, "template"));
    // The strategy sets the value of this annotation later. The annotation is added here, so that it is part of the
    // managed fields.
    let annotations = child(child(map, "metadata"), "annotations");
    set_default(annotations, "deprecated.daemonset.template.generation", "0");
}

pub(super) fn default_job(map: &mut Object) {
    let spec = child(map, "spec");
    default_job_spec(spec);
    let labels = template_labels(spec);
    if let Some(labels) = labels {
        set_default(child(map, "metadata"), "labels", labels);
    }
    // The job template of a CronJob does not get this default, only a Job does.
    let spec = child(map, "spec");
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    set_default(spec, "parallelism", 1);
    let backoff_limit = if spec.contains_key("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    set_default(spec, "backoffLimit", backoff_limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
}

fn default_job_spec(spec: &mut Object) {
    if let Some(policy) = child_mut(spec, "podFailurePolicy") {
        for rule in objects_mut(policy, "rules") {
            for pattern in objects_mut(rule, "onPodConditions") {
                set_default(pattern, "status", "True");
            }
        }
    }
    default_template(child(spec, "template"));
}

pub(super) fn default_cron_job(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    default_job_spec(child(child(spec, "jobTemplate"), "spec"));
}
