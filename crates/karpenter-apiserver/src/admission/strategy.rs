//! Strategies of built-in kinds, which reset the fields that a request must not set: on create and on writes to the
//! object, the status; on writes to a subresource, all fields outside of it. They also set the generation, which counts
//! changes of the spec.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/pod/strategy.go, and `strategy.go` of each other kind

use jiff::Timestamp;
use serde_json::{Value, json};

use super::json::{Object, child, child_mut, is_set, items, objects_mut, set_default, set_or_remove, text};
use super::resources::quality_of_service;
use crate::builtin;
use crate::clock::rfc3339_seconds;

/// Whether the generation of a new object is 1, and which changes increment it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    None,
    /// The generation starts at 1 and is never incremented.
    OnlyFirst,
    Spec,
    /// Like `Spec`, but a new object has no generation.
    OnlyChanges,
    SpecAndAnnotations,
    /// The generation is incremented by all changes except those of metadata (as for webhook configurations).
    WholeObject,
}

fn generation_of(group: &str, kind: &str) -> Generation {
    match (group, kind) {
        ("apps", "Deployment") => Generation::SpecAndAnnotations,
        ("", "Pod" | "ReplicationController")
        | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob")
        | ("policy", "PodDisruptionBudget")
        | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy" | "ServiceCIDR" | "IPAddress")
        | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
        | (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding",
        )
        | ("resource.k8s.io", "DeviceClass" | "ResourceSlice") => Generation::Spec,
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        )
        | ("discovery.k8s.io", "EndpointSlice")
        | ("", "PodTemplate") => Generation::WholeObject,
        ("scheduling.k8s.io", "PriorityClass") => Generation::OnlyFirst,
        ("storage.k8s.io", "CSIDriver") => Generation::OnlyChanges,
        _ => Generation::None,
    }
}

/// Whether an update may omit the resource version; if it does, the stored one is used.
fn allows_unconditional_update(group: &str, kind: &str) -> bool {
    !matches!(
        (group, kind),
        ("admissionregistration.k8s.io" | "coordination.k8s.io" | "node.k8s.io" | "apiextensions.k8s.io", _)
            | ("apiregistration.k8s.io" | "storagemigration.k8s.io" | "internal.apiserver.k8s.io", _)
            | ("policy", "PodDisruptionBudget")
            | ("storage.k8s.io", "CSIDriver" | "CSIStorageCapacity" | "VolumeAttachment" | "CSINode")
    )
}

/// Whether the status can be written only through the subresource. A node may be created with a status.
fn has_status(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "",
            "Pod"
                | "Node"
                | "Namespace"
                | "Service"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "ReplicationController"
                | "ResourceQuota"
        ) | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("policy", "PodDisruptionBudget")
            | ("autoscaling", "HorizontalPodAutoscaler")
            | ("networking.k8s.io", "Ingress" | "ServiceCIDR")
            | ("storage.k8s.io", "VolumeAttachment")
            | ("certificates.k8s.io", "CertificateSigningRequest")
            | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
            | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            | ("resource.k8s.io", "ResourceClaim")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
    )
}

pub(crate) fn prepare_create(group: &str, version: &str, kind: &str, object: &mut Value, now: Timestamp) {
    let Value::Object(map) = object else { return };
    prepare_new_metadata(map);
    if !matches!(generation_of(group, kind), Generation::None | Generation::OnlyChanges) {
        child(map, "metadata").insert("generation".into(), json!(1));
    }
    if has_status(group, kind) && kind != "Node" {
        // The initial status is the zero value of the status's Go type, for example counts of 0 for a DaemonSet.
        let zero_status = builtin::zero_value(group, version, kind).and_then(|zero| zero.get("status"));
        set_or_remove(map, "status", zero_status.cloned());
    }
    match (group, kind) {
        ("", "Pod") => prepare_new_pod(map, now),
        ("", "Namespace") => {
            child(map, "status").insert("phase".into(), json!("Active"));
            let spec = child(map, "spec");
            let mut finalizers = items(&spec.get("finalizers").cloned().unwrap_or_default()).to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push(json!("kubernetes"));
            }
            spec.insert("finalizers".into(), Value::Array(finalizers));
            label_namespace(map);
        }
        ("", "Node") => {
            child(map, "spec").remove("configSource");
            if let Some(status) = child_mut(map, "status") {
                status.remove("config");
            }
        }
        ("", "PersistentVolume") => {
            let status = child(map, "status");
            status.insert("phase".into(), json!("Pending"));
            status.insert("lastPhaseTransitionTime".into(), json!(rfc3339_seconds(now)));
        }
        ("", "PersistentVolumeClaim") => {
            // kube-apiserver stores an empty phase; it applies the default `Pending` when it reads the object.
            child(map, "status").insert("phase".into(), json!("Pending"));
            mirror_data_sources(child(map, "spec"));
        }
        ("", "ServiceAccount") => clean_secret_references(map),
        ("", "Service") => super::services::mirror_addresses(child(map, "spec")),
        ("apps", "DaemonSet") => set_template_generation(map, 1),
        ("batch", "Job") => generate_selector(map),
        _ => {}
    }
}

