//! The columns of volumes, claims and drivers.

use serde_json::Value;

use super::{AGE, Kind, NAME, count, created, flag, is_deleting, list, name, plain, text, text_or};
use crate::table::name_of;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            ("Capacity", "string", 0),
            ("Access Modes", "string", 0),
            ("Reclaim Policy", "string", 0),
            ("Status", "string", 0),
            ("Claim", "string", 0),
            ("StorageClass", "string", 0),
            ("VolumeAttributesClass", "string", 0),
            ("Reason", "string", 0),
            AGE,
            ("VolumeMode", "string", 1),
        ],
        cells: |object, now| {
            let claim = match object.pointer("/spec/claimRef").filter(|claim| claim.is_object()) {
                Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
                None => String::new(),
            };
            vec![
                name(object),
                quantity(object, "/spec/capacity/storage").into(),
                access_modes(object, "/spec/accessModes").into(),
                text(object, "/spec/persistentVolumeReclaimPolicy").into(),
                phase(object).into(),
                claim.into(),
                storage_class(object).into(),
                text_or(object, "/spec/volumeAttributesClassName", "<unset>").into(),
                text(object, "/status/reason").into(),
                created(object, now),
                text_or(object, "/spec/volumeMode", "<unset>").into(),
            ]
        },
    },
    Kind {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            ("Status", "string", 0),
            ("Volume", "string", 0),
            ("Capacity", "string", 0),
            ("Access Modes", "string", 0),
            ("StorageClass", "string", 0),
            ("VolumeAttributesClass", "string", 0),
            AGE,
            ("VolumeMode", "string", 1),
        ],
        cells: |object, now| {
            let is_bound = !text(object, "/spec/volumeName").is_empty();
            let (capacity, modes) = if is_bound {
                (quantity(object, "/status/capacity/storage"), access_modes(object, "/status/accessModes"))
            } else {
                (String::new(), String::new())
            };
            vec![
                name(object),
                phase(object).into(),
                text(object, "/spec/volumeName").into(),
                capacity.into(),
                modes.into(),
                storage_class(object).into(),
                text_or(object, "/spec/volumeAttributesClassName", "<unset>").into(),
                created(object, now),
                text_or(object, "/spec/volumeMode", "<unset>").into(),
            ]
        },
    },
    Kind {
        group: "storage.k8s.io",
        kind: "StorageClass",
        columns: &[
            NAME,
            ("Provisioner", "string", 0),
            ("ReclaimPolicy", "string", 0),
            ("VolumeBindingMode", "string", 0),
            ("AllowVolumeExpansion", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let is_default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
                .iter()
                .any(|prefix| annotation(object, &format!("{prefix}/is-default-class")) == "true");
            let shown = format!("{}{}", name_of(object), if is_default { " (default)" } else { "" });
            vec![
                shown.into(),
                text(object, "/provisioner").into(),
                text_or(object, "/reclaimPolicy", "Delete").into(),
                text_or(object, "/volumeBindingMode", "Immediate").into(),
                flag(object, "/allowVolumeExpansion").into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "storage.k8s.io",
        kind: "VolumeAttributesClass",
        columns: &[NAME, ("DriverName", "string", 0), AGE],
        cells: |object, now| vec![name(object), text(object, "/driverName").into(), created(object, now)],
    },
    Kind {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            ("Attacher", "string", 0),
            ("PV", "string", 0),
            ("Node", "string", 0),
            ("Attached", "boolean", 0),
            AGE,
        ],
        cells: |object, now| {
            vec![
                name(object),
                text(object, "/spec/attacher").into(),
                text(object, "/spec/source/persistentVolumeName").into(),
                text(object, "/spec/nodeName").into(),
                flag(object, "/status/attached").into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "storage.k8s.io",
        kind: "CSINode",
        columns: &[NAME, ("Drivers", "integer", 0), AGE],
        cells: |object, now| vec![name(object), count(object, "/spec/drivers").into(), created(object, now)],
    },
    Kind {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        columns: &[
            NAME,
            ("AttachRequired", "boolean", 0),
            ("PodInfoOnMount", "boolean", 0),
            ("StorageCapacity", "boolean", 0),
            ("TokenRequests", "string", 0),
            ("RequiresRepublish", "boolean", 0),
            ("Modes", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let attach = object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
            let tokens = match object.pointer("/spec/tokenRequests").filter(|tokens| tokens.is_array()) {
                Some(tokens) => list(tokens, "")
                    .iter()
                    .map(|token| text(token, "/audience"))
                    .collect::<Vec<_>>()
                    .join(","),
                None => "<unset>".to_string(),
            };
            let modes: Vec<&str> =
                list(object, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
            let modes = if modes.is_empty() { "<none>".to_string() } else { modes.join(",") };
            vec![
                name(object),
                attach.into(),
                flag(object, "/spec/podInfoOnMount").into(),
                flag(object, "/spec/storageCapacity").into(),
                tokens.into(),
                flag(object, "/spec/requiresRepublish").into(),
                modes.into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "storage.k8s.io",
        kind: "CSIStorageCapacity",
        columns: &[NAME, ("StorageClassName", "string", 0), ("Capacity", "string", 0)],
        cells: |object, _| {
            let capacity = object.pointer("/capacity").map_or_else(|| "<unset>".to_string(), plain);
            vec![name(object), text(object, "/storageClassName").into(), capacity.into()]
        },
    },
];

fn phase(object: &Value) -> &str {
    if is_deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// The quantity at a JSON pointer; `0` if there is none.
fn quantity(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).map_or_else(|| "0".to_string(), plain)
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(key)?.as_str()).unwrap_or_default()
}

fn storage_class(object: &Value) -> &str {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => text(object, "/spec/storageClassName"),
        class => class,
    }
}

/// The abbreviations of the access modes at a JSON pointer, in a fixed order.
fn access_modes(object: &Value, pointer: &str) -> String {
    const MODES: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = list(object, pointer);
    let shown: Vec<&str> = MODES
        .iter()
        .filter(|(long, _)| modes.iter().any(|mode| mode == long))
        .map(|(_, short)| *short)
        .collect();
    shown.join(",")
}
