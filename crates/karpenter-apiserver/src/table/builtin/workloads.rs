//! The columns of workloads: Deployments, ReplicaSets, Jobs and others.

use serde_json::Value;

use super::{
    AGE, CONTAINERS, IMAGES, Kind, NAME, SELECTOR, condition_is_true, containers, count, created, integer,
    is_deleting, labels, list, name, plain, selector_or_none, selector_text, text, text_or, with_more,
};
use crate::table::{age, age_at, parse_time};

const TEMPLATE_CONTAINERS: &str = "/spec/template/spec/containers";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            ("Ready", "string", 0),
            ("Up-to-date", "string", 0),
            ("Available", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, TEMPLATE_CONTAINERS);
            vec![
                name(object),
                ready_of(object).into(),
                integer(object, "/status/updatedReplicas").into(),
                integer(object, "/status/availableReplicas").into(),
                created(object, now),
                names,
                images,
                selector_text(object, "/spec/selector").into(),
            ]
        },
    },
    Kind {
        group: "apps",
        kind: "ReplicaSet",
        columns: &[
            NAME,
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| replicas(object, now, selector_or_none(object, "/spec/selector")),
    },
    Kind {
        group: "",
        kind: "ReplicationController",
        columns: &[
            NAME,
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| replicas(object, now, labels(object, "/spec/selector")),
    },
    Kind {
        group: "apps",
        kind: "StatefulSet",
        columns: &[NAME, ("Ready", "string", 0), AGE, CONTAINERS, IMAGES],
        cells: |object, now| {
            let [names, images] = containers(object, TEMPLATE_CONTAINERS);
            vec![name(object), ready_of(object).into(), created(object, now), names, images]
        },
    },
    Kind {
        group: "apps",
        kind: "DaemonSet",
        columns: &[
            NAME,
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            ("Up-to-date", "integer", 0),
            ("Available", "integer", 0),
            ("Node Selector", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, TEMPLATE_CONTAINERS);
            let number = |field: &str| Value::from(integer(object, &format!("/status/{field}")));
            vec![
                name(object),
                number("desiredNumberScheduled"),
                number("currentNumberScheduled"),
                number("numberReady"),
                number("updatedNumberScheduled"),
                number("numberAvailable"),
                labels(object, "/spec/template/spec/nodeSelector").into(),
                created(object, now),
                names,
                images,
                selector_or_none(object, "/spec/selector").into(),
            ]
        },
    },
    Kind {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[NAME, ("Controller", "string", 0), ("Revision", "string", 0), AGE],
        cells: |object, now| {
            vec![
                name(object),
                controller(object).into(),
                integer(object, "/revision").into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            ("Status", "string", 0),
            ("Completions", "string", 0),
            ("Duration", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, TEMPLATE_CONTAINERS);
            let start = parse_time(text(object, "/status/startTime"));
            let end = parse_time(text(object, "/status/completionTime"));
            vec![
                name(object),
                job_status(object).into(),
                completions(object).into(),
                start.map_or_else(String::new, |start| age_at(start, end.unwrap_or(now))).into(),
                created(object, now),
                names,
                images,
                selector_or_none(object, "/spec/selector").into(),
            ]
        },
    },
    Kind {
        group: "batch",
        kind: "CronJob",
        columns: &[
            NAME,
            ("Schedule", "string", 0),
            ("Timezone", "string", 0),
            ("Suspend", "boolean", 0),
            ("Active", "integer", 0),
            ("Last Schedule", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
            let last = match text(object, "/status/lastScheduleTime") {
                "" => "<none>".to_string(),
                _ => age(object, "/status/lastScheduleTime", now),
            };
            let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
                Some(true) => "True",
                Some(false) => "False",
                None => "<unset>",
            };
            vec![
                name(object),
                text(object, "/spec/schedule").into(),
                text_or(object, "/spec/timeZone", "<none>").into(),
                suspend.into(),
                count(object, "/status/active").into(),
                last.into(),
                created(object, now),
                names,
                images,
                selector_or_none(object, "/spec/jobTemplate/spec/selector").into(),
            ]
        },
    },
    Kind {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            ("Reference", "string", 0),
            ("Targets", "string", 0),
            ("MinPods", "string", 0),
            ("MaxPods", "string", 0),
            ("Replicas", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let target = |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}"));
            let low = object.pointer("/spec/minReplicas").map_or_else(|| "<unset>".to_string(), plain);
            vec![
                name(object),
                format!("{}/{}", target("kind"), target("name")).into(),
                metrics(object).into(),
                low.into(),
                integer(object, "/spec/maxReplicas").into(),
                integer(object, "/status/currentReplicas").into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "autoscaling",
        kind: "Scale",
        columns: &[NAME, ("Desired", "integer", 0), ("Available", "integer", 0), AGE],
        cells: |object, now| {
            vec![
                name(object),
                integer(object, "/spec/replicas").into(),
                integer(object, "/status/replicas").into(),
                created(object, now),
            ]
        },
    },
];

fn ready_of(object: &Value) -> String {
    format!("{}/{}", integer(object, "/status/readyReplicas"), integer(object, "/spec/replicas"))
}

fn replicas(object: &Value, now: jiff::Timestamp, selector: String) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        name(object),
        integer(object, "/spec/replicas").into(),
        integer(object, "/status/replicas").into(),
        integer(object, "/status/readyReplicas").into(),
        created(object, now),
        names,
        images,
        selector.into(),
    ]
}

/// The owner that controls the object, such as `statefulset.apps/name`.
fn controller(object: &Value) -> String {
    let owners = list(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == Value::Bool(true)) else {
        return "<none>".to_string();
    };
    let group = text(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = text(owner, "/kind");
    let kind = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
    format!("{}/{}", kind.to_lowercase(), text(owner, "/name"))
}

fn job_status(job: &Value) -> &'static str {
    if condition_is_true(job, "Complete") {
        "Complete"
    } else if condition_is_true(job, "Failed") {
        "Failed"
    } else if is_deleting(job) {
        "Terminating"
    } else if condition_is_true(job, "Suspended") {
        "Suspended"
    } else if condition_is_true(job, "FailureTarget") {
        "FailureTarget"
    } else if condition_is_true(job, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = integer(job, "/status/succeeded");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match integer(job, "/spec/parallelism") {
            parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        },
    }
}

/// The current and the target values of the first metrics of a HorizontalPodAutoscaler.
fn metrics(autoscaler: &Value) -> String {
    let specs = list(autoscaler, "/spec/metrics");
    if specs.is_empty() {
        return version_one_target(autoscaler);
    }
    let statuses = list(autoscaler, "/status/currentMetrics");
    let parts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    with_more(&parts, 2, ", ")
}

/// The target in `autoscaling/v1`, which has one metric, in fields of its own.
fn version_one_target(autoscaler: &Value) -> String {
    let Some(target) = autoscaler.pointer("/spec/targetCPUUtilizationPercentage").map(plain) else {
        return "<none>".to_string();
    };
    let current = autoscaler.pointer("/status/currentCPUUtilizationPercentage");
    let current = current.map_or_else(|| "<unknown>".to_string(), |current| format!("{}%", plain(current)));
    format!("cpu: {current}/{target}%")
}

fn metric(spec: &Value, status: &Value) -> String {
    let source = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_string(),
    };
    let target = |field: &str| spec.pointer(&format!("/{source}/target/{field}")).map(plain);
    let current = |field: &str, suffix: &str| {
        let found = status.pointer(&format!("/{source}/current/{field}")).map(plain);
        found.map_or_else(|| "<unknown>".to_string(), |found| format!("{found}{suffix}"))
    };
    let is_resource = matches!(source, "resource" | "containerResource");
    let lead =
        if is_resource { format!("{}: ", text(spec, &format!("/{source}/name"))) } else { String::new() };
    match target("averageValue") {
        Some(average) if is_resource || source == "pods" => {
            format!("{lead}{}/{average}", current("averageValue", ""))
        }
        Some(average) => format!("{}/{average} (avg)", current("averageValue", "")),
        None if is_resource => {
            let target =
                target("averageUtilization").map_or_else(|| "<auto>".into(), |found| format!("{found}%"));
            format!("{lead}{}/{target}", current("averageUtilization", "%"))
        }
        None => format!("{}/{}", current("value", ""), target("value").unwrap_or_default()),
    }
}