pub(crate) fn prepare_update(
    group: &str,
    _version: &str,
    kind: &str,
    new: &mut Value,
    old: &Value,
    subresource: &str,
) {
    let Value::Object(map) = new else { return };
    keep_metadata(map, old);
    if allows_unconditional_update(group, kind) {
        let metadata = child(map, "metadata");
        if metadata.get("resourceVersion").is_none_or(|version| text(version).is_empty()) {
            set_or_remove(metadata, "resourceVersion", old["metadata"].get("resourceVersion").cloned());
        }
    }
    match subresource {
        "status" => prepare_status_update(group, kind, map, old),
        "" | "scale" | "approval" => prepare_object_update(group, kind, map, old),
        "finalize" => set_or_remove(map, "status", old.get("status").cloned()),
        "ephemeralcontainers" => {
            let containers = map.get("spec").map(|spec| spec["ephemeralContainers"].clone());
            keep_all_but_spec(map, old);
            set_or_remove(child(map, "spec"), "ephemeralContainers", containers);
            count_generation(map, old, Generation::Spec);
        }
        "resize" => {
            prepare_resize(map, old);
            count_generation(map, old, Generation::Spec);
        }
        _ => {}
    }
}

pub(crate) fn prepare_custom_create(object: &mut Value, has_status: bool) {
    let Value::Object(map) = object else { return };
    prepare_new_metadata(map);
    child(map, "metadata").insert("generation".into(), json!(1));
    if has_status {
        map.remove("status");
    }
}

pub(crate) fn prepare_custom_update(new: &mut Value, old: &Value, subresource: &str, has_status: bool) {
    let Value::Object(map) = new else { return };
    keep_metadata(map, old);
    if subresource == "status" {
        let status = map.remove("status");
        let metadata = map.remove("metadata");
        if let Value::Object(old) = old {
            *map = old.clone();
        }
        set_or_remove(map, "status", status);
        // The request determines only the managed fields and the resource version; all other metadata stays as stored.
        let kept = child(map, "metadata");
        let metadata = metadata.unwrap_or_default();
        set_or_remove(kept, "managedFields", metadata.get("managedFields").cloned());
        set_or_remove(kept, "resourceVersion", metadata.get("resourceVersion").cloned());
        return;
    }
    if has_status {
        set_or_remove(map, "status", old.get("status").cloned());
    }
    if differs_beside(map, old, &["metadata", "status"]) || (!has_status && is_changed(map, old, "status")) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        child(map, "metadata").insert("generation".into(), json!(generation + 1));
    }
}

/// Removes the metadata fields that clients cannot set on create.
fn prepare_new_metadata(map: &mut Object) {
    let metadata = child(map, "metadata");
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        metadata.remove(key);
    }
}

