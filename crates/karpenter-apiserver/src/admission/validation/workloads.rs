//! Validation of Deployments, ReplicaSets, StatefulSets and DaemonSets. Jobs are validated in `jobs`.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/apps/validation/validation.go

pub(super) mod jobs;
pub(super) mod status;

use serde_json::{Value, json};

use super::budgets::{check_at_most_all, check_int_or_percent};
use super::metadata::check_selector;
use super::{Errors, check_immutable, check_nonnegative, metadata, pods, storage, text, with_struct_text};
use crate::admission::json::{
    Object, child, entries, integer, is_set, items, objects_mut, set_or_remove, text as string,
};
use crate::admission::selector;
use crate::field::FieldError;

/// Checks that the selector is set, not empty and valid.
fn check_required_selector(spec: &Value, kind: &str, errors: &mut Errors) {
    let own = &spec["selector"];
    if !is_set(own) {
        errors.push(FieldError::required("spec.selector", ""));
        return;
    }
    check_selector(own, "spec.selector", errors);
    if is_empty_selector(own) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", own.clone(), why));
    }
}

/// Whether the selector is set and empty, so that it matches everything. An absent selector matches nothing.
fn is_everything(own: &Value) -> bool {
    is_set(own) && is_empty_selector(own)
}

fn is_empty_selector(own: &Value) -> bool {
    entries(&own["matchLabels"]).next().is_none() && items(&own["matchExpressions"]).is_empty()
}

/// Checks that the selector matches the labels of the pod template.
fn check_selected(spec: &Value, path: &str, errors: &mut Errors) {
    let labels = &spec["template"]["metadata"]["labels"];
    if selector::matches(&spec["selector"], labels) == Some(false) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(format!("{path}.template.metadata.labels"), labels.clone(), why));
    }
}

fn check_always_restarts(spec: &Value, kind: &str, errors: &mut Errors) {
    let pod = &spec["template"]["spec"];
    if pod["restartPolicy"] != "Always" {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, pod["restartPolicy"].clone(), &["Always"]));
    }
    if is_set(&pod["activeDeadlineSeconds"]) {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", why));
    }
}

/// Checks a pod template by the rules for ReplicaSets and Deployments.
fn check_replicated_template(spec: &Value, errors: &mut Errors) {
    if selector::matches(&spec["selector"], &Value::Null).is_none() {
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), "invalid label selector"));
        return;
    }
    if !is_everything(&spec["selector"]) {
        check_selected(spec, "spec", errors);
    }
    pods::check_template(&spec["template"], "spec.template", errors);
    check_always_restarts(spec, "ReplicaSet", errors);
}

pub(super) fn check_deployment(deployment: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &deployment["spec"];
    check_nonnegative(&spec["replicas"], "spec.replicas", errors);
    check_required_selector(spec, "deployment", errors);
    check_replicated_template(spec, errors);
    check_strategy(&spec["strategy"], errors);
    check_nonnegative(&spec["minReadySeconds"], "spec.minReadySeconds", errors);
    check_nonnegative(&spec["revisionHistoryLimit"], "spec.revisionHistoryLimit", errors);
    if let Some(deadline) = integer(&spec["progressDeadlineSeconds"]) {
        check_nonnegative(&spec["progressDeadlineSeconds"], "spec.progressDeadlineSeconds", errors);
        if deadline <= integer(&spec["minReadySeconds"]).unwrap_or(0) {
            let why = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid("spec.progressDeadlineSeconds", json!(deadline), why));
        }
    }
    if let Some(old) = old {
        check_immutable(&spec["selector"], &old["spec"]["selector"], "spec.selector", errors);
    }
}

