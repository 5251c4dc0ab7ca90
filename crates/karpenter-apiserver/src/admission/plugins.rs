//! The admission plugins, in kube-apiserver's order: NamespaceLifecycle, ServiceAccount, TaintNodesByCondition,
//! LimitRanger, Priority, DefaultTolerationSeconds, PodTopologyLabels, DefaultStorageClass,
//! StorageObjectInUseProtection, RuntimeClass, and the validating plugins.
//!
//! There are three differences from kube-apiserver. The ServiceAccount `default` need not exist, because the controller
//! that creates it may not run; pods then get no token. Validating plugins (limits, expansion of claims) run before the
//! validation of the kind, not after it. ResourceQuota is not enforced.
//!
//! Upstream: k8s.io/kubernetes/pkg/kubeapiserver/options/plugins.go, k8s.io/kubernetes/plugin/pkg/admission

mod limits;
mod pods;

use serde_json::{Value, json};

use super::json::{Object, child, is_set, items, name, text};
use super::{Lookup, Operation, Verb};
use crate::status::{ApiResult, Cause, Failure};

const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) fn admit(operation: &Operation<'_>, object: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    check_namespace(operation, lookup)?;
    if operation.verb == Verb::Delete {
        return Ok(());
    }
    let is_create = operation.verb == Verb::Create;
    match (operation.group, operation.plural, operation.subresource) {
        ("", "pods", "") => pods::admit_pod(operation, object, lookup),
        ("", "pods", "resize") => limits::check_pod(operation, object, lookup),
        ("", "nodes", "") if is_create => {
            taint_new_node(object);
            Ok(())
        }
        ("", "persistentvolumeclaims", "") => {
            if is_create {
                add_finalizer(object, "kubernetes.io/pvc-protection");
                set_default_class(object, lookup);
            } else {
                check_expansion(operation, object, lookup)?;
            }
            limits::check_claim(operation, object, lookup)
        }
        ("", "persistentvolumes", "") if is_create => {
            add_finalizer(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        ("storage.k8s.io", "volumeattributesclasses", "") if is_create => {
            add_finalizer(object, "kubernetes.io/vac-protection");
            Ok(())
        }
        ("scheduling.k8s.io", "priorityclasses", "") => {
            check_default_priority_class(operation, object, lookup)
        }
        _ => Ok(()),
    }
}

/// The error that reports that the request is forbidden.
fn forbidden(operation: &Operation<'_>, object: &Value, why: &str) -> Box<Failure> {
    let own_name = [operation.name, name(object), text(&object["metadata"]["generateName"])]
        .into_iter()
        .find(|candidate| !candidate.is_empty())
        .unwrap_or("Unknown");
    Box::new(Failure::forbidden(operation.group, operation.plural, own_name, why))
}

fn check_namespace(operation: &Operation<'_>, lookup: &dyn Lookup) -> ApiResult<()> {
    let is_namespace = operation.group.is_empty() && operation.kind == "Namespace";
    if is_namespace {
        let is_immortal = IMMORTAL_NAMESPACES.contains(&operation.name);
        if operation.verb == Verb::Delete && operation.subresource.is_empty() && is_immortal {
            let why = "this namespace may not be deleted";
            return Err(Box::new(Failure::forbidden("", "namespaces", operation.name, why)));
        }
        return Ok(());
    }
    let is_review = operation.plural == "localsubjectaccessreviews";
    if operation.namespace.is_empty() || operation.verb == Verb::Delete || is_review {
        return Ok(());
    }
    let Some(namespace) = lookup.get("", "namespaces", "", operation.namespace) else {
        return Err(Box::new(Failure::not_found("", "namespaces", operation.namespace)));
    };
    if operation.verb == Verb::Create && text(&namespace["status"]["phase"]) == "Terminating" {
        let within = operation.namespace;
        let why =
            format!("unable to create new content in namespace {within} because it is being terminated");
        let mut failure = forbidden(operation, &Value::Null, &why);
        failure.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {within} is being terminated"),
            field: Some("metadata.namespace".into()),
        });
        return Err(failure);
    }
    Ok(())
}

/// Gives a new node the taint `not-ready`, so that no pods are scheduled to it before the node lifecycle controller has
/// seen it ready.
fn taint_new_node(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let is_there = items(&node["spec"]["taints"])
        .iter()
        .any(|other| other["key"] == taint["key"] && other["effect"] == taint["effect"]);
    if let (false, Value::Object(map)) = (is_there, node) {
        push(child(map, "spec"), "taints", taint);
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let is_there = items(&object["metadata"]["finalizers"]).iter().any(|other| other == finalizer);
    if let (false, Value::Object(map)) = (is_there, object) {
        push(child(map, "metadata"), "finalizers", json!(finalizer));
    }
}

/// Appends a value to the list at `key`; creates the list if it does not exist.
fn push(map: &mut Object, key: &str, value: Value) {
    let list = map.entry(key).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

fn set_default_class(claim: &mut Value, lookup: &dyn Lookup) {
    let has_class = is_set(&claim["spec"]["storageClassName"])
        || is_set(&claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"]);
    if has_class {
        return;
    }
    let is_default = |class: &Value| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| class["metadata"]["annotations"][*key] == "true")
    };
    // The newest default class is used; of several with the same creation time, the first by name.
    let mut classes = lookup.list("storage.k8s.io", "storageclasses", "");
    classes.retain(|class| is_default(class));
    classes.sort_by(|left, right| {
        let created = |class: &Value| text(&class["metadata"]["creationTimestamp"]).to_string();
        created(right).cmp(&created(left)).then_with(|| name(left).cmp(name(right)))
    });
    if let (Some(class), Value::Object(map)) = (classes.first(), claim) {
        child(map, "spec").insert("storageClassName".into(), json!(name(class)));
    }
}

/// Rejects the expansion of a claim unless its StorageClass allows it.
fn check_expansion(operation: &Operation<'_>, claim: &Value, lookup: &dyn Lookup) -> ApiResult<()> {
    let Some(old) = operation.old else { return Ok(()) };
    let size = |claim: &Value| {
        super::quantity::Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"])
    };
    let (Some(before), Some(after)) = (size(old), size(claim)) else { return Ok(()) };
    if after <= before {
        return Ok(());
    }
    // If the claim is not bound, validation rejects any change of its spec.
    if old["status"]["phase"] != "Bound" {
        return Ok(());
    }
    let class_name = text(&claim["spec"]["storageClassName"]);
    let allows = lookup
        .get("storage.k8s.io", "storageclasses", "", class_name)
        .is_some_and(|class| class["allowVolumeExpansion"] == true);
    if !allows {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        return Err(forbidden(operation, claim, why));
    }
    Ok(())
}

fn check_default_priority_class(
    operation: &Operation<'_>,
    class: &Value,
    lookup: &dyn Lookup,
) -> ApiResult<()> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    if let Some(other) = pods::default_priority_class(lookup)
        && (operation.verb == Verb::Create || name(&other) != name(class))
    {
        let why = format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            name(&other)
        );
        return Err(forbidden(operation, class, &why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