/// Keeps the stored identity and deletion metadata. A client may omit the uid and the grace period.
fn keep_metadata(map: &mut Object, old: &Value) {
    let metadata = child(map, "metadata");
    let before = &old["metadata"];
    set_or_remove(metadata, "generation", before.get("generation").cloned());
    set_or_remove(metadata, "selfLink", before.get("selfLink").cloned());
    for key in ["uid", "deletionGracePeriodSeconds"] {
        if let (None, Some(value)) = (metadata.get(key), before.get(key)) {
            metadata.insert(key.into(), value.clone());
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = before.get(key).filter(|value| !value.is_null()) {
            metadata.insert(key.into(), value.clone());
        }
    }
}

fn prepare_object_update(group: &str, kind: &str, map: &mut Object, old: &Value) {
    if has_status(group, kind) {
        set_or_remove(map, "status", old.get("status").cloned());
    }
    match (group, kind) {
        ("", "Namespace") => {
            set_or_remove(child(map, "spec"), "finalizers", old["spec"].get("finalizers").cloned());
            label_namespace(map);
        }
        ("", "Node") if old["spec"]["configSource"].is_null() => {
            child(map, "spec").remove("configSource");
        }
        ("", "Secret") if map.get("type").is_none_or(|kind| text(kind).is_empty()) => {
            set_or_remove(map, "type", old.get("type").cloned());
        }
        ("", "ServiceAccount") => clean_secret_references(map),
        ("", "PersistentVolumeClaim") => mirror_data_sources(child(map, "spec")),
        ("", "Service") => super::services::drop_type_dependent_fields(map, old),
        ("apps", "DaemonSet") => {
            let before = template_generation(old);
            let is_changed = map.get("spec").map(|spec| &spec["template"]) != Some(&old["spec"]["template"]);
            set_template_generation(map, if is_changed { before + 1 } else { before });
        }
        _ => {}
    }
    count_generation(map, old, generation_of(group, kind));
}

fn prepare_status_update(group: &str, kind: &str, map: &mut Object, old: &Value) {
    set_or_remove(map, "spec", old.get("spec").cloned());
    match (group, kind) {
        ("", "Pod") => {
            let metadata = child(map, "metadata");
            set_or_remove(metadata, "ownerReferences", old["metadata"].get("ownerReferences").cloned());
            let status = child(map, "status");
            if status.get("qosClass").is_none_or(|class| text(class).is_empty()) {
                set_or_remove(status, "qosClass", old["status"].get("qosClass").cloned());
            }
            keep_observed_generations(status, &old["status"]);
        }
        ("apps", "Deployment") => {
            set_or_remove(child(map, "metadata"), "labels", old["metadata"].get("labels").cloned());
        }
        ("storage.k8s.io", "VolumeAttachment")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("resource.k8s.io", "ResourceClaim")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            reset_metadata_for_status(map, old)
        }
        _ => {}
    }
}

/// Resets the metadata fields that status updates of these kinds cannot change to their stored values.
fn reset_metadata_for_status(map: &mut Object, old: &Value) {
    let metadata = child(map, "metadata");
    for key in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        set_or_remove(metadata, key, old["metadata"].get(key).cloned());
    }
}

/// Keeps the observed generations of the status and of conditions if a client omits them, because it may not know the
/// field.
fn keep_observed_generations(status: &mut Object, old: &Value) {
    if status.get("observedGeneration").is_none_or(|generation| generation.as_i64() == Some(0)) {
        set_or_remove(status, "observedGeneration", old.get("observedGeneration").cloned());
    }
    for condition in objects_mut(status, "conditions") {
        if condition.get("observedGeneration").is_some_and(|generation| generation.as_i64() != Some(0)) {
            continue;
        }
        let before =
            items(&old["conditions"]).iter().find(|other| Some(&other["type"]) == condition.get("type"));
        set_or_remove(
            condition,
            "observedGeneration",
            before.and_then(|other| other.get("observedGeneration")).cloned(),
        );
    }
}

fn count_generation(map: &mut Object, old: &Value, rule: Generation) {
    let counts = match rule {
        Generation::None | Generation::OnlyFirst => false,
        Generation::Spec | Generation::OnlyChanges => is_changed(map, old, "spec"),
        Generation::SpecAndAnnotations => {
            let annotations = map.get("metadata").and_then(|metadata| metadata.get("annotations"));
            is_changed(map, old, "spec") || annotations != old["metadata"].get("annotations")
        }
        Generation::WholeObject => differs_beside(map, old, &["metadata"]),
    };
    if counts {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        child(map, "metadata").insert("generation".into(), json!(generation + 1));
    }
}

fn is_changed(map: &Object, old: &Value, key: &str) -> bool {
    map.get(key).filter(|value| is_set(value)) != old.get(key).filter(|value| is_set(value))
}

fn differs_beside(map: &Object, old: &Value, except: &[&str]) -> bool {
    let old_keys = old.as_object().into_iter().flat_map(Object::keys);
    map.keys().chain(old_keys).any(|key| !except.contains(&key.as_str()) && is_changed(map, old, key))
}

fn keep_all_but_spec(map: &mut Object, old: &Value) {
    set_or_remove(map, "spec", old.get("spec").cloned());
    set_or_remove(map, "status", old.get("status").cloned());
    reset_metadata_for_status(map, old);
}

