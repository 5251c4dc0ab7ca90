//! Validation of Services: type, ports, addresses, traffic policies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::containers::{check_choice, check_port};
use super::metadata::check_labels;
use super::{Errors, text, with_struct_text};
use crate::admission::json::{integer, is_set, items, text as string};
use crate::field::FieldError;

pub(super) fn check_service(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &service["spec"];
    let kind = string(&spec["type"]);
    if let Some(old) = old {
        check_address_change(spec, &old["spec"], errors);
    }
    let is_headless = spec["clusterIP"] == "None";
    if items(&spec["ports"]).is_empty() && !is_headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", json!("None"), why));
        }
        "ExternalName" => check_external_name(spec, errors),
        _ => {}
    }
    check_ports(spec, errors);
    check_labels(&spec["selector"], "spec.selector", errors);
    check_choice(&spec["sessionAffinity"], &["ClientIP", "None"], "spec.sessionAffinity", errors);
    if kind != "ExternalName" {
        check_addresses(spec, errors);
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    check_choice(&spec["type"], &kinds, "spec.type", errors);
    check_node_ports(spec, kind, errors);
    if is_set(&spec["allocateLoadBalancerNodePorts"]) && kind != "LoadBalancer" {
        let why = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", why));
    }
    let policy = &spec["externalTrafficPolicy"];
    let is_external = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !items(&spec["externalIPs"]).is_empty());
    if is_set(policy) {
        if !is_external {
            let why = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid("spec.externalTrafficPolicy", policy.clone(), why));
        } else {
            check_choice(policy, &["Cluster", "Local"], "spec.externalTrafficPolicy", errors);
        }
    }
    if is_set(&spec["internalTrafficPolicy"]) {
        check_choice(
            &spec["internalTrafficPolicy"],
            &["Cluster", "Local"],
            "spec.internalTrafficPolicy",
            errors,
        );
    }
}

fn check_external_name(spec: &Value, errors: &mut Errors) {
    for key in ["clusterIPs", "ipFamilies"] {
        if !items(&spec[key]).is_empty() {
            let why = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(format!("spec.{key}"), why));
        }
    }
    if is_set(&spec["ipFamilyPolicy"]) {
        errors.push(FieldError::forbidden("spec.ipFamilyPolicy", "may not be set for ExternalName services"));
    }
    let target = string(&spec["externalName"]).trim_end_matches('.');
    if target.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        for problem in text::subdomain(target) {
            errors.push(FieldError::invalid("spec.externalName", json!(target), problem));
        }
    }
}

fn check_ports(spec: &Value, errors: &mut Errors) {
    let ports = items(&spec["ports"]);
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let own = format!("spec.ports[{index}]");
        let name = string(&port["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{own}.name"), ""));
            }
        } else {
            for problem in text::label(name) {
                errors.push(FieldError::invalid(format!("{own}.name"), json!(name), problem));
            }
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{own}.name"), json!(name)));
            }
        }
        let number = integer(&port["port"]).unwrap_or(0);
        if let Some(problem) = text::port_number(number) {
            errors.push(FieldError::invalid(format!("{own}.port"), json!(number), problem));
        }
        check_choice(&port["protocol"], &["SCTP", "TCP", "UDP"], &format!("{own}.protocol"), errors);
        check_port(&port["targetPort"], &format!("{own}.targetPort"), errors);
    }
}

fn check_node_ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let (mut node_ports, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in items(&spec["ports"]).iter().enumerate() {
        let number = integer(&port["nodePort"]).unwrap_or(0);
        let own = format!("spec.ports[{index}].nodePort");
        if number != 0 {
            if kind == "ClusterIP" {
                errors.push(FieldError::forbidden(&own, "may not be used when `type` is 'ClusterIP'"));
            }
            if !node_ports.insert((string(&port["protocol"]), number)) {
                errors.push(FieldError::duplicate(own, json!(number)));
            }
        }
    }
    for (index, port) in items(&spec["ports"]).iter().enumerate() {
        let number = integer(&port["port"]).unwrap_or(0);
        if !ports.insert((string(&port["protocol"]), number)) {
            let error = FieldError::duplicate(format!("spec.ports[{index}]"), port.clone());
            let shown = [
                ("Name", &json!("")),
                ("Protocol", &port["protocol"]),
                ("AppProtocol", &Value::Null),
                ("Port", &json!(number)),
                ("TargetPort", &json!(0)),
                ("NodePort", &json!(0)),
            ];
            errors.push(with_struct_text(error, &shown));
        }
    }
}

fn check_addresses(spec: &Value, errors: &mut Errors) {
    let (single, all) = (string(&spec["clusterIP"]), &spec["clusterIPs"]);
    if !single.is_empty() && items(all).first().is_some_and(|first| first != single) {
        let why = "first value must match `clusterIP`";
        errors.push(FieldError::invalid("spec.clusterIPs", all.clone(), why));
    } else if single.is_empty() && !items(all).is_empty() {
        let why = "must be empty when `clusterIP` is not specified";
        errors.push(FieldError::invalid("spec.clusterIPs", all.clone(), why));
    }
    for (index, address) in items(all).iter().enumerate() {
        if (index == 0 && address == "None") || string(address).parse::<std::net::IpAddr>().is_ok() {
            continue;
        }
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), address.clone(), why));
    }
    for (index, family) in items(&spec["ipFamilies"]).iter().enumerate() {
        if !matches!(string(family), "IPv4" | "IPv6") {
            let own = format!("spec.ipFamilies[{index}]");
            errors.push(FieldError::not_supported(own, family.clone(), &["IPv4", "IPv6"]));
        }
    }
    if is_set(&spec["ipFamilyPolicy"]) {
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        check_choice(&spec["ipFamilyPolicy"], &policies, "spec.ipFamilyPolicy", errors);
    }
}

/// Checks that the first cluster IP does not change, unless the old or the new type is `ExternalName`.
fn check_address_change(after: &Value, before: &Value, errors: &mut Errors) {
    let has_address = |spec: &Value| spec["type"] != "ExternalName";
    let (old, new) = (&before["clusterIPs"][0], &after["clusterIPs"][0]);
    if has_address(after) && has_address(before) && is_set(old) && new != old {
        let why = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", after["clusterIPs"].clone(), why));
    }
}
