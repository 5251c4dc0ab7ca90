//! Assigns cluster IPs and node ports to Services.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/service/storage/alloc.go

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::admission::Lookup;

/// The default range of node ports, from which kube-apiserver assigns random ones.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

/// Assigns missing addresses and ports: the lowest cluster IP and the lowest node ports that are free.
pub(crate) fn allocate(service: &mut Value, old: Option<&Value>, lookup: &dyn Lookup) {
    let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_string();
    if kind == "ExternalName" || !service["spec"].is_object() {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    if text(&service["spec"]["clusterIP"]).is_empty() {
        let before = old.map(|old| text(&old["spec"]["clusterIP"])).unwrap_or_default();
        let address = if before.is_empty() { free_address(lookup) } else { before };
        service["spec"]["clusterIP"] = json!(address);
    }
    let spec = &mut service["spec"];
    if spec["clusterIPs"].as_array().is_none_or(Vec::is_empty) {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = json!("SingleStack");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        && spec["allocateLoadBalancerNodePorts"] != json!(false)
    {
        allocate_ports(spec, old, lookup);
    }
}

fn free_address(lookup: &dyn Lookup) -> String {
    let used: BTreeSet<String> = lookup
        .list("", "services", "")
        .iter()
        .filter_map(|service| service["spec"]["clusterIP"].as_str().map(str::to_string))
        .collect();
    (2..=u16::MAX)
        .map(|number| format!("10.96.{}.{}", number >> 8, number & 255))
        .find(|address| !used.contains(address))
        .unwrap_or_default()
}

fn allocate_ports(spec: &mut Value, old: Option<&Value>, lookup: &dyn Lookup) {
    let node_ports = |spec: &Value| -> Vec<i64> {
        let ports = spec["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port["nodePort"].as_i64().filter(|number| *number != 0)).collect()
    };
    let mut used: BTreeSet<i64> =
        lookup.list("", "services", "").iter().flat_map(|service| node_ports(&service["spec"])).collect();
    used.extend(node_ports(spec));
    let before = old.map(|old| old["spec"]["ports"].clone()).unwrap_or_default();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if port["nodePort"].as_i64().unwrap_or(0) != 0 {
            continue;
        }
        let kept = before.as_array().into_iter().flatten().find(|candidate| {
            (&candidate["port"], &candidate["protocol"]) == (&port["port"], &port["protocol"])
        });
        let kept = kept.and_then(|candidate| candidate["nodePort"].as_i64());
        let number = kept.or_else(|| NODE_PORTS.clone().find(|number| !used.contains(number)));
        if let Some(number) = number {
            used.insert(number);
            port["nodePort"] = json!(number);
        }
    }
}
