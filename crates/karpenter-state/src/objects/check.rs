//! Checks values that have the right type but that an API server would not store: invalid quantities,
//! negative counts, unknown operators.
//!
//! Only fields that planning reads are checked. An object that passes can be converted without further
//! errors.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, Node, NodeSelectorTerm, PersistentVolume, Pod, PodAffinityTerm, PodSpec, PodTemplateSpec,
    ResourceRequirements, Taint, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use karpenter_api::schema::short_text;
use karpenter_api::validate::{is_label_value, is_qualified_name};
use karpenter_model::quantity::Quantity;
use karpenter_model::requirements::Operator;
use karpenter_model::taints::Effect;

use super::problem::Problem;

type Problems = Vec<Problem>;

pub(super) fn nothing<T>(_object: &T, _problems: &mut Problems) {}

pub(super) fn pod(pod: &Pod, problems: &mut Problems) {
    match &pod.spec {
        Some(spec) => pod_spec("spec", spec, problems),
        None => missing("spec", problems),
    }
    let statuses = pod.status.iter().flat_map(|status| {
        let lists = [&status.container_statuses, &status.init_container_statuses];
        lists.into_iter().flatten().flatten()
    });
    for (index, status) in statuses.enumerate() {
        let path = format!("status.containerStatuses[{index}]");
        quantities(&format!("{path}.allocatedResources"), status.allocated_resources.as_ref(), problems);
        if let Some(resources) = &status.resources {
            resource_requirements(&format!("{path}.resources"), resources, problems);
        }
    }
}

pub(super) fn deployment(object: &Deployment, problems: &mut Problems) {
    match &object.spec {
        Some(spec) => {
            pod_count("spec.replicas", spec.replicas, problems);
            template("spec.template", &spec.template, problems);
        }
        None => missing("spec", problems),
    }
}

pub(super) fn replica_set(object: &ReplicaSet, problems: &mut Problems) {
    match &object.spec {
        Some(spec) => {
            pod_count("spec.replicas", spec.replicas, problems);
            match &spec.template {
                Some(pod_template) => template("spec.template", pod_template, problems),
                None => missing("spec.template", problems),
            }
        }
        None => missing("spec", problems),
    }
}

pub(super) fn stateful_set(object: &StatefulSet, problems: &mut Problems) {
    match &object.spec {
        Some(spec) => {
            pod_count("spec.replicas", spec.replicas, problems);
            not_negative("spec.ordinals.start", spec.ordinals.as_ref().and_then(|o| o.start), problems);
            template("spec.template", &spec.template, problems);
        }
        None => missing("spec", problems),
    }
}

pub(super) fn daemon_set(object: &DaemonSet, problems: &mut Problems) {
    match &object.spec {
        Some(spec) => template("spec.template", &spec.template, problems),
        None => missing("spec", problems),
    }
}

pub(super) fn job(object: &Job, problems: &mut Problems) {
    match &object.spec {
        Some(spec) => job_spec("spec", spec, problems),
        None => missing("spec", problems),
    }
}

pub(super) fn cron_job(object: &CronJob, problems: &mut Problems) {
    match object.spec.as_ref().map(|spec| &spec.job_template.spec) {
        Some(Some(spec)) => job_spec("spec.jobTemplate.spec", spec, problems),
        _ => missing("spec.jobTemplate.spec", problems),
    }
}

fn job_spec(path: &str, spec: &JobSpec, problems: &mut Problems) {
    pod_count(&format!("{path}.parallelism"), spec.parallelism, problems);
    not_negative(&format!("{path}.completions"), spec.completions, problems);
    template(&format!("{path}.template"), &spec.template, problems);
}

pub(super) fn node(node: &Node, problems: &mut Problems) {
    if let Some(status) = &node.status {
        quantities("status.allocatable", status.allocatable.as_ref(), problems);
        quantities("status.capacity", status.capacity.as_ref(), problems);
    }
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    for (index, taint) in taints.enumerate() {
        node_taint(index, taint, problems);
    }
}

fn node_taint(index: usize, taint: &Taint, problems: &mut Problems) {
    if Effect::parse(&taint.effect).is_none() {
        problems.push(bad_effect(format!("spec.taints[{index}].effect"), &taint.effect));
    }
}

pub(super) fn persistent_volume(volume: &PersistentVolume, problems: &mut Problems) {
    let terms = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref())
        .map_or(&[][..], |required| &required.node_selector_terms);
    for (index, term) in terms.iter().enumerate() {
        node_term(&format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]"), term, problems);
    }
}