/// Resets everything except the resources and resize policies of existing containers.
fn prepare_resize(map: &mut Object, old: &Value) {
    let asked = map.get("spec").cloned().unwrap_or_default();
    let same_names = |list: &str| {
        let names = |spec: &Value| -> Vec<String> {
            items(&spec[list]).iter().map(|container| text(&container["name"]).to_string()).collect()
        };
        names(&asked) == names(&old["spec"])
    };
    if !same_names("containers") || !same_names("initContainers") {
        return;
    }
    keep_all_but_spec(map, old);
    for list in ["containers", "initContainers"] {
        for (index, container) in objects_mut(child(map, "spec"), list).enumerate() {
            for key in ["resources", "resizePolicy"] {
                set_or_remove(container, key, asked[list][index].get(key).cloned());
            }
        }
    }
}

fn prepare_new_pod(map: &mut Object, now: Timestamp) {
    let labels = map.get("metadata").map(|metadata| metadata["labels"].clone()).unwrap_or_default();
    let spec = map.get("spec").unwrap_or(&Value::Null);
    let mut status = json!({"phase": "Pending", "qosClass": quality_of_service(spec)});
    if !items(&spec["schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": rfc3339_seconds(now),
        }]);
    }
    map.insert("status".into(), status);
    let spec = child(map, "spec");
    for constraint in objects_mut(spec, "topologySpreadConstraints") {
        merge_label_keys(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = child_mut(spec, "affinity") else { return };
    for side in ["podAffinity", "podAntiAffinity"] {
        let Some(side) = child_mut(affinity, side) else { continue };
        for preferred in objects_mut(side, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = child_mut(preferred, "podAffinityTerm") {
                merge_label_keys(term, "matchLabelKeys", "In", &labels);
                merge_label_keys(term, "mismatchLabelKeys", "NotIn", &labels);
            }
        }
        for term in objects_mut(side, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge_label_keys(term, "matchLabelKeys", "In", &labels);
            merge_label_keys(term, "mismatchLabelKeys", "NotIn", &labels);
        }
    }
}

/// Adds the pod's values of the label keys to the selector when the pod is created, so that other components need not
/// know the label keys.
fn merge_label_keys(term: &mut Object, keys: &str, operator: &str, labels: &Value) {
    let requirements: Vec<Value> = items(term.get(keys).unwrap_or(&Value::Null))
        .iter()
        .filter_map(|key| Some((key, labels.get(text(key))?)))
        .map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]}))
        .collect();
    if requirements.is_empty() {
        return;
    }
    let Some(selector) = child_mut(term, "labelSelector") else { return };
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if let Some(expressions) = expressions.as_array_mut() {
        expressions.extend(requirements);
    }
}

fn label_namespace(map: &mut Object) {
    if let Some(name) = map.get("metadata").and_then(|metadata| metadata.get("name")).cloned() {
        child(child(map, "metadata"), "labels").insert("kubernetes.io/metadata.name".into(), name);
    }
}

fn clean_secret_references(map: &mut Object) {
    for secret in objects_mut(map, "secrets") {
        let name = secret.remove("name");
        secret.clear();
        set_or_remove(secret, "name", name);
    }
}

/// If only one of `dataSource` and `dataSourceRef` is set, sets the other to the same value, unless it cannot represent
/// the value.
fn mirror_data_sources(spec: &mut Object) {
    let source = spec.get("dataSource").filter(|source| is_set(source)).cloned();
    let reference = spec.get("dataSourceRef").filter(|reference| is_set(reference)).cloned();
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(reference)) if text(&reference["namespace"]).is_empty() => {
            let mut source = json!({"kind": reference["kind"], "name": reference["name"]});
            if is_set(&reference["apiGroup"]) {
                source["apiGroup"] = reference["apiGroup"].clone();
            }
            spec.insert("dataSource".into(), source);
        }
        _ => {}
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    text(&object["metadata"]["annotations"][TEMPLATE_GENERATION]).parse().unwrap_or(0)
}

fn set_template_generation(map: &mut Object, value: i64) {
    let annotations = child(child(map, "metadata"), "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), json!(value.to_string()));
}

/// Makes the selector of a Job select the Job's uid, unless the client sets `manualSelector`.
fn generate_selector(map: &mut Object) {
    let (name, uid) = match map.get("metadata") {
        Some(metadata) => (metadata["name"].clone(), metadata["uid"].clone()),
        None => return,
    };
    let spec = child(map, "spec");
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for (key, value) in [
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
    ] {
        labels.entry(key).or_insert_with(|| Value::String(text(value).to_string()));
    }
    let labels = labels.clone();
    let selected = child(child(spec, "selector"), "matchLabels");
    selected
        .entry("batch.kubernetes.io/controller-uid")
        .or_insert_with(|| Value::String(text(&uid).to_string()));
    set_default(child(map, "metadata"), "labels", Value::Object(labels));
}

#[cfg(test)]
mod tests;
