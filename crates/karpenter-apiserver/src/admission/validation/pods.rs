//! Validation of pods and pod templates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::containers::{check_choice, check_common, check_containers};
use super::metadata::{check_annotations, check_label_name, check_labels};
use super::{Errors, NameRule, metadata, quantities, scheduling, text};
use crate::admission::json::{integer, is_set, items, text as string};
use crate::admission::quantity::Quantity;
use crate::admission::resources::{pod_lists, read_list};
use crate::field::FieldError;

/// Validates a new pod by the rules for every write and the rules for creation. The caller validates the metadata.
pub(super) fn check_new_pod(pod: &Value, errors: &mut Errors) {
    check_annotations_and_spec(pod, errors);
    let spec = &pod["spec"];
    if !items(&spec["ephemeralContainers"]).is_empty() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !string(&spec["nodeName"]).is_empty() && !items(&spec["schedulingGates"]).is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
}

/// Checks metadata and spec of a pod by the rules for every write.
pub(super) fn check_pod(pod: &Value, with_metadata: bool, errors: &mut Errors) {
    if with_metadata {
        metadata::check(pod, NameRule::Subdomain, true, errors);
    }
    check_annotations_and_spec(pod, errors);
}

fn check_annotations_and_spec(pod: &Value, errors: &mut Errors) {
    let spec = &pod["spec"];
    check_pod_annotations(&pod["metadata"]["annotations"], spec, "metadata.annotations", errors);
    check_spec(spec, "spec", true, errors);
    for list in ["containers", "initContainers"] {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let image = string(&container["image"]);
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(format!("spec.{list}[{index}].image"), json!(image), why));
            }
        }
    }
}

pub(super) fn check_pod_annotations(annotations: &Value, spec: &Value, path: &str, errors: &mut Errors) {
    let mirror = &annotations["kubernetes.io/config.mirror"];
    if is_set(mirror) && string(&spec["nodeName"]).is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(format!("{path}[kubernetes.io/config.mirror]"), mirror.clone(), why));
    }
    let cost = &annotations["controller.kubernetes.io/pod-deletion-cost"];
    if let Some(given) = cost.as_str() {
        let is_canonical = given.parse::<i32>().is_ok_and(|_| {
            let digits = given.strip_prefix('-').unwrap_or(given);
            !given.starts_with('+') && (digits == "0" || !digits.starts_with('0'))
        });
        if !is_canonical {
            let key = format!("{path}[controller.kubernetes.io/pod-deletion-cost]");
            errors.push(FieldError::invalid(key, cost.clone(), "must be a 32bit integer"));
        }
    }
}

/// Validates the pod template in a workload.
pub(super) fn check_template(template: &Value, path: &str, errors: &mut Errors) {
    let spec = &template["spec"];
    check_labels(&template["metadata"]["labels"], &format!("{path}.labels"), errors);
    let annotations = &template["metadata"]["annotations"];
    check_annotations(annotations, &format!("{path}.annotations"), errors);
    check_pod_annotations(annotations, spec, &format!("{path}.annotations"), errors);
    check_spec(spec, &format!("{path}.spec"), false, errors);
    if !items(&spec["ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.spec.ephemeralContainers"), why));
    }
}

fn check_spec(spec: &Value, path: &str, is_pod: bool, errors: &mut Errors) {
    if !is_set(&spec["terminationGracePeriodSeconds"]) {
        errors.push(FieldError::required(format!("{path}.terminationGracePeriodSeconds"), ""));
    }
    let volumes = check_volumes(&spec["volumes"], &format!("{path}.volumes"), errors);
    check_containers(spec, &volumes, path, errors);
    for (index, container) in items(&spec["ephemeralContainers"]).iter().enumerate() {
        check_common(container, &volumes, &format!("{path}.ephemeralContainers[{index}]"), errors);
    }
    check_pod_resources(spec, path, errors);
    check_host_network(spec, path, is_pod, errors);
    check_choice(
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
        &format!("{path}.restartPolicy"),
        errors,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check_choice(&spec["dnsPolicy"], &policies, &format!("{path}.dnsPolicy"), errors);
    check_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"), errors);
    scheduling::check_affinity(&spec["affinity"], &format!("{path}.affinity"), errors);
    for (index, gate) in items(&spec["readinessGates"]).iter().enumerate() {
        let own = format!("{path}.readinessGates[{index}].conditionType");
        check_label_name(string(&gate["conditionType"]), &own, errors);
    }
    scheduling::check_gates(&spec["schedulingGates"], &format!("{path}.schedulingGates"), errors);
    let own = format!("{path}.topologySpreadConstraints");
    scheduling::check_spread(&spec["topologySpreadConstraints"], &own, errors);
    for key in ["serviceAccountName", "nodeName"] {
        check_text(&spec[key], text::subdomain, &format!("{path}.{key}"), errors);
    }
    if let Some(seconds) = integer(&spec["activeDeadlineSeconds"])
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), json!(seconds), why));
    }
    for key in ["hostname", "subdomain"] {
        check_text(&spec[key], text::label, &format!("{path}.{key}"), errors);
    }
    scheduling::check_tolerations(&spec["tolerations"], &format!("{path}.tolerations"), errors);
    for key in ["priorityClassName", "runtimeClassName"] {
        check_text(&spec[key], text::subdomain, &format!("{path}.{key}"), errors);
    }
    let policy = &spec["preemptionPolicy"];
    if is_set(policy) {
        check_choice(policy, &["PreemptLowerPriority", "Never"], &format!("{path}.preemptionPolicy"), errors);
    }
    if is_set(&spec["overhead"]) {
        let as_limits = json!({"limits": spec["overhead"]});
        quantities::check_requirements(&as_limits, &format!("{path}.overhead"), errors);
    }
}

