//! Validation of Jobs and CronJobs.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/batch/validation/validation.go

use serde_json::{Value, json};

use super::check_selected;
use crate::admission::json::{
    Object, child, child_mut, integer, is_set, name, set_or_remove, text as string,
};
use crate::admission::selector;
use crate::admission::validation::metadata::check_selector;
use crate::admission::validation::{Errors, check_immutable, check_nonnegative, cron, pods, text};
use crate::field::FieldError;

const PARALLELISM_MAX_WHEN_INDEXED: i64 = 100_000;

pub(in crate::admission::validation) fn check_job(job: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &job["spec"];
    check_generated_selector(job, errors);
    check_complete_spec(spec, errors);
    check_indexed_name(job, errors);
    if let Some(old) = old {
        check_complete_spec(spec, errors);
        check_change(spec, old, errors);
    }
}

fn check_complete_spec(spec: &Value, errors: &mut Errors) {
    check_spec(spec, "spec", errors);
    if is_set(&spec["selector"]) {
        check_selector(&spec["selector"], "spec.selector", errors);
    } else {
        errors.push(FieldError::required("spec.selector", ""));
    }
    check_selected(spec, "spec", errors);
}

fn check_generated_selector(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    if spec["manualSelector"] == true || !is_set(&spec["selector"]) {
        return;
    }
    let (own_name, uid) = (name(job), string(&job["metadata"]["uid"]));
    let expected = [
        ("controller-uid", uid),
        ("job-name", own_name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", own_name),
    ];
    let labels = &spec["template"]["metadata"]["labels"];
    for (key, value) in expected {
        let path = "spec.template.metadata.labels";
        match labels.get(key) {
            None => errors.push(FieldError::required(format!("{path}[{key}]"), format!("must be '{value}'"))),
            Some(actual) if actual != value => {
                errors.push(FieldError::invalid(
                    format!("{path}[{key}]"),
                    labels.clone(),
                    format!("must be '{value}'"),
                ));
            }
            Some(_) => {}
        }
    }
    let wanted: Value =
        expected.iter().map(|(key, value)| (key.to_string(), json!(value))).collect::<Object>().into();
    if selector::matches(&spec["selector"], &wanted) == Some(false) {
        let why = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), why));
    }
}

fn check_indexed_name(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    let completions = integer(&spec["completions"]).unwrap_or(0);
    if spec["completionMode"] == "Indexed" && completions > 0 {
        let longest = format!("{}-{}", name(job), completions - 1);
        if !text::label(&longest).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.push(FieldError::invalid("metadata.name", json!(name(job)), why));
        }
    }
}

fn check_spec(spec: &Value, path: &str, errors: &mut Errors) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        check_nonnegative(&spec[key], &format!("{path}.{key}"), errors);
    }
    if is_set(&spec["maxFailedIndexes"]) && !is_set(&spec["backoffLimitPerIndex"]) {
        let why = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(format!("{path}.backoffLimitPerIndex"), why));
    }
    let mode = &spec["completionMode"];
    if is_set(mode) && !matches!(string(mode), "NonIndexed" | "Indexed") {
        let supported = ["NonIndexed", "Indexed"];
        errors.push(FieldError::not_supported(format!("{path}.completionMode"), mode.clone(), &supported));
    }
    if mode == "Indexed" {
        if !is_set(&spec["completions"]) {
            errors
                .push(FieldError::required(format!("{path}.completions"), "when completion mode is Indexed"));
        }
        if let Some(parallelism) = integer(&spec["parallelism"])
            && parallelism > PARALLELISM_MAX_WHEN_INDEXED
        {
            let why = format!(
                "must be less than or equal to {PARALLELISM_MAX_WHEN_INDEXED} when completion mode is Indexed"
            );
            errors.push(FieldError::invalid(format!("{path}.parallelism"), json!(parallelism), why));
        }
    } else {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if is_set(&spec[key]) {
                let why = "requires indexed completion mode";
                errors.push(FieldError::invalid(format!("{path}.{key}"), spec[key].clone(), why));
            }
        }
    }
    let replacement = &spec["podReplacementPolicy"];
    if is_set(replacement) {
        let has_policy = is_set(&spec["podFailurePolicy"]);
        let supported: &[&str] = if has_policy { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        if !supported.contains(&string(replacement)) {
            let own = format!("{path}.podReplacementPolicy");
            errors.push(FieldError::not_supported(own, replacement.clone(), supported));
        }
    }
    pods::check_template(&spec["template"], &format!("{path}.template"), errors);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let own = format!("{path}.template.spec.restartPolicy");
    match string(policy) {
        "Always" | "" => errors.push(FieldError::required(own, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if is_set(&spec["podFailurePolicy"]) => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(own, policy.clone(), why));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(FieldError::not_supported(own, policy.clone(), &["OnFailure", "Never"])),
    }
}

fn check_change(after: &Value, old: &Value, errors: &mut Errors) {
    let before = &old["spec"];
    if after["completionMode"] != "Indexed" {
        check_immutable(&after["completions"], &before["completions"], "spec.completions", errors);
    } else if after["completions"] != before["completions"]
        && is_set(&after["completions"])
        && after["completions"] != after["parallelism"]
    {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", after["completions"].clone(), why));
    }
    check_immutable(&after["selector"], &before["selector"], "spec.selector", errors);
    let mut template = before["template"].clone();
    // While a Job is suspended and has not started, a queue controller may change the scheduling fields of its pod
    // template.
    if before["suspend"] == true && !is_set(&old["status"]["startTime"]) {
        allow_scheduling_changes(&mut template, &after["template"]);
    }
    check_immutable(&after["template"], &template, "spec.template", errors);
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        check_immutable(&after[key], &before[key], &format!("spec.{key}"), errors);
    }
}