fn check_strategy(strategy: &Value, errors: &mut Errors) {
    let path = "spec.strategy";
    let rolling = &strategy["rollingUpdate"];
    match string(&strategy["type"]) {
        "Recreate" => {
            if is_set(rolling) {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), why));
            }
        }
        "RollingUpdate" => {
            let unavailable = format!("{path}.rollingUpdate.maxUnavailable");
            check_int_or_percent(&rolling["maxUnavailable"], &unavailable, errors);
            check_int_or_percent(&rolling["maxSurge"], &format!("{path}.rollingUpdate.maxSurge"), errors);
            if is_zero(&rolling["maxUnavailable"]) && is_zero(&rolling["maxSurge"]) {
                let why = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(&unavailable, rolling["maxUnavailable"].clone(), why));
            }
            check_at_most_all(&rolling["maxUnavailable"], &unavailable, errors);
        }
        kind => {
            let error = FieldError::not_supported(path, strategy.clone(), &["Recreate", "RollingUpdate"]);
            errors.push(with_struct_text(error, &[("Type", &json!(kind)), ("RollingUpdate", rolling)]));
        }
    }
}

/// `0` or `0%`.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(given) => given.strip_suffix('%').unwrap_or(given).parse::<i64>().unwrap_or(0) == 0,
        _ => integer(value).unwrap_or(0) == 0,
    }
}

pub(super) fn check_replica_set(set: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &set["spec"];
    check_nonnegative(&spec["replicas"], "spec.replicas", errors);
    check_nonnegative(&spec["minReadySeconds"], "spec.minReadySeconds", errors);
    check_required_selector(spec, "deployment", errors);
    check_replicated_template(spec, errors);
    if let Some(old) = old {
        check_immutable(&spec["selector"], &old["spec"]["selector"], "spec.selector", errors);
    }
}

pub(super) fn check_replication_controller(controller: &Value, errors: &mut Errors) {
    let spec = &controller["spec"];
    check_nonnegative(&spec["minReadySeconds"], "spec.minReadySeconds", errors);
    if entries(&spec["selector"]).next().is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    check_nonnegative(&spec["replicas"], "spec.replicas", errors);
    if !is_set(&spec["template"]) {
        errors.push(FieldError::required("spec.template", ""));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if entries(&spec["selector"]).any(|(key, value)| labels.get(key) != Some(value)) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), why));
    }
    pods::check_template(&spec["template"], "spec.template", errors);
    check_always_restarts(spec, "ReplicationController", errors);
}

pub(super) fn check_stateful_set(set: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &set["spec"];
    let policy = &spec["podManagementPolicy"];
    if !matches!(string(policy), "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", policy.clone(), why));
    }
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    match string(&spec["updateStrategy"]["type"]) {
        "OnDelete" => {
            if is_set(rolling) {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                let error = FieldError::invalid("spec.updateStrategy.rollingUpdate", rolling.clone(), why);
                let partition = json!(integer(&rolling["partition"]).unwrap_or(0));
                errors.push(with_struct_text(
                    error,
                    &[("Partition", &partition), ("MaxUnavailable", &rolling["maxUnavailable"])],
                ));
            }
        }
        "RollingUpdate" => {
            check_nonnegative(&rolling["partition"], "spec.updateStrategy.rollingUpdate.partition", errors);
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            let strategy = &spec["updateStrategy"];
            let error = FieldError::invalid("spec.updateStrategy", strategy.clone(), why);
            errors.push(with_struct_text(error, &[("Type", &strategy["type"]), ("RollingUpdate", rolling)]));
        }
    }
    if old.is_none() {
        for (index, claim) in items(&spec["volumeClaimTemplates"]).iter().enumerate() {
            storage::check_claim_spec(
                &claim["spec"],
                &format!("spec.volumeClaimTemplates[{index}].spec"),
                errors,
            );
        }
    }
    check_nonnegative(&spec["replicas"], "spec.replicas", errors);
    check_nonnegative(&spec["minReadySeconds"], "spec.minReadySeconds", errors);
    check_nonnegative(&spec["ordinals"]["start"], "spec.ordinals.start", errors);
    let service = string(&spec["serviceName"]);
    if old.is_none() && !service.is_empty() {
        for problem in text::label(service) {
            errors.push(FieldError::invalid("spec.serviceName", json!(service), problem));
        }
    }
    check_required_selector(spec, "statefulset", errors);
    if selector::matches(&spec["selector"], &Value::Null).is_none() {
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), ""));
    } else {
        if !is_everything(&spec["selector"]) {
            check_selected(spec, "spec", errors);
        }
        let template = template_with_claims(spec);
        pods::check_template(&template, "spec.template", errors);
        // kube-apiserver checks these labels twice, so each error is reported twice.
        metadata::check_labels(&template["metadata"]["labels"], "spec.template.labels", errors);
        metadata::check_annotations(
            &template["metadata"]["annotations"],
            "spec.template.annotations",
            errors,
        );
    }
    check_always_restarts(spec, "StatefulSet", errors);
    if let Some(old) = old {
        check_stateful_set_change(spec, &old["spec"], errors);
    }
}

