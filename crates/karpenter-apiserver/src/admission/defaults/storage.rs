//! Defaults of volumes, claims, storage classes and CSI drivers.

use serde_json::{Value, json};

use super::pods::pull_policy;
use super::round_quantities;
use crate::admission::json::{Object, child, child_mut, objects_mut, set_default, text};

const FILE_MODE: i64 = 0o644;

pub(super) fn default_volume(map: &mut Object) {
    set_default(child(map, "status"), "phase", "Pending");
    let spec = child(map, "spec");
    set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default(spec, "volumeMode", "Filesystem");
    default_source(spec);
    if let Some(disk) = child_mut(spec, "azureDisk") {
        default_azure_disk(disk);
    }
}

pub(super) fn default_claim(map: &mut Object) {
    set_default(child(map, "status"), "phase", "Pending");
    let spec = child(map, "spec");
    set_default(spec, "volumeMode", "Filesystem");
    if let Some(resources) = child_mut(spec, "resources") {
        round_quantities(resources, "requests");
        round_quantities(resources, "limits");
    }
}

pub(super) fn default_class(map: &mut Object) {
    set_default(map, "reclaimPolicy", "Delete");
    set_default(map, "volumeBindingMode", "Immediate");
}

pub(super) fn default_driver(map: &mut Object) {
    let spec = child(map, "spec");
    set_default(spec, "attachRequired", true);
    set_default(spec, "podInfoOnMount", false);
    set_default(spec, "storageCapacity", false);
    set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_default(spec, "volumeLifecycleModes", json!(["Persistent"]));
    set_default(spec, "requiresRepublish", false);
    set_default(spec, "seLinuxMount", false);
}

/// Applies the defaults of a pod's volume: it has a name and a source, and `emptyDir` if the source is missing.
pub(super) fn default_pod_volume(volume: &mut Object) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child_mut(volume, source) {
            set_default(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = child_mut(volume, "downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(projected) = child_mut(volume, "projected") {
        for source in objects_mut(projected, "sources") {
            if let Some(token) = child_mut(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = child_mut(source, "downwardAPI") {
                default_downward_items(downward);
            }
        }
    }
    if let Some(template) =
        child_mut(volume, "ephemeral").and_then(|source| child_mut(source, "volumeClaimTemplate"))
    {
        set_default(child(template, "spec"), "volumeMode", "Filesystem");
    }
    if let Some(image) = child_mut(volume, "image") {
        let policy = pull_policy(image.get("reference").map_or("", text));
        set_default(image, "pullPolicy", policy);
    }
    if let Some(disk) = child_mut(volume, "azureDisk") {
        default_azure_disk(disk);
    }
    default_source(volume);
}

fn default_downward_items(source: &mut Object) {
    for item in objects_mut(source, "items") {
        if let Some(reference) = child_mut(item, "fieldRef") {
            set_default(reference, "apiVersion", "v1");
        }
    }
}

/// Applies the defaults of volume sources that pods and persistent volumes have in common.
fn default_source(holder: &mut Object) {
    if let Some(path) = child_mut(holder, "hostPath") {
        set_default(path, "type", "");
    }
    if let Some(iscsi) = child_mut(holder, "iscsi") {
        set_default(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = child_mut(holder, "rbd") {
        set_default(rbd, "pool", "rbd");
        set_default(rbd, "user", "admin");
        set_default(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(scale_io) = child_mut(holder, "scaleIO") {
        set_default(scale_io, "storageMode", "ThinProvisioned");
        set_default(scale_io, "fsType", "xfs");
    }
}

fn default_azure_disk(disk: &mut Object) {
    set_default(disk, "cachingMode", "ReadWrite");
    set_default(disk, "kind", "Shared");
    set_default(disk, "fsType", "ext4");
    set_default(disk, "readOnly", Value::Bool(false));
}
