//! Validation of built-in kinds, with kube-apiserver v1.35's field paths and messages.
//!
//! `tests/it/admission.rs` compares the errors with recorded responses. Of kinds without rules in this module, only the
//! metadata is validated. kube-apiserver appends a Go diff of the spec to some messages; here, the diff is omitted.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/core/validation/validation.go,
//! k8s.io/kubernetes/pkg/apis/apps/validation/validation.go, k8s.io/kubernetes/pkg/apis/batch/validation/validation.go

mod budgets;
mod config;
mod containers;
mod cron;
mod metadata;
mod nodes;
mod pod_updates;
mod pods;
mod quantities;
mod rbac;
mod scheduling;
mod services;
mod storage;
mod text;
mod workloads;

use serde_json::Value;

use crate::field::FieldError;
use metadata::NameRule;

type Errors = Vec<FieldError>;

pub(crate) fn validate_create(group: &str, version: &str, kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let (rule, namespaced) = name_rule(group, kind);
    // kube-apiserver does not validate the names of core Events and PodDisruptionBudgets.
    if !matches!((group, kind), ("", "Event") | ("policy", "PodDisruptionBudget")) {
        metadata::check(object, rule, namespaced, &mut errors);
        metadata::check_finalizer_names(object, &mut errors);
    }
    check_kind(group, version, kind, object, None, &mut errors);
    if errors.is_empty() {
        metadata::check(object, NameRule::PathSegment, namespaced, &mut errors);
    }
    errors
}

pub(crate) fn validate_update(
    group: &str,
    version: &str,
    kind: &str,
    new: &Value,
    old: &Value,
    subresource: &str,
) -> Errors {
    if let Some(missing) = metadata::missing_version(new) {
        return vec![missing];
    }
    let mut errors = Errors::new();
    let (rule, namespaced) = name_rule(group, kind);
    metadata::check(new, NameRule::PathSegment, namespaced, &mut errors);
    metadata::check_update(new, old, &mut errors);
    // As in kube-apiserver, the metadata of an update is validated twice for most kinds, for some of them completely.
    // Each check reports its errors, so causes occur twice.
    if !skips_metadata_of_updates(group, kind) {
        metadata::check_update(new, old, &mut errors);
    }
    metadata::check_finalizer_names(new, &mut errors);
    if subresource.is_empty() && repeats_metadata_of_creation(group, kind) {
        metadata::check(new, rule, namespaced, &mut errors);
    }
    match (subresource, kind) {
        ("status", "Pod") if group.is_empty() => pod_updates::check_status(new, old, &mut errors),
        ("status", "Node") if group.is_empty() => nodes::check_node(new, Some(old), &mut errors),
        ("status", "Namespace") if group.is_empty() => nodes::check_namespace_status(new, &mut errors),
        ("status", _) => workloads::status::check(group, kind, new, old, &mut errors),
        ("finalize", "Namespace") => nodes::check_namespace_finalizers(new, &mut errors),
        ("ephemeralcontainers", "Pod") => pod_updates::check_ephemeral_containers(new, old, &mut errors),
        ("resize", "Pod") => pods::check_pod(new, true, &mut errors),
        _ => check_kind(group, version, kind, new, Some(old), &mut errors),
    }
    errors
}

pub(crate) fn validate_custom_metadata(object: &Value, namespaced: bool) -> Errors {
    let mut errors = Errors::new();
    metadata::check(object, NameRule::Subdomain, namespaced, &mut errors);
    errors
}

pub(crate) fn validate_custom_metadata_update(new: &Value, old: &Value, namespaced: bool) -> Errors {
    if let Some(missing) = metadata::missing_version(new) {
        return vec![missing];
    }
    let mut errors = Errors::new();
    metadata::check(new, NameRule::PathSegment, namespaced, &mut errors);
    metadata::check_update(new, old, &mut errors);
    errors
}

fn skips_metadata_of_updates(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "PersistentVolume" | "Event" | "LimitRange")
            | ("policy", "PodDisruptionBudget")
            | ("storage.k8s.io", "VolumeAttachment" | "CSINode")
    )
}

fn repeats_metadata_of_creation(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "ConfigMap" | "Secret" | "PersistentVolume" | "PersistentVolumeClaim" | "LimitRange")
            | ("batch", "Job")
            | ("storage.k8s.io", "VolumeAttachment" | "CSINode")
            | ("rbac.authorization.k8s.io", _)
    )
}

