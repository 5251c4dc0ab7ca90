//! The columns of nodes and of related cluster-scoped kinds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{AGE, Kind, NAME, created, flag, integer, list, name, name_and_age, text, text_or};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "",
        kind: "Node",
        columns: &[
            NAME,
            ("Status", "string", 0),
            ("Roles", "string", 0),
            AGE,
            ("Version", "string", 0),
            ("Internal-IP", "string", 1),
            ("External-IP", "string", 1),
            ("OS-Image", "string", 1),
            ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ],
        cells: |node, now| {
            let system =
                |field: &str| text_or(node, &format!("/status/nodeInfo/{field}"), "<unknown>").into();
            vec![
                name(node),
                status(node).into(),
                roles(node).into(),
                created(node, now),
                text(node, "/status/nodeInfo/kubeletVersion").into(),
                address(node, "InternalIP").into(),
                address(node, "ExternalIP").into(),
                system("osImage"),
                system("kernelVersion"),
                system("containerRuntimeVersion"),
            ]
        },
    },
    Kind {
        group: "",
        kind: "Namespace",
        columns: &[NAME, ("Status", "string", 0), AGE],
        cells: |object, now| vec![name(object), text(object, "/status/phase").into(), created(object, now)],
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[NAME, ("Holder", "string", 0), AGE],
        cells: |object, now| {
            vec![name(object), text(object, "/spec/holderIdentity").into(), created(object, now)]
        },
    },
    Kind {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[
            NAME,
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            AGE,
            ("PreemptionPolicy", "string", 0),
        ],
        cells: |object, now| {
            vec![
                name(object),
                integer(object, "/value").into(),
                flag(object, "/globalDefault").into(),
                created(object, now),
                text(object, "/preemptionPolicy").into(),
            ]
        },
    },
    Kind {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[NAME, ("Handler", "string", 0), AGE],
        cells: |object, now| vec![name(object), text(object, "/handler").into(), created(object, now)],
    },
    Kind { group: "resource.k8s.io", kind: "DeviceClass", columns: &[NAME, AGE], cells: name_and_age },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        columns: &[NAME, AGE],
        cells: name_and_age,
    },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        columns: &[NAME, ("State", "string", 0), AGE],
        cells: |object, now| vec![name(object), claim_state(object).into(), created(object, now)],
    },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        columns: &[NAME, ("Node", "string", 0), ("Driver", "string", 0), ("Pool", "string", 0), AGE],
        cells: |object, now| {
            vec![
                name(object),
                text(object, "/spec/nodeName").into(),
                text(object, "/spec/driver").into(),
                text(object, "/spec/pool/name").into(),
                created(object, now),
            ]
        },
    },
];

fn status(node: &Value) -> String {
    // If the node has several conditions of this type, the last one is used.
    let ready = list(node, "/status/conditions").iter().rev().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        None => "Unknown".to_string(),
        Some(condition) if condition["status"] == "True" => "Ready".to_string(),
        Some(_) => "NotReady".to_string(),
    };
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.insert(role);
        } else if key == "kubernetes.io/role" && !value.is_empty() {
            roles.insert(value);
        }
    }
    if roles.is_empty() { "<none>".to_string() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, address_type: &str) -> &'a str {
    let found = list(node, "/status/addresses").iter().find(|address| address["type"] == address_type);
    found.map_or("<none>", |address| text(address, "/address"))
}

fn claim_state(claim: &Value) -> String {
    let mut states = Vec::new();
    let is_deleting = super::is_deleting(claim);
    if is_deleting {
        states.push("deleted");
    }
    if claim.pointer("/status/allocation").is_some_and(|allocation| !allocation.is_null()) {
        states.push("allocated");
        if !list(claim, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !is_deleting {
        states.push("pending");
    }
    states.join(",")
}
