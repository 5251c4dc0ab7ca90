//! The API defaults of built-in kinds. They depend only on the object itself.
//!
//! The module `pods` has the defaults of pods and pod templates, `workloads` those of workloads, and `storage` those of
//! volumes and storage. Conversions that affect the result are included (`stringData` of Secrets, mirrored fields).
//! Objects must first be normalized by `builtin::round_trip`: without nulls and without empty optional values.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go, k8s.io/kubernetes/pkg/apis/apps/v1/defaults.go,
//! k8s.io/kubernetes/pkg/apis/batch/v1/defaults.go

mod pods;
mod storage;
mod workloads;

use serde_json::{Value, json};

use super::json::{Object, child, child_mut, items, objects_mut, set_default, text};
use super::quantity::Quantity;

pub(crate) fn default_object(group: &str, version: &str, kind: &str, object: &mut Value) {
    let Value::Object(map) = object else { return };
    match (group, kind) {
        ("", "Pod") => pods::default_pod(map),
        ("", "PodTemplate") => {
            if let Some(template) = child_mut(map, "template") {
                pods::default_template(template);
            }
        }
        ("", "Service") => default_service(map),
        ("", "Secret") => default_secret(map),
        ("", "Namespace") => default_namespace(map),
        ("", "Node") => default_node(map),
        ("", "LimitRange") => default_limit_range(map),
        ("", "ResourceQuota") => round_quantities(child(map, "spec"), "hard"),
        ("", "Endpoints") => {
            for subset in objects_mut(map, "subsets") {
                for port in objects_mut(subset, "ports") {
                    set_default(port, "protocol", "TCP");
                }
            }
        }
        ("", "PersistentVolume") => storage::default_volume(map),
        ("", "PersistentVolumeClaim") => storage::default_claim(map),
        ("", "ReplicationController") => workloads::default_replication_controller(map),
        ("apps", "Deployment") => workloads::default_deployment(map),
        ("apps", "ReplicaSet") => workloads::default_replica_set(map),
        ("apps", "StatefulSet") => workloads::default_stateful_set(map),
        ("apps", "DaemonSet") => workloads::default_daemon_set(map),
        ("batch", "Job") => workloads::default_job(map),
        ("batch", "CronJob") => workloads::default_cron_job(map),
        ("autoscaling", "HorizontalPodAutoscaler") => default_autoscaler(version, map),
        ("scheduling.k8s.io", "PriorityClass") => {
            set_default(map, "preemptionPolicy", "PreemptLowerPriority")
        }
        ("storage.k8s.io", "StorageClass") => storage::default_class(map),
        ("storage.k8s.io", "CSIDriver") => storage::default_driver(map),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => default_role_binding(map),
        ("networking.k8s.io", "NetworkPolicy") => default_network_policy(map),
        ("networking.k8s.io", "IngressClass") => {
            if let Some(parameters) = child_mut(child(map, "spec"), "parameters") {
                set_default(parameters, "scope", "Cluster");
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in objects_mut(map, "ports") {
                set_default(port, "name", "");
                set_default(port, "protocol", "TCP");
            }
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => default_webhooks(map, false),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => default_webhooks(map, true),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            let spec = child(map, "spec");
            set_default(spec, "failurePolicy", "Fail");
            if let Some(constraints) = child_mut(spec, "matchConstraints") {
                default_match_resources(constraints);
            }
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            if let Some(resources) = child_mut(child(map, "spec"), "matchResources") {
                default_match_resources(resources);
            }
        }
        ("resource.k8s.io", "ResourceClaim") => default_device_claim(child(map, "spec")),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            default_device_claim(child(child(map, "spec"), "spec"))
        }
        _ => {}
    }
}

fn default_service(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "sessionAffinity", "None");
    match text(&spec["sessionAffinity"]) {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP"
            if spec
                .get("sessionAffinityConfig")
                .is_none_or(|config| config["clientIP"]["timeoutSeconds"].is_null()) =>
        {
            spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    set_default(spec, "type", "ClusterIP");
    for port in objects_mut(spec, "ports") {
        set_default(port, "protocol", "TCP");
        if port.get("targetPort").is_none_or(|target| *target == json!(0) || *target == json!("")) {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".into(), number);
        }
    }
    let service_type = text(&spec["type"]).to_string();
    let has_external_ips = spec.get("externalIPs").is_some_and(|ips| !items(ips).is_empty());
    let is_external = matches!(service_type.as_str(), "LoadBalancer" | "NodePort")
        || (service_type == "ClusterIP" && has_external_ips);
    if is_external {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if service_type == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = child_mut(map, "status").and_then(|status| child_mut(status, "loadBalancer"))
        {
            for ingress in objects_mut(balancer, "ingress") {
                if ingress.get("ip").is_some_and(|ip| !text(ip).is_empty()) {
                    set_default(ingress, "ipMode", "VIP");
                }
            }
        }
    }
}

fn default_secret(map: &mut Object) {
    set_default(map, "type", "Opaque");
    // `stringData` is write-only; its values are stored in `data`, in base64.
    if let Some(Value::Object(strings)) = map.remove("stringData") {
        let data = child(map, "data");
        for (key, value) in strings {
            data.insert(key, Value::String(base64(text(&value).as_bytes())));
        }
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |sum, (index, byte)| sum | u32::from(*byte) << (16 - 8 * index));
        for position in 0..4 {
            if position <= chunk.len() {
                encoded.push(char::from(ALPHABET[(group >> (18 - 6 * position)) as usize & 63]));
            } else {
                encoded.push('=');
            }
        }
    }
    encoded
}

