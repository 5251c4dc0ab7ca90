//! Defaults of pods and pod templates.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{round_quantities, storage};
use crate::admission::json::{Object, child, child_mut, items, objects_mut, set_default, text};
use crate::admission::resources::{ResourceList, add_list, container_lists, max_list};

/// Applies the defaults that pods share with pod templates, and those that only pods have.
pub(super) fn default_pod(map: &mut Object) {
    let spec = child(map, "spec");
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    default_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in objects_mut(spec, list) {
            copy_limits_to_requests(child(container, "resources"));
        }
    }
    default_pod_level_requests(spec);
    set_default(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in objects_mut(spec, list) {
                default_host_ports(container);
            }
        }
    }
    if let Some(status) = child_mut(map, "status") {
        mirror_address(status, "podIP", "podIPs");
        mirror_address(status, "hostIP", "hostIPs");
    }
}

pub(super) fn default_template(template: &mut Object) {
    default_spec(child(template, "spec"));
}

fn default_spec(spec: &mut Object) {
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    // The deprecated field `serviceAccount` is always set as well. If `serviceAccountName` is missing, it gets the
    // value of `serviceAccount`.
    let account =
        [spec.get("serviceAccountName"), spec.get("serviceAccount")].into_iter().flatten().next().cloned();
    if let Some(account) = account {
        spec.insert("serviceAccountName".into(), account.clone());
        spec.insert("serviceAccount".into(), account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in objects_mut(spec, list) {
            default_container(container);
            if let Some(resources) = child_mut(container, "resources") {
                round_quantities(resources, "requests");
                round_quantities(resources, "limits");
            }
        }
    }
    for volume in objects_mut(spec, "volumes") {
        storage::default_pod_volume(volume);
    }
}

fn default_container(container: &mut Object) {
    let image = container.get("image").map(|image| text(image).to_string()).unwrap_or_default();
    set_default(container, "imagePullPolicy", pull_policy(&image));
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    for port in objects_mut(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child_mut(container, probe) {
            set_default(probe, "timeoutSeconds", 1);
            set_default(probe, "periodSeconds", 10);
            set_default(probe, "successThreshold", 1);
            set_default(probe, "failureThreshold", 3);
            default_handler(probe);
            if let Some(grpc) = child_mut(probe, "grpc") {
                set_default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = child_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child_mut(lifecycle, hook) {
                default_handler(hook);
            }
        }
    }
    for variable in objects_mut(container, "env") {
        let Some(source) = child_mut(variable, "valueFrom") else { continue };
        if let Some(reference) = child_mut(source, "fieldRef") {
            set_default(reference, "apiVersion", "v1");
        }
        if let Some(reference) = child_mut(source, "fileKeyRef") {
            set_default(reference, "optional", false);
        }
    }
}

fn default_handler(handler: &mut Object) {
    if let Some(get) = child_mut(handler, "httpGet") {
        set_default(get, "path", "/");
        set_default(get, "scheme", "HTTP");
    }
}

/// The default pull policy: `Always` for an image without tag and digest, and for the tag `latest`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, has_digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    // A colon before the last slash separates the registry's port, not a tag.
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    match tag {
        Some("latest") => "Always",
        None if !has_digest && !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn copy_limits_to_requests(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let requests = child(resources, "requests");
    for (key, value) in limits {
        requests.entry(key).or_insert(value);
    }
}

/// If the pod has pod-level limits, sets missing pod-level requests: from the requests of the containers, or else from
/// the pod-level limits.
fn default_pod_level_requests(spec: &mut Object) {
    let containers: ResourceList = {
        let mut sum = ResourceList::new();
        let mut sidecars = ResourceList::new();
        let mut init_peak = ResourceList::new();
        for container in items(spec.get("containers").unwrap_or(&Value::Null)) {
            add_list(&mut sum, &container_lists(container).0);
        }
        for container in items(spec.get("initContainers").unwrap_or(&Value::Null)) {
            let requests = container_lists(container).0;
            let mut peak = sidecars.clone();
            add_list(&mut peak, &requests);
            if text(&container["restartPolicy"]) == "Always" {
                add_list(&mut sum, &requests);
                sidecars = peak.clone();
            }
            max_list(&mut init_peak, &peak);
        }
        max_list(&mut sum, &init_peak);
        sum
    };
    let Some(resources) = child_mut(spec, "resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let mut defaults: BTreeMap<String, Value> = BTreeMap::new();
    for (name, quantity) in &containers {
        if matches!(name.as_str(), "cpu" | "memory") {
            defaults.insert(name.clone(), Value::String(quantity.to_string()));
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            defaults.entry(name).or_insert(limit);
        }
    }
    if !defaults.is_empty() {
        let requests = child(resources, "requests");
        for (name, value) in defaults {
            requests.entry(name).or_insert(value);
        }
    }
}

fn default_host_ports(container: &mut Object) {
    for port in objects_mut(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            set_default(port, "hostPort", number);
        }
    }
}

/// A single address and the first entry of the list of addresses must be equal. If a client sent only one of the two,
/// sets the other.
fn mirror_address(status: &mut Object, single: &str, list: &str) {
    let address = status.get(single).map(|address| text(address).to_string()).unwrap_or_default();
    let first = status.get(list).and_then(|all| all.get(0)).map(|entry| text(&entry["ip"]).to_string());
    match first {
        None if !address.is_empty() => {
            status.insert(list.to_string(), json!([{"ip": address}]));
        }
        Some(first) if address.is_empty() => {
            status.insert(single.to_string(), Value::String(first));
        }
        Some(first) if first != address => {
            status.insert(list.to_string(), json!([{"ip": address}]));
        }
        _ => {}
    }
}
