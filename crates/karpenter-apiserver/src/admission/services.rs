//! What happens when the type of a Service changes, and the fields that depend on the type.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/service/strategy.go

use serde_json::Value;

use super::json::{Object, child, child_mut, is_set, objects_mut, set_default, text};

/// If a client sent only `clusterIP`, sets `clusterIPs` from it.
pub(crate) fn mirror_addresses(spec: &mut Object) {
    if let Some(address) = spec.get("clusterIP").filter(|address| !text(address).is_empty()).cloned() {
        set_default(spec, "clusterIPs", Value::Array(vec![address]));
    }
}

/// Removes fields that the server set for the old type and that the client did not change, so that a client may change
/// only the type.
pub(crate) fn drop_type_dependent_fields(map: &mut Object, old: &Value) {
    let before = &old["spec"];
    if let Some(spec) = child_mut(map, "spec") {
        let changed = spec.get("clusterIP").unwrap_or(&Value::Null) != &before["clusterIP"];
        let list_kept = spec.get("clusterIPs").unwrap_or(&Value::Null) == &before["clusterIPs"];
        if changed && list_kept {
            spec.remove("clusterIPs");
            mirror_addresses(spec);
        }
    }
    let new_type = map.get("spec").map(|spec| text(&spec["type"]).to_string()).unwrap_or_default();
    let old_type = text(&before["type"]).to_string();
    let needs_cluster_ip = |kind: &str| matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer");
    let needs_node_port = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let spec = child(map, "spec");
    let drop_same = |spec: &mut Object, keys: &[&str]| {
        if keys.iter().all(|key| spec.get(*key).unwrap_or(&Value::Null) == &before[*key]) {
            for key in keys {
                spec.remove(*key);
            }
        }
    };
    if needs_cluster_ip(&old_type) && !needs_cluster_ip(&new_type) {
        drop_same(spec, &["clusterIP", "clusterIPs"]);
        drop_same(spec, &["ipFamilies"]);
        drop_same(spec, &["ipFamilyPolicy"]);
    }
    if needs_node_port(&old_type) && !needs_node_port(&new_type) {
        for (index, port) in objects_mut(spec, "ports").enumerate() {
            if port.get("nodePort") == before["ports"][index].get("nodePort") {
                port.remove("nodePort");
            }
        }
        drop_same(spec, &["externalTrafficPolicy"]);
        drop_same(spec, &["healthCheckNodePort"]);
    }
    if old_type == "LoadBalancer" && new_type != "LoadBalancer" {
        drop_same(spec, &["allocateLoadBalancerNodePorts"]);
        drop_same(spec, &["loadBalancerClass"]);
    }
    // The cluster IP cannot change. If a client omits it, the old value is kept.
    if needs_cluster_ip(&old_type) && needs_cluster_ip(&new_type) {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(key).is_none_or(|value| !is_set(value)) && is_set(&before[key]) {
                spec.insert(key.into(), before[key].clone());
            }
        }
        for (index, port) in objects_mut(spec, "ports").enumerate() {
            let previous = &before["ports"][index];
            if needs_node_port(&new_type)
                && !port.contains_key("nodePort")
                && port.get("port") == previous.get("port")
                && is_set(&previous["nodePort"])
            {
                port.insert("nodePort".into(), previous["nodePort"].clone());
            }
        }
    }
}
