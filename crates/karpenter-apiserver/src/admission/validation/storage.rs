//! Validation of persistent volumes, claims, storage classes, attachments and CSI nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::containers::check_choice;
use super::metadata::{check_label_name, check_selector};
use super::{Errors, check_immutable, scheduling, text, with_struct_text};
use crate::admission::json::{child_mut, entries, is_set, items, set_or_remove, text as string};
use crate::admission::quantity::Quantity;
use crate::field::FieldError;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// The fields of a volume's spec that are not volume sources.
const NON_SOURCE_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn check_access_modes(modes: &Value, path: &str, errors: &mut Errors) {
    for mode in items(modes) {
        if !ACCESS_MODES.contains(&string(mode)) {
            errors.push(FieldError::not_supported(path, mode.clone(), &ACCESS_MODES));
        }
    }
    let is_single = |mode: &Value| mode == "ReadWriteOncePod";
    if items(modes).iter().any(is_single) && items(modes).iter().any(|mode| !is_single(mode)) {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn check_class_name(name: &Value, path: &str, errors: &mut Errors) {
    if !string(name).is_empty() {
        for problem in text::subdomain(string(name)) {
            errors.push(FieldError::invalid(path, name.clone(), problem));
        }
    }
}

pub(super) fn check_volume(volume: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &volume["spec"];
    if items(&spec["accessModes"]).is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    check_access_modes(&spec["accessModes"], "spec.accessModes", errors);
    let capacity: Vec<(&String, &Value)> = entries(&spec["capacity"]).collect();
    if capacity.is_empty() {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.len() != 1 || capacity[0].0 != "storage" {
        let shown = if capacity.is_empty() { json!({}) } else { spec["capacity"].clone() };
        errors.push(FieldError::not_supported("spec.capacity", shown, &["storage"]));
    }
    for (name, size) in capacity {
        if Quantity::from_json(size).is_some_and(|size| size <= Quantity::zero()) {
            let path = format!("spec.capacity[{name}]");
            errors.push(FieldError::invalid(path, size.clone(), "must be greater than zero"));
        }
    }
    let policies = ["Delete", "Recycle", "Retain"];
    check_choice(
        &spec["persistentVolumeReclaimPolicy"],
        &policies,
        "spec.persistentVolumeReclaimPolicy",
        errors,
    );
    if is_set(&spec["nodeAffinity"]["required"]) {
        scheduling::check_node_selector(
            &spec["nodeAffinity"]["required"],
            "spec.nodeAffinity.required",
            errors,
        );
    }
    let sources = source_of(spec);
    for (kind, _) in entries(&sources).skip(1) {
        errors.push(FieldError::forbidden(format!("spec.{kind}"), "may not specify more than 1 volume type"));
    }
    if entries(&sources).next().is_none() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    if is_set(&spec["local"]) && !is_set(&spec["nodeAffinity"]["required"]) {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
    if is_set(&spec["csi"]) {
        for key in ["driver", "volumeHandle"] {
            if string(&spec["csi"][key]).is_empty() {
                errors.push(FieldError::required(format!("spec.csi.{key}"), ""));
            }
        }
    }
    check_class_name(&spec["storageClassName"], "spec.storageClassName", errors);
    if let Some(old) = old {
        if sources != source_of(&old["spec"]) {
            let why = "spec.persistentvolumesource is immutable after creation\n";
            errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
        }
        check_immutable(&spec["volumeMode"], &old["spec"]["volumeMode"], "volumeMode", errors);
        if is_set(&old["spec"]["nodeAffinity"]) {
            check_immutable(&spec["nodeAffinity"], &old["spec"]["nodeAffinity"], "nodeAffinity", errors);
        }
    }
}

fn source_of(spec: &Value) -> Value {
    entries(spec)
        .filter(|(key, value)| !NON_SOURCE_FIELDS.contains(&key.as_str()) && is_set(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// Validates the spec of a claim, or of a claim template in a StatefulSet.
pub(super) fn check_claim_spec(spec: &Value, path: &str, errors: &mut Errors) {
    let modes = format!("{path}.accessModes");
    if items(&spec["accessModes"]).is_empty() {
        errors.push(FieldError::required(&modes, "at least 1 access mode is required"));
    }
    check_selector(&spec["selector"], &format!("{path}.selector"), errors);
    check_access_modes(&spec["accessModes"], &modes, errors);
    let own = format!("{path}.resources[storage]");
    match Quantity::from_json(&spec["resources"]["requests"]["storage"]) {
        None => errors.push(FieldError::required(own, "")),
        Some(size) if size <= Quantity::zero() => {
            errors.push(FieldError::invalid(own, json!(size.to_string()), "must be greater than zero"));
        }
        Some(_) => {}
    }
    check_class_name(&spec["storageClassName"], &format!("{path}.storageClassName"), errors);
    if is_set(&spec["volumeMode"]) {
        check_choice(&spec["volumeMode"], &["Block", "Filesystem"], &format!("{path}.volumeMode"), errors);
    }
}

pub(super) fn check_claim(claim: &Value, old: Option<&Value>, errors: &mut Errors) {
    check_claim_spec(&claim["spec"], "spec", errors);
    let Some(old) = old else { return };
    let (mut after, mut before) = (claim["spec"].clone(), old["spec"].clone());
    if let (Value::Object(after), Value::Object(before)) = (&mut after, &mut before) {
        if string(&old["spec"]["volumeName"]).is_empty() {
            set_or_remove(before, "volumeName", after.get("volumeName").cloned());
        }
        // A claim that has no storage class may get one by an update.
        if !is_set(&old["spec"]["storageClassName"]) {
            set_or_remove(after, "storageClassName", None);
        }
        if claim["status"]["phase"] == "Bound" {
            let size = old["spec"]["resources"]["requests"].get("storage").cloned();
            if let Some(requests) = child_mut(after, "resources").and_then(|own| child_mut(own, "requests")) {
                set_or_remove(requests, "storage", size);
            }
            set_or_remove(
                after,
                "volumeAttributesClassName",
                before.get("volumeAttributesClassName").cloned(),
            );
        }
    }
    if after != before {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
        errors.push(FieldError::forbidden("spec", why));
    }
    let size = |claim: &Value| Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"]);
    let has = Quantity::from_json(&old["status"]["capacity"]["storage"]).unwrap_or_else(Quantity::zero);
    if let (Some(new_size), Some(old_size)) = (size(claim), size(old))
        && new_size < old_size
        && new_size <= has
    {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", why));
    }
    check_immutable(&claim["spec"]["volumeMode"], &old["spec"]["volumeMode"], "volumeMode", errors);
}

pub(super) fn check_class(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        for key in ["parameters", "provisioner", "reclaimPolicy"] {
            if class[key] != old[key] {
                errors.push(FieldError::forbidden(key, format!("updates to {key} are forbidden.")));
            }
        }
        check_immutable(&class["volumeBindingMode"], &old["volumeBindingMode"], "volumeBindingMode", errors);
        return;
    }
    let provisioner = string(&class["provisioner"]);
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        check_label_name(&provisioner.to_lowercase(), "provisioner", errors);
    }
    check_choice(&class["reclaimPolicy"], &["Delete", "Retain"], "reclaimPolicy", errors);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    check_choice(&class["volumeBindingMode"], &modes, "volumeBindingMode", errors);
}

pub(super) fn check_attachment(attachment: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &attachment["spec"];
    if string(&spec["attacher"]).is_empty() {
        errors.push(FieldError::required("spec.attacher", ""));
        errors.push(FieldError::required("spec.attacher", ""));
    }
    let source = &spec["source"];
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (is_set(&source["inlineVolumeSpec"]), is_set(&source["persistentVolumeName"])) {
        (false, false) => errors.push(FieldError::required("spec.source", why)),
        (true, true) => errors.push(FieldError::forbidden("spec.source", why)),
        _ => {}
    }
    for problem in text::subdomain(string(&spec["nodeName"])) {
        errors.push(FieldError::invalid("spec.nodeName", json!(string(&spec["nodeName"])), problem));
    }
    if old.is_some_and(|old| *spec != old["spec"]) {
        let source = format!(
            "{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":{}}}",
            source["persistentVolumeName"], source["inlineVolumeSpec"]
        );
        let mut error = FieldError::invalid("spec", spec.clone(), "field is immutable");
        error.value_text = Some(format!(
            "{{\"Attacher\":{},\"Source\":{source},\"NodeName\":{}}}",
            spec["attacher"], spec["nodeName"]
        ));
        errors.push(error);
    }
}

pub(super) fn check_csi_node(node: &Value, old: Option<&Value>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, driver) in items(&node["spec"]["drivers"]).iter().enumerate() {
        let own = format!("spec.drivers[{index}]");
        let name = string(&driver["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{own}.name"), ""));
        } else {
            for problem in text::subdomain(&name.to_lowercase()) {
                errors.push(FieldError::invalid(format!("{own}.name"), json!(name), problem));
            }
        }
        if string(&driver["nodeID"]).is_empty() {
            errors.push(FieldError::required(format!("{own}.nodeID"), ""));
        }
        super::check_nonnegative(
            &driver["allocatable"]["count"],
            &format!("{own}.allocatable.count"),
            errors,
        );
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{own}.name"), json!(name)));
        }
        for key in items(&driver["topologyKeys"]) {
            check_label_name(string(key), &own, errors);
        }
        // Of a driver that is already listed, only the number of volumes may change.
        let before = old.map(|old| items(&old["spec"]["drivers"])).unwrap_or_default();
        if let Some(before) = before.iter().find(|other| other["name"] == driver["name"]) {
            let bare = |driver: &Value| {
                let mut bare = driver.clone();
                if let Some(map) = bare.as_object_mut() {
                    map.remove("allocatable");
                }
                bare
            };
            if bare(driver) != bare(before) {
                let error = FieldError::invalid("spec.drivers", driver.clone(), "field is immutable");
                let shown = [
                    ("Name", &driver["name"]),
                    ("NodeID", &driver["nodeID"]),
                    ("TopologyKeys", &driver["topologyKeys"]),
                    ("Allocatable", &Value::Null),
                ];
                errors.push(with_struct_text(error, &shown));
            }
        }
    }
}