fn check_kind(
    group: &str,
    version: &str,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    match (group, kind) {
        ("", "Pod") => match old {
            None => pods::check_new_pod(object, errors),
            Some(old) => pod_updates::check(object, old, errors),
        },
        ("", "PodTemplate") => pods::check_template(&object["template"], "template", errors),
        ("", "Node") => nodes::check_node(object, old, errors),
        ("", "ConfigMap") => config::check_config_map(object, old, errors),
        ("", "Secret") => config::check_secret(object, old, errors),
        ("", "Service") => services::check_service(object, old, errors),
        ("", "PersistentVolume") => storage::check_volume(object, old, errors),
        ("", "PersistentVolumeClaim") => storage::check_claim(object, old, errors),
        ("", "LimitRange") => budgets::check_limit_range(object, errors),
        ("", "ResourceQuota") => budgets::check_quota(object, old, errors),
        ("", "Event") => config::check_event(object, old, true, errors),
        ("events.k8s.io", "Event") => config::check_event(object, old, false, errors),
        ("", "ReplicationController") => workloads::check_replication_controller(object, errors),
        ("apps", "Deployment") => workloads::check_deployment(object, old, errors),
        ("apps", "ReplicaSet") => workloads::check_replica_set(object, old, errors),
        ("apps", "StatefulSet") => workloads::check_stateful_set(object, old, errors),
        ("apps", "DaemonSet") => workloads::check_daemon_set(object, old, errors),
        ("batch", "Job") => workloads::jobs::check_job(object, old, errors),
        ("batch", "CronJob") => workloads::jobs::check_cron_job(object, old, errors),
        ("policy", "PodDisruptionBudget") => budgets::check_disruption_budget(object, errors),
        ("scheduling.k8s.io", "PriorityClass") => budgets::check_priority_class(object, old, errors),
        ("coordination.k8s.io", "Lease") => budgets::check_lease(object, errors),
        ("storage.k8s.io", "StorageClass") => storage::check_class(object, old, errors),
        ("storage.k8s.io", "VolumeAttachment") => storage::check_attachment(object, old, errors),
        ("storage.k8s.io", "CSINode") => storage::check_csi_node(object, old, errors),
        ("node.k8s.io", "RuntimeClass") => nodes::check_runtime_class(object, old, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => budgets::check_autoscaler(version, object, errors),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            rbac::check_role(object, kind == "Role", errors)
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::check_binding(object, old, kind == "RoleBinding", errors);
        }
        _ => {}
    }
}

/// The rule for the names of a kind, and whether the kind is namespaced.
fn name_rule(group: &str, kind: &str) -> (NameRule, bool) {
    let rule = match (group, kind) {
        ("", "Namespace") | ("apps", "StatefulSet") => NameRule::Label,
        ("", "Service") => NameRule::Label1035,
        ("rbac.authorization.k8s.io", _) | ("policy", "PodDisruptionBudget") | ("", "Event") => {
            NameRule::PathSegment
        }
        _ => NameRule::Subdomain,
    };
    let is_cluster_scoped = matches!(
        (group, kind),
        ("", "Namespace" | "Node" | "PersistentVolume" | "ComponentStatus")
            | ("admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io", _)
            | ("scheduling.k8s.io", "PriorityClass")
            | (
                "storage.k8s.io",
                "StorageClass" | "CSINode" | "CSIDriver" | "VolumeAttachment" | "VolumeAttributesClass"
            )
            | ("node.k8s.io" | "certificates.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
            | ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding")
            | ("networking.k8s.io", "IngressClass" | "ServiceCIDR" | "IPAddress")
            | ("resource.k8s.io", "DeviceClass" | "ResourceSlice" | "DeviceTaintRule")
            | ("internal.apiserver.k8s.io" | "storagemigration.k8s.io", _)
    );
    (rule, !is_cluster_scoped)
}

/// Checks that a field did not change. The message shows the value `new`.
fn check_immutable(new: &Value, old: &Value, path: &str, errors: &mut Errors) {
    if new != old {
        errors.push(FieldError::invalid(path, new.clone(), "field is immutable"));
    }
}

/// Checks that a number, if it is set, is not negative.
fn check_nonnegative(value: &Value, path: &str, errors: &mut Errors) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(path, value.clone(), "must be greater than or equal to 0"));
    }
}

fn too_long(path: &str, limit: usize) -> FieldError {
    let kind = crate::field::FieldErrorKind::TooLong;
    FieldError::new(kind, path, Value::Null, format!("may not be more than {limit} bytes"))
}

/// An error whose message shows the value as Go prints its internal struct, with the fields in the order of the struct.
fn with_struct_text(mut error: FieldError, fields: &[(&str, &Value)]) -> FieldError {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    error.value_text = Some(format!("{{{}}}", fields.join(",")));
    error
}

fn not_found(path: impl Into<String>, value: &Value) -> FieldError {
    FieldError::new(crate::field::FieldErrorKind::NotFound, path, value.clone(), "")
}
