//! Validation of resource names and quantities in requests, limits and capacities.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::metadata::check_label_name;
use super::{Errors, text};
use crate::admission::json::entries;
use crate::admission::quantity::Quantity;
use crate::field::FieldError;

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether Kubernetes itself defines the resource.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && text::qualified_name(&format!("requests.{name}")).is_empty()
}

fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

pub(super) fn is_standard(name: &str) -> bool {
    is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
        || matches!(
            name,
            "cpu"
                | "memory"
                | "ephemeral-storage"
                | "storage"
                | "requests.cpu"
                | "requests.memory"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
                | "pods"
                | "resourcequotas"
                | "services"
                | "replicationcontrollers"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "requests.storage"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

fn is_integer(name: &str) -> bool {
    is_extended(name)
        || matches!(
            name,
            "pods"
                | "resourcequotas"
                | "services"
                | "replicationcontrollers"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

/// Checks that a quantity is not negative and, if the resource requires it, that it is an integer.
pub(super) fn check_amount(name: &str, quantity: &Quantity, path: &str, errors: &mut Errors) {
    if quantity.is_negative() {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, json!(quantity.to_string()), why));
    }
    if is_integer(name) && !quantity.is_whole() {
        errors.push(FieldError::invalid(path, json!(quantity.to_string()), "must be an integer"));
    }
}

pub(super) fn check_container_resource_name(name: &str, path: &str, errors: &mut Errors) {
    let before = errors.len();
    check_label_name(name, path, errors);
    let is_well_formed = errors.len() == before;
    if is_well_formed && !name.contains('/') && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, json!(name), why));
    }
    if !name.contains('/') {
        if !is_huge_pages(name) && !matches!(name, "cpu" | "memory" | "ephemeral-storage") {
            errors.push(FieldError::invalid(path, json!(name), "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, json!(name), "doesn't follow extended resource name standard"));
    }
}

fn read(list: &Value) -> BTreeMap<&str, Quantity> {
    entries(list).filter_map(|(name, value)| Some((name.as_str(), Quantity::from_json(value)?))).collect()
}

/// Validates the `resources` of a container.
pub(super) fn check_requirements(resources: &Value, path: &str, errors: &mut Errors) {
    let (limits, requests) = (read(&resources["limits"]), read(&resources["requests"]));
    let mut has_huge_pages = false;
    let mut has_cpu_or_memory = false;
    for (name, limit) in &limits {
        let own = format!("{path}.limits[{name}]");
        check_container_resource_name(name, &own, errors);
        check_amount(name, limit, &own, errors);
        has_huge_pages |= is_huge_pages(name);
        has_cpu_or_memory |= matches!(*name, "cpu" | "memory");
    }
    for (name, request) in &requests {
        let own = format!("{path}.requests[{name}]");
        check_container_resource_name(name, &own, errors);
        check_amount(name, request, &own, errors);
        match limits.get(name) {
            Some(limit) if request != limit && !allows_overcommit(name) => {
                let why = format!("must be equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(format!("{path}.requests"), json!(request.to_string()), why));
            }
            Some(limit) if request > limit => {
                let why = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(format!("{path}.requests"), json!(request.to_string()), why));
            }
            None if !allows_overcommit(name) => {
                let why = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), why));
            }
            _ => {}
        }
        has_huge_pages |= is_huge_pages(name);
        has_cpu_or_memory |= matches!(*name, "cpu" | "memory");
    }
    if has_huge_pages && !has_cpu_or_memory {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}
