//! Validation of nodes, namespaces and runtime classes.

use serde_json::{Value, json};

use super::metadata::check_label_name;
use super::{Errors, check_immutable, quantities, scheduling, text};
use crate::admission::json::{entries, is_deleting, is_set, items, text as string};
use crate::admission::quantity::Quantity;
use crate::field::FieldError;

pub(super) fn check_node(node: &Value, old: Option<&Value>, errors: &mut Errors) {
    // kube-apiserver reports this path although taints are part of the spec.
    scheduling::check_taints(&node["spec"]["taints"], "metadata.taints", errors);
    for list in ["capacity", "allocatable"] {
        for (name, value) in entries(&node["status"][list]) {
            if let Some(quantity) = Quantity::from_json(value) {
                quantities::check_amount(name, &quantity, &format!("status.{list}.{name}"), errors);
            }
        }
    }
    let Some(old) = old else {
        check_ranges(node, errors);
        return;
    };
    let (after, before) = (&node["spec"], &old["spec"]);
    if !items(&before["podCIDRs"]).is_empty() && after["podCIDRs"] != before["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    if !string(&before["providerID"]).is_empty() && after["providerID"] != before["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", why));
    }
    scheduling::check_taints(&after["taints"], "metadata.taints", errors);
}

fn check_ranges(node: &Value, errors: &mut Errors) {
    let ranges = &node["spec"]["podCIDRs"];
    for (index, range) in items(ranges).iter().enumerate() {
        let is_fine = string(range).split_once('/').is_some_and(|(address, bits)| {
            let bits: Option<u8> = bits.parse().ok();
            match address.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(_)) => bits.is_some_and(|bits| bits <= 32),
                Ok(std::net::IpAddr::V6(_)) => bits.is_some_and(|bits| bits <= 128),
                Err(_) => false,
            }
        });
        if !is_fine {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("spec.podCIDRs[{index}]"), range.clone(), why));
        }
    }
    let is_six = |range: &Value| string(range).contains(':');
    if let [first, second, rest @ ..] = items(ranges)
        && (!rest.is_empty() || is_six(first) == is_six(second))
    {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", ranges.clone(), why));
    }
}

pub(super) fn check_namespace_status(namespace: &Value, errors: &mut Errors) {
    let phase = &namespace["status"]["phase"];
    if is_deleting(namespace) {
        if phase != "Terminating" {
            let why = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.push(FieldError::invalid("status.Phase", phase.clone(), why));
        }
    } else if phase != "Active" {
        let why = "may only be 'Active' if `deletionTimestamp` is empty";
        errors.push(FieldError::invalid("status.Phase", phase.clone(), why));
    }
}

pub(super) fn check_namespace_finalizers(namespace: &Value, errors: &mut Errors) {
    for (index, finalizer) in items(&namespace["spec"]["finalizers"]).iter().enumerate() {
        let own = format!("spec.finalizers[{index}]");
        let name = string(finalizer);
        check_label_name(name, &own, errors);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(own, json!(name), why));
        }
    }
}

pub(super) fn check_runtime_class(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        check_immutable(&class["handler"], &old["handler"], "handler", errors);
        return;
    }
    for problem in text::label(string(&class["handler"])) {
        errors.push(FieldError::invalid("handler", json!(string(&class["handler"])), problem));
    }
    if is_set(&class["overhead"]) {
        let as_limits = json!({"limits": class["overhead"]["podFixed"]});
        quantities::check_requirements(&as_limits, "overhead.podFixed", errors);
    }
    scheduling::check_tolerations(&class["scheduling"]["tolerations"], "scheduling.tolerations", errors);
}