fn allow_scheduling_changes(template: &mut Value, wanted: &Value) {
    let Value::Object(map) = template else { return };
    let metadata = child(map, "metadata");
    for key in ["annotations", "labels"] {
        set_or_remove(metadata, key, wanted["metadata"].get(key).cloned());
    }
    let spec = child(map, "spec");
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        set_or_remove(spec, key, wanted["spec"].get(key).cloned());
    }
    let node = wanted["spec"]["affinity"].get("nodeAffinity").cloned();
    if is_set(&wanted["spec"]["affinity"]) {
        set_or_remove(child(spec, "affinity"), "nodeAffinity", node);
    } else if let Some(affinity) = child_mut(spec, "affinity") {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec.remove("affinity");
        }
    }
}

pub(in crate::admission::validation) fn check_cron_job(
    cron_job: &Value,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    let spec = &cron_job["spec"];
    let schedule = string(&spec["schedule"]);
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else {
        if let Some(problem) = cron::schedule_problem(schedule) {
            errors.push(FieldError::invalid("spec.schedule", json!(schedule), problem));
        }
        let had_zone = old.is_some_and(|old| string(&old["spec"]["schedule"]).contains("TZ"));
        if schedule.contains("TZ") && !had_zone {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(FieldError::invalid("spec.schedule", json!(schedule), why));
        }
    }
    check_nonnegative(&spec["startingDeadlineSeconds"], "spec.startingDeadlineSeconds", errors);
    if spec["timeZone"] == "" {
        let why = "timeZone must be nil or non-empty string";
        errors.push(FieldError::invalid("spec.timeZone", json!(""), why));
    }
    let policies = ["Allow", "Forbid", "Replace"];
    if !policies.contains(&string(&spec["concurrencyPolicy"])) {
        let shown = spec["concurrencyPolicy"].clone();
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", shown, &policies));
    }
    let job = &spec["jobTemplate"]["spec"];
    check_spec(job, "spec.jobTemplate.spec", errors);
    if is_set(&job["selector"]) {
        let why = "`selector` will be auto-generated";
        errors.push(FieldError::invalid("spec.jobTemplate.spec.selector", job["selector"].clone(), why));
    }
    if job["manualSelector"] == true {
        let path = "spec.jobTemplate.spec.manualSelector";
        errors.push(FieldError::not_supported(path, json!(true), &["nil", "false"]));
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        check_nonnegative(&spec[key], &format!("spec.{key}"), errors);
    }
    if old.is_none() && name(cron_job).len() > 52 {
        errors.push(FieldError::invalid(
            "metadata.name",
            json!(name(cron_job)),
            "must be no more than 52 characters",
        ));
    }
}