/// The pod template with one more volume for each claim template, because mounts may refer to claim templates.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = items(&spec["volumeClaimTemplates"]);
    let names: Vec<&str> = claims.iter().map(|claim| string(&claim["metadata"]["name"])).collect();
    if let Value::Object(map) = &mut template {
        let pod: &mut Object = child(map, "spec");
        let mut volumes: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        volumes.extend(
            objects_mut(pod, "volumes")
                .filter(|volume| !volume.get("name").is_some_and(|name| names.contains(&string(name))))
                .map(|volume| Value::Object(volume.clone())),
        );
        set_or_remove(pod, "volumes", (!volumes.is_empty()).then_some(Value::Array(volumes)));
    }
    template
}

fn check_stateful_set_change(after: &Value, before: &Value, errors: &mut Errors) {
    let mutable = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let fixed = |spec: &Value| -> Object {
        entries(spec)
            .filter(|(key, _)| !mutable.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    if fixed(after) != fixed(before) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

pub(super) fn check_daemon_set(set: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &set["spec"];
    if let Some(old) = old {
        check_immutable(&spec["selector"], &old["spec"]["selector"], "spec.selector", errors);
    }
    check_selector(&spec["selector"], "spec.selector", errors);
    check_selected(spec, "spec", errors);
    if is_set(&spec["selector"]) && is_empty_selector(&spec["selector"]) {
        let why = "empty selector is invalid for daemonset";
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), why));
    }
    pods::check_template(&spec["template"], "spec.template", errors);
    check_always_restarts(spec, "DaemonSet", errors);
    check_nonnegative(&spec["minReadySeconds"], "spec.minReadySeconds", errors);
    check_daemon_strategy(&spec["updateStrategy"], errors);
    check_nonnegative(&spec["revisionHistoryLimit"], "spec.revisionHistoryLimit", errors);
}

fn check_daemon_strategy(strategy: &Value, errors: &mut Errors) {
    let rolling = &strategy["rollingUpdate"];
    match string(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            for key in ["maxUnavailable", "maxSurge"] {
                check_int_or_percent(
                    &rolling[key],
                    &format!("spec.updateStrategy.rollingUpdate.{key}"),
                    errors,
                );
            }
            for key in ["maxUnavailable", "maxSurge"] {
                check_at_most_all(&rolling[key], &format!("spec.updateStrategy.rollingUpdate.{key}"), errors);
            }
            match (is_zero(&rolling["maxUnavailable"]), is_zero(&rolling["maxSurge"])) {
                (false, false) => {
                    let path = "spec.updateStrategy.rollingUpdate.maxSurge";
                    let why = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(path, rolling["maxSurge"].clone(), why));
                }
                (true, true) => {
                    let path = "spec.updateStrategy.rollingUpdate.maxUnavailable";
                    errors.push(FieldError::required(path, "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        kind => {
            let supported = ["RollingUpdate", "OnDelete"];
            let error = FieldError::not_supported("spec.updateStrategy", strategy.clone(), &supported);
            errors.push(with_struct_text(error, &[("Type", &json!(kind)), ("RollingUpdate", rolling)]));
        }
    }
}
