//! The plugin LimitRanger: default requests and limits of containers, and the minima and maxima of a namespace.
//!
//! Upstream: k8s.io/kubernetes/plugin/pkg/admission/limitranger/admission.go

use serde_json::{Value, json};

use super::forbidden;
use crate::admission::json::{Object, child, entries, items, objects_mut, text};
use crate::admission::quantity::Quantity;
use crate::admission::resources::{ResourceList, container_lists, pod_lists, read_list};
use crate::admission::{Lookup, Operation};
use crate::status::ApiResult;

/// Applies the defaults of each LimitRange after the other, and records them in an annotation of the pod.
pub(super) fn default_pod(operation: &Operation<'_>, pod: &mut Value, lookup: &dyn Lookup) {
    for range in lookup.list("", "limitranges", operation.namespace) {
        let (mut requests, mut limits) = (Object::new(), Object::new());
        for item in items(&range["spec"]["limits"]).iter().filter(|item| item["type"] == "Container") {
            requests
                .extend(entries(&item["defaultRequest"]).map(|(key, value)| (key.clone(), value.clone())));
            limits.extend(entries(&item["default"]).map(|(key, value)| (key.clone(), value.clone())));
        }
        let Value::Object(map) = pod else { return };
        let mut notes: Vec<String> = Vec::new();
        let spec = child(map, "spec");
        for (list, container_type) in [("containers", "container"), ("initContainers", "init container")] {
            for container in objects_mut(spec, list) {
                let container_name =
                    container.get("name").map(|name| text(name).to_string()).unwrap_or_default();
                // The annotation lists requests first. A default limit that is set here does not affect a default
                // request.
                for (key, defaults, noun) in
                    [("requests", &requests, "request"), ("limits", &limits, "limit")]
                {
                    let added = add_missing(container, key, defaults);
                    if !added.is_empty() {
                        notes.push(format!(
                            "{} {noun} for {container_type} {container_name}",
                            added.join(", ")
                        ));
                    }
                }
            }
        }
        if !notes.is_empty() {
            let note = format!("LimitRanger plugin set: {}", notes.join("; "));
            child(child(map, "metadata"), "annotations")
                .insert("kubernetes.io/limit-ranger".into(), json!(note));
        }
    }
}

fn add_missing(container: &mut Object, key: &str, defaults: &Object) -> Vec<String> {
    let mut added = Vec::new();
    for (name, value) in defaults {
        let list = child(child(container, "resources"), key);
        if !list.contains_key(name) {
            list.insert(name.clone(), value.clone());
            added.push(name.clone());
        }
    }
    added
}

pub(super) fn check_pod(operation: &Operation<'_>, pod: &Value, lookup: &dyn Lookup) -> ApiResult<()> {
    let spec = &pod["spec"];
    for range in lookup.list("", "limitranges", operation.namespace) {
        let mut problems = Vec::new();
        for item in items(&range["spec"]["limits"]) {
            match text(&item["type"]) {
                "Container" => {
                    for container in items(&spec["containers"]).iter().chain(items(&spec["initContainers"])) {
                        let (requests, limits) = container_lists(container);
                        check_bounds(item, &requests, &limits, &mut problems);
                    }
                }
                "Pod" => {
                    let (requests, limits) = pod_lists(spec);
                    check_bounds(item, &requests, &limits, &mut problems);
                }
                _ => {}
            }
        }
        refuse(operation, pod, problems)?;
    }
    Ok(())
}

pub(super) fn check_claim(operation: &Operation<'_>, claim: &Value, lookup: &dyn Lookup) -> ApiResult<()> {
    let requests = read_list(&claim["spec"]["resources"]["requests"]);
    for range in lookup.list("", "limitranges", operation.namespace) {
        let mut problems = Vec::new();
        for item in
            items(&range["spec"]["limits"]).iter().filter(|item| item["type"] == "PersistentVolumeClaim")
        {
            for (name, enforced) in read_list(&item["min"]) {
                problems.extend(check_min(
                    "PersistentVolumeClaim",
                    &name,
                    &enforced,
                    &requests,
                    &ResourceList::new(),
                ));
            }
            for (name, enforced) in read_list(&item["max"]) {
                let prefix = format!("maximum {name} usage per PersistentVolumeClaim is {enforced}");
                match requests.get(&name) {
                    None => problems.push(format!("{prefix}.  No request is specified")),
                    Some(request) if *request > enforced => {
                        problems.push(format!("{prefix}, but request is {request}"))
                    }
                    Some(_) => {}
                }
            }
        }
        refuse(operation, claim, problems)?;
    }
    Ok(())
}

fn refuse(operation: &Operation<'_>, object: &Value, mut problems: Vec<String>) -> ApiResult<()> {
    let mut seen = Vec::new();
    problems.retain(|problem| {
        let is_new = !seen.contains(problem);
        seen.push(problem.clone());
        is_new
    });
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(forbidden(operation, object, one)),
        many => Err(forbidden(operation, object, &format!("[{}]", many.join(", ")))),
    }
}

fn check_bounds(item: &Value, requests: &ResourceList, limits: &ResourceList, problems: &mut Vec<String>) {
    let kind = text(&item["type"]);
    for (name, enforced) in read_list(&item["min"]) {
        problems.extend(check_min(kind, &name, &enforced, requests, limits));
    }
    for (name, enforced) in read_list(&item["max"]) {
        problems.extend(check_max(kind, &name, &enforced, requests, limits));
    }
    for (name, enforced) in read_list(&item["maxLimitRequestRatio"]) {
        problems.extend(check_ratio(kind, &name, &enforced, requests, limits));
    }
}

fn check_min(
    kind: &str,
    name: &str,
    enforced: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let prefix = format!("minimum {name} usage per {kind} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{prefix}.  No request is specified")),
        (Some(request), _) if request < enforced => Some(format!("{prefix}, but request is {request}")),
        (_, Some(limit)) if limit < enforced => Some(format!("{prefix}, but limit is {limit}")),
        _ => None,
    }
}

fn check_max(
    kind: &str,
    name: &str,
    enforced: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let prefix = format!("maximum {name} usage per {kind} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{prefix}.  No limit is specified")),
        (_, Some(limit)) if limit > enforced => Some(format!("{prefix}, but limit is {limit}")),
        (Some(request), _) if request > enforced => Some(format!("{prefix}, but request is {request}")),
        _ => None,
    }
}

fn check_ratio(
    kind: &str,
    name: &str,
    enforced: &Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let prefix = format!("{name} max limit to request ratio per {kind} is {enforced}, but");
    let Some(request) = requests.get(name).filter(|request| !request.is_zero()) else {
        return Some(format!("{prefix} no request is specified or request is 0"));
    };
    let Some(limit) = limits.get(name).filter(|limit| !limit.is_zero()) else {
        return Some(format!("{prefix} no limit is specified or limit is 0"));
    };
    let ratio = limit.millis() as f64 / request.millis() as f64;
    (ratio * 1000.0 > enforced.millis() as f64).then(|| format!("{prefix} provided ratio is {ratio:.6}"))
}