fn default_namespace(map: &mut Object) {
    let name = map.get("metadata").map(|metadata| text(&metadata["name"]).to_string()).unwrap_or_default();
    if !name.is_empty() {
        child(child(map, "metadata"), "labels")
            .insert("kubernetes.io/metadata.name".into(), Value::String(name));
    }
    set_default(child(map, "status"), "phase", "Active");
}

/// Rounds the quantities of a resource list up to multiples of one thousandth.
fn round_quantities(holder: &mut Object, key: &str) {
    let Some(list) = child_mut(holder, key) else { return };
    for value in list.values_mut() {
        // Only a value with a fraction or one of these suffixes may need rounding.
        let may_be_finer = value.as_str().is_some_and(|text| text.contains(['.', 'u', 'n', 'm', 'e', 'E']));
        if let (true, Some(mut quantity)) = (may_be_finer, Quantity::from_json(value)) {
            quantity.round_up_to_milli();
            *value = Value::String(quantity.to_string());
        }
    }
}

fn default_node(map: &mut Object) {
    if let Some(status) = child_mut(map, "status") {
        round_quantities(status, "capacity");
        round_quantities(status, "allocatable");
    }
    if let Some(status) = child_mut(map, "status")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        set_default(status, "allocatable", capacity);
    }
    // `podCIDR` and the first entry of `podCIDRs` must be equal. If they differ, `podCIDR` is used for both.
    let spec = child(map, "spec");
    let single = spec.get("podCIDR").map(|cidr| text(cidr).to_string()).unwrap_or_default();
    let first = spec
        .get("podCIDRs")
        .and_then(|all| all.get(0))
        .map(|cidr| text(cidr).to_string())
        .unwrap_or_default();
    if !single.is_empty() && single != first {
        spec.insert("podCIDRs".into(), json!([single]));
    } else if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".into(), Value::String(first));
    }
}

fn default_limit_range(map: &mut Object) {
    for item in objects_mut(child(map, "spec"), "limits") {
        if item.get("type").is_none_or(|kind| text(kind) != "Container") {
            continue;
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_quantities(item, list);
        }
        fill(item, "max", "default");
        fill(item, "default", "defaultRequest");
        fill(item, "min", "defaultRequest");
    }
}

/// Copies those entries of `from` that `into` lacks.
fn fill(map: &mut Object, from: &str, into: &str) {
    let Some(Value::Object(source)) = map.get(from).cloned() else { return };
    let target = child(map, into);
    for (key, value) in source {
        target.entry(key).or_insert(value);
    }
}

fn default_autoscaler(version: &str, map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "minReplicas", 1);
    if version == "v1" {
        set_default(spec, "targetCPUUtilizationPercentage", 80);
        return;
    }
    if spec.get("metrics").is_none_or(|metrics| items(metrics).is_empty()) {
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource":
                {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    if let Some(behavior) = child_mut(spec, "behavior") {
        let up = child(behavior, "scaleUp");
        set_default(up, "stabilizationWindowSeconds", 0);
        set_default(up, "selectPolicy", "Max");
        let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        set_default(up, "policies", policies);
        let down = child(behavior, "scaleDown");
        set_default(down, "selectPolicy", "Max");
        set_default(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn default_role_binding(map: &mut Object) {
    let group = "rbac.authorization.k8s.io";
    let reference = child(map, "roleRef");
    if reference.get("apiGroup").is_none_or(|value| text(value).is_empty()) {
        reference.insert("apiGroup".into(), json!(group));
    }
    for subject in objects_mut(map, "subjects") {
        if subject.get("kind").is_some_and(|kind| matches!(text(kind), "User" | "Group")) {
            set_default(subject, "apiGroup", group);
        }
    }
}

fn default_network_policy(map: &mut Object) {
    let spec = child(map, "spec");
    let has_egress = spec.get("egress").is_some_and(|rules| !items(rules).is_empty());
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_default(spec, "policyTypes", types);
    for direction in ["ingress", "egress"] {
        for rule in objects_mut(spec, direction) {
            for port in objects_mut(rule, "ports") {
                set_default(port, "protocol", "TCP");
            }
        }
    }
}

fn default_webhooks(map: &mut Object, is_mutating: bool) {
    for webhook in objects_mut(map, "webhooks") {
        set_default(webhook, "failurePolicy", "Fail");
        set_default(webhook, "matchPolicy", "Equivalent");
        set_default(webhook, "namespaceSelector", json!({}));
        set_default(webhook, "objectSelector", json!({}));
        set_default(webhook, "timeoutSeconds", 10);
        if is_mutating {
            set_default(webhook, "reinvocationPolicy", "Never");
        }
        for rule in objects_mut(webhook, "rules") {
            set_default(rule, "scope", "*");
        }
        if let Some(service) =
            child_mut(webhook, "clientConfig").and_then(|config| child_mut(config, "service"))
        {
            set_default(service, "port", 443);
        }
    }
}

fn default_match_resources(map: &mut Object) {
    set_default(map, "matchPolicy", "Equivalent");
    set_default(map, "namespaceSelector", json!({}));
    set_default(map, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in objects_mut(map, list) {
            set_default(rule, "scope", "*");
        }
    }
}

fn default_device_claim(spec: &mut Object) {
    let Some(devices) = child_mut(spec, "devices") else { return };
    for request in objects_mut(devices, "requests") {
        if let Some(exactly) = child_mut(request, "exactly") {
            default_device_count(exactly);
        }
        for sub_request in objects_mut(request, "firstAvailable") {
            default_device_count(sub_request);
        }
    }
}

fn default_device_count(request: &mut Object) {
    set_default(request, "allocationMode", "ExactCount");
    if text(&request["allocationMode"]) == "ExactCount" {
        set_default(request, "count", 1);
    }
}

#[cfg(test)]
mod tests;