pub(super) fn csi_node(object: &CSINode, problems: &mut Problems) {
    for (index, driver) in object.spec.drivers.iter().enumerate() {
        let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
        not_negative(&format!("spec.drivers[{index}].allocatable.count"), count, problems);
    }
}

fn template(path: &str, template: &PodTemplateSpec, problems: &mut Problems) {
    if let Some(labels) = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()) {
        label_map(&format!("{path}.metadata.labels"), labels, problems);
    }
    match &template.spec {
        Some(spec) => pod_spec(&format!("{path}.spec"), spec, problems),
        None => missing(&format!("{path}.spec"), problems),
    }
}

fn pod_spec(path: &str, spec: &PodSpec, problems: &mut Problems) {
    if spec.containers.is_empty() {
        problems.push(Problem::new(format!("{path}.containers"), "is empty").valid("at least one container"));
    }
    for (index, one) in spec.containers.iter().enumerate() {
        container(path, "containers", index, one, problems);
    }
    for (index, one) in spec.init_containers.iter().flatten().enumerate() {
        container(path, "initContainers", index, one, problems);
    }
    if let Some(resources) = &spec.resources {
        resource_requirements(&format!("{path}.resources"), resources, problems);
    }
    if spec.overhead.is_some() {
        quantities(&format!("{path}.overhead"), spec.overhead.as_ref(), problems);
    }
    for (index, one) in spec.tolerations.iter().flatten().enumerate() {
        toleration(path, index, one, problems);
    }
    for (index, one) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        spread(&format!("{path}.topologySpreadConstraints[{index}]"), one, problems);
    }
    if let Some(labels) = &spec.node_selector {
        label_map(&format!("{path}.nodeSelector"), labels, problems);
    }
    let Some(affinity) = &spec.affinity else { return };
    let path = format!("{path}.affinity");
    if let Some(required) = affinity
        .node_affinity
        .as_ref()
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
    {
        let path = format!("{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
        required_terms(&format!("{path}.nodeSelectorTerms"), &required.node_selector_terms, problems);
    }
    if let Some(preferred) = affinity
        .node_affinity
        .as_ref()
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())
    {
        for (index, one) in preferred.iter().enumerate() {
            let path =
                format!("{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            weight(&path, one.weight, problems);
            node_term(&format!("{path}.preference"), &one.preference, problems);
        }
    }
    let pod_affinity = affinity.pod_affinity.as_ref();
    let pod_anti_affinity = affinity.pod_anti_affinity.as_ref();
    let lists = [
        (
            "podAffinity",
            pod_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            pod_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
        (
            "podAntiAffinity",
            pod_anti_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            pod_anti_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
    ];
    for (name, required, preferred) in lists {
        for (index, term) in required.into_iter().flatten().enumerate() {
            let path = format!("{path}.{name}.requiredDuringSchedulingIgnoredDuringExecution[{index}]");
            pod_term(&path, term, problems);
        }
        for (index, one) in preferred.into_iter().flatten().enumerate() {
            let path = format!("{path}.{name}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            weight(&path, one.weight, problems);
            pod_term(&format!("{path}.podAffinityTerm"), &one.pod_affinity_term, problems);
        }
    }
}

fn container(path: &str, list: &str, index: usize, container: &Container, problems: &mut Problems) {
    if let Some(resources) = &container.resources
        && (resources.requests.is_some() || resources.limits.is_some())
    {
        resource_requirements(&format!("{path}.{list}[{index}].resources"), resources, problems);
    }
    for (position, port) in container.ports.iter().flatten().enumerate() {
        let Some(host_port) = port.host_port else { continue };
        if u16::try_from(host_port).is_err() {
            let path = format!("{path}.{list}[{index}].ports[{position}].hostPort");
            problems.push(Problem::new(path, format!("{host_port} is not a port")).valid("0 to 65535"));
        }
    }
}

fn resource_requirements(path: &str, resources: &ResourceRequirements, problems: &mut Problems) {
    for (name, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        if amounts.is_some() {
            quantities(&format!("{path}.{name}"), amounts.as_ref(), problems);
        }
    }
}

fn quantities(path: &str, amounts: Option<&BTreeMap<String, RawQuantity>>, problems: &mut Problems) {
    for (name, amount) in amounts.into_iter().flatten() {
        label_key(&format!("{path}[{}]", short_text(name)), name, problems);
        match amount.0.parse::<Quantity>() {
            Ok(quantity) if quantity.is_negative() => problems.push(
                Problem::new(format!("{path}.{name}"), format!("{:?} is negative", amount.0))
                    .valid("0 or more"),
            ),
            Ok(_) => {}
            Err(error) => problems.push(
                Problem::new(format!("{path}.{name}"), error.to_string())
                    .valid("a quantity such as 2, 500m or 1.5Gi"),
            ),
        }
    }
}

fn toleration(path: &str, index: usize, toleration: &Toleration, problems: &mut Problems) {
    let path = |field: &str| format!("{path}.tolerations[{index}].{field}");
    let operator = toleration.operator.as_deref().unwrap_or("Equal");
    let key = toleration.key.as_deref().unwrap_or_default();
    match operator {
        "Exists" | "Equal" | "" => {}
        "Gt" | "Lt" => {
            let value = toleration.value.as_deref().unwrap_or_default();
            if value.parse::<i64>().is_err() {
                problems.push(
                    Problem::new(path("value"), format!("{value:?} is not an integer"))
                        .valid("an integer, for Gt and Lt"),
                );
            }
        }
        other => problems.push(
            Problem::new(path("operator"), format!("{other:?} is not an operator"))
                .valid("Exists, Equal, Gt or Lt"),
        ),
    }
    if !key.is_empty() {
        label_key(&path("key"), key, problems);
    }
    if let Some(value) = toleration.value.as_deref().filter(|_| matches!(operator, "Equal" | "")) {
        label_value(&path("value"), value, problems);
    }
    if key.is_empty() && operator != "Exists" {
        problems.push(
            Problem::new(path("key"), "is empty").valid("a key, or operator Exists to tolerate every key"),
        );
    }
    match toleration.effect.as_deref() {
        None | Some("") => {}
        Some(effect) if Effect::parse(effect).is_some() => {}
        Some(effect) => problems.push(bad_effect(path("effect"), effect)),
    }
}

fn bad_effect(path: String, effect: &str) -> Problem {
    Problem::new(path, format!("{effect:?} is not an effect"))
        .valid("NoSchedule, PreferNoSchedule or NoExecute")
}

fn spread(path: &str, constraint: &TopologySpreadConstraint, problems: &mut Problems) {
    if constraint.max_skew < 1 {
        let message = format!("{} is too small", constraint.max_skew);
        problems.push(Problem::new(format!("{path}.maxSkew"), message).valid("1 or more"));
    }
    if let Some(min_domains) = constraint.min_domains
        && min_domains < 1
    {
        let message = format!("{min_domains} is too small");
        problems.push(Problem::new(format!("{path}.minDomains"), message).valid("1 or more"));
    }
    label_key(&format!("{path}.topologyKey"), &constraint.topology_key, problems);
    one_of(
        path,
        "whenUnsatisfiable",
        Some(&constraint.when_unsatisfiable),
        &["DoNotSchedule", "ScheduleAnyway"],
        problems,
    );
    for (field, value) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        one_of(path, field, value.as_ref(), &["Honor", "Ignore"], problems);
    }
    selector(&format!("{path}.labelSelector"), constraint.label_selector.as_ref(), problems);
}

fn one_of(path: &str, field: &str, value: Option<&String>, valid: &[&str], problems: &mut Problems) {
    if let Some(value) = value
        && !valid.contains(&value.as_str())
    {
        let problem = Problem::new(format!("{path}.{field}"), format!("{value:?} is not supported"));
        problems.push(problem.valid(valid.join(" or ")));
    }
}

fn pod_term(path: &str, term: &PodAffinityTerm, problems: &mut Problems) {
    label_key(&format!("{path}.topologyKey"), &term.topology_key, problems);
    selector(&format!("{path}.labelSelector"), term.label_selector.as_ref(), problems);
    selector(&format!("{path}.namespaceSelector"), term.namespace_selector.as_ref(), problems);
}

fn selector(path: &str, selector: Option<&LabelSelector>, problems: &mut Problems) {
    if let Some(labels) = selector.and_then(|selector| selector.match_labels.as_ref()) {
        label_map(&format!("{path}.matchLabels"), labels, problems);
    }
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        let path = |field: &str| format!("{path}.matchExpressions[{index}].{field}");
        let has_values = expression.values.as_ref().is_some_and(|values| !values.is_empty());
        label_key(&path("key"), &expression.key, problems);
        for (position, value) in expression.values.iter().flatten().enumerate() {
            label_value(&path(&format!("values[{position}]")), value, problems);
        }
        match expression.operator.as_str() {
            "In" | "NotIn" if !has_values => problems
                .push(Problem::new(path("values"), "is empty").valid("at least one value for In and NotIn")),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if has_values => problems.push(
                Problem::new(path("values"), "is not empty").valid("no values for Exists and DoesNotExist"),
            ),
            "Exists" | "DoesNotExist" => {}
            other => problems.push(
                Problem::new(path("operator"), format!("{other:?} is not an operator"))
                    .valid("In, NotIn, Exists or DoesNotExist"),
            ),
        }
    }
}

/// Checks that a pod's list of required terms is not empty; the planner checks the requirements in the terms. An API
/// server does not store an empty list, and for kube-scheduler an empty term matches no node.
fn required_terms(path: &str, terms: &[NodeSelectorTerm], problems: &mut Problems) {
    if terms.is_empty() {
        problems.push(Problem::new(path, "is empty").valid("at least one term"));
        return;
    }
    let is_empty = |term: &NodeSelectorTerm| {
        term.match_expressions.as_ref().is_none_or(Vec::is_empty)
            && term.match_fields.as_ref().is_none_or(Vec::is_empty)
    };
    if terms.iter().all(is_empty) {
        let problem = Problem::new(path, "has only empty terms, which match no node");
        problems.push(problem.valid("a term with at least one expression"));
    }
}

fn label_map(path: &str, labels: &BTreeMap<String, String>, problems: &mut Problems) {
    for (key, value) in labels {
        label_key(path, key, problems);
        label_value(&format!("{path}[{}]", short_text(key)), value, problems);
    }
}

fn label_key(path: &str, key: &str, problems: &mut Problems) {
    if !is_qualified_name(key) {
        let problem = Problem::new(path, format!("{:?} is not a qualified name", short_text(key)));
        problems.push(
            problem
                .valid("an optional DNS subdomain and '/', then 1 to 63 letters, digits, '-', '_' and '.'"),
        );
    }
}

fn label_value(path: &str, value: &str, problems: &mut Problems) {
    if !is_label_value(value) {
        let problem = Problem::new(path, format!("{:?} is not a label value", short_text(value)));
        problems.push(problem.valid(
            "at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit",
        ));
    }
}

/// Checks preferred terms and terms of volumes. The planner checks required terms of pods and reports the
/// reason with the unschedulable pod.
fn node_term(path: &str, term: &NodeSelectorTerm, problems: &mut Problems) {
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        label_key(&format!("{path}.matchExpressions[{index}].key"), &expression.key, problems);
        if Operator::parse(&expression.operator).is_none() {
            problems.push(
                Problem::new(
                    format!("{path}.matchExpressions[{index}].operator"),
                    format!("{:?} is not an operator", expression.operator),
                )
                .valid("In, NotIn, Exists, DoesNotExist, Gt or Lt"),
            );
        }
    }
}

fn weight(path: &str, weight: i32, problems: &mut Problems) {
    if !(1..=100).contains(&weight) {
        let problem = Problem::new(format!("{path}.weight"), format!("{weight} is out of range"));
        problems.push(problem.valid("1 to 100"));
    }
}

fn not_negative(path: &str, number: Option<i32>, problems: &mut Problems) {
    if let Some(number) = number.filter(|number| *number < 0) {
        problems.push(Problem::new(path, format!("{number} is negative")).valid("0 or more"));
    }
}

/// The maximum number of pods of one workload. It is far above what a cluster runs, and low enough that a typing error
/// does not exhaust memory.
pub(super) const PODS_PER_WORKLOAD_MAX: i32 = 10_000_000;

fn pod_count(path: &str, number: Option<i32>, problems: &mut Problems) {
    not_negative(path, number, problems);
    if let Some(number) = number.filter(|number| *number > PODS_PER_WORKLOAD_MAX) {
        problems.push(
            Problem::new(path, format!("{number} pods exceed the supported maximum"))
                .valid(format!("0 to {PODS_PER_WORKLOAD_MAX}")),
        );
    }
}

fn missing(path: &str, problems: &mut Problems) {
    problems.push(Problem::new(path, "is missing"));
}