fn check_text(value: &Value, rule: fn(&str) -> Vec<String>, path: &str, errors: &mut Errors) {
    let given = string(value);
    if !given.is_empty() {
        for problem in rule(given) {
            errors.push(FieldError::invalid(path, value.clone(), problem));
        }
    }
}

/// Checks that pod-level resources are at least those of the containers.
fn check_pod_resources(spec: &Value, path: &str, errors: &mut Errors) {
    let resources = &spec["resources"];
    if !is_set(resources) {
        return;
    }
    let own = format!("{path}.resources");
    quantities::check_requirements(resources, &own, errors);
    let mut without_own = spec.clone();
    if let Some(map) = without_own.as_object_mut() {
        map.remove("resources");
    }
    let (of_containers, _) = pod_lists(&without_own);
    let (requests, limits) = (read_list(&resources["requests"]), read_list(&resources["limits"]));
    for (name, sum) in &of_containers {
        if let Some(request) = requests.get(name)
            && sum > request
        {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            let own = format!("{own}.requests[{name}]");
            errors.push(FieldError::invalid(own, json!(request.to_string()), why));
        }
    }
    for (index, container) in items(&spec["containers"]).iter().enumerate() {
        for (name, limit) in read_list(&container["resources"]["limits"]) {
            if let Some(bound) = limits.get(&name)
                && limit > *bound
            {
                let why = format!("must be less than or equal to pod limits of {bound}");
                let own = format!("{own}.containers[{index}][{name}].limits");
                errors.push(FieldError::invalid(own, json!(limit.to_string()), why));
            }
        }
    }
}

fn check_host_network(spec: &Value, path: &str, is_pod: bool, errors: &mut Errors) {
    if spec["hostNetwork"] != true {
        return;
    }
    for (index, container) in items(&spec["containers"]).iter().enumerate() {
        for (position, port) in items(&container["ports"]).iter().enumerate() {
            let host_port = integer(&port["hostPort"]).unwrap_or(0);
            let container_port = integer(&port["containerPort"]).unwrap_or(0);
            if (is_pod || host_port != 0) && host_port != container_port {
                let own = format!("{path}.containers[{index}].ports[{position}].hostPort");
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(own, json!(host_port), why));
            }
        }
    }
}

/// Validates volumes. Returns the names of valid volumes, to which mounts may refer.
fn check_volumes<'a>(volumes: &'a Value, path: &str, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(volumes).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let before = errors.len();
        check_source(volume, &own, errors);
        let name = string(&volume["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{own}.name"), ""));
        } else {
            for problem in text::label(name) {
                errors.push(FieldError::invalid(format!("{own}.name"), json!(name), problem));
            }
        }
        if names.contains(name) {
            errors.push(FieldError::duplicate(format!("{own}.name"), json!(name)));
        }
        if errors.len() == before {
            names.insert(name);
        }
    }
    names
}

fn check_source(volume: &Value, path: &str, errors: &mut Errors) {
    let sources: Vec<(&String, &Value)> = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| key.as_str() != "name" && is_set(value))
        .collect();
    if sources.is_empty() {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    for (position, (kind, source)) in sources.into_iter().enumerate() {
        let own = format!("{path}.{kind}");
        if position > 0 {
            errors.push(FieldError::forbidden(own, "may not specify more than 1 volume type"));
            continue;
        }
        let needed: &[&str] = match kind.as_str() {
            "hostPath" => &["path"],
            "secret" => &["secretName"],
            "configMap" => &["name"],
            "persistentVolumeClaim" => &["claimName"],
            "nfs" => &["server", "path"],
            "csi" => &["driver"],
            "awsElasticBlockStore" => &["volumeID"],
            "gcePersistentDisk" => &["pdName"],
            _ => &[],
        };
        for key in needed {
            if string(&source[*key]).is_empty() {
                errors.push(FieldError::required(format!("{own}.{key}"), ""));
            }
        }
        if kind == "nfs" && !string(&source["path"]).starts_with('/') {
            let why = "must be an absolute path";
            errors.push(FieldError::invalid(format!("{own}.path"), json!(string(&source["path"])), why));
        }
        if let Some(mode) = integer(&source["defaultMode"])
            && !(0..=0o777).contains(&mode)
        {
            let why = "must be a number between 0 and 0777 (octal), both inclusive";
            errors.push(FieldError::invalid(format!("{own}.defaultMode"), json!(mode), why));
        }
        if kind == "emptyDir"
            && Quantity::from_json(&source["sizeLimit"]).is_some_and(|size| size.is_negative())
        {
            let why = "SizeLimit field must be a valid resource quantity";
            errors.push(FieldError::forbidden(format!("{own}.sizeLimit"), why));
        }
    }
}
