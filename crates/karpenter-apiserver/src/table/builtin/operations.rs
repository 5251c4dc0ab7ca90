//! The columns of control plane kinds: flow control, certificates, IP addresses and API services.

use serde_json::Value;

use super::{AGE, Kind, NAME, created, integer, list, name, plain, text, text_or};
use crate::table::human_duration;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        columns: &[
            NAME,
            ("PriorityLevel", "string", 0),
            ("MatchingPrecedence", "string", 0),
            ("DistinguisherMethod", "string", 0),
            AGE,
            ("MissingPL", "string", 0),
        ],
        cells: |object, now| {
            let dangling =
                list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Dangling");
            vec![
                name(object),
                text(object, "/spec/priorityLevelConfiguration/name").into(),
                integer(object, "/spec/matchingPrecedence").into(),
                text_or(object, "/spec/distinguisherMethod/type", "<none>").into(),
                created(object, now),
                dangling.map_or("?", |condition| text(condition, "/status")).into(),
            ]
        },
    },
    Kind {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            ("Type", "string", 0),
            ("NominalConcurrencyShares", "string", 0),
            ("Queues", "string", 0),
            ("HandSize", "string", 0),
            ("QueueLengthLimit", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let number = |path: &str| {
                let found = object.pointer(&format!("/spec/limited/{path}"));
                found.cloned().unwrap_or_else(|| Value::from("<none>"))
            };
            vec![
                name(object),
                text(object, "/spec/type").into(),
                number("nominalConcurrencyShares"),
                number("limitResponse/queuing/queues"),
                number("limitResponse/queuing/handSize"),
                number("limitResponse/queuing/queueLengthLimit"),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            ("SignerName", "string", 0),
            ("Requestor", "string", 0),
            ("RequestedDuration", "string", 0),
            ("Condition", "string", 0),
        ],
        cells: |object, now| {
            let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
            vec![
                name(object),
                created(object, now),
                text_or(object, "/spec/signerName", "<none>").into(),
                text(object, "/spec/username").into(),
                seconds.map_or_else(|| "<none>".to_string(), human_duration).into(),
                request_state(object).into(),
            ]
        },
    },
    Kind {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[NAME, ("CIDRs", "string", 0), AGE],
        cells: |object, now| {
            let ranges: Vec<String> = list(object, "/spec/cidrs").iter().map(plain).collect();
            vec![name(object), ranges.join(",").into(), created(object, now)]
        },
    },
    Kind {
        group: "networking.k8s.io",
        kind: "IPAddress",
        columns: &[NAME, ("ParentRef", "string", 0)],
        // kube-apiserver returns one cell more than there are columns, and so does this function.
        cells: |object, now| vec![name(object), parent(object).into(), created(object, now)],
    },
    Kind {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[NAME, ("Service", "string", 0), ("Available", "string", 0), AGE],
        cells: |object, now| {
            let service = match (text(object, "/spec/service/namespace"), text(object, "/spec/service/name"))
            {
                (_, "") => "Local".to_string(),
                (namespace, service) => format!("{namespace}/{service}"),
            };
            vec![name(object), service.into(), available(object).into(), created(object, now)]
        },
    },
];

fn request_state(request: &Value) -> String {
    let has =
        |name: &str| list(request, "/status/conditions").iter().any(|condition| condition["type"] == name);
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_string();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

fn parent(address: &Value) -> String {
    let Some(parent) = address.pointer("/spec/parentRef").filter(|parent| parent.is_object()) else {
        return "<none>".to_string();
    };
    let parts = ["/group", "/namespace"].map(|field| text(parent, field));
    let group = if parts[0].is_empty() { String::new() } else { format!(".{}", parts[0]) };
    let namespace = if parts[1].is_empty() { String::new() } else { format!("/{}", parts[1]) };
    format!("{}{group}{namespace}/{}", text(parent, "/resource"), text(parent, "/name"))
}

/// Whether an API service is available; if it is not, with the reason.
fn available(service: &Value) -> String {
    let conditions = list(service, "/status/conditions");
    let Some(condition) = conditions.iter().find(|condition| condition["type"] == "Available") else {
        return "Unknown".to_string();
    };
    match (text(condition, "/status"), text(condition, "/reason")) {
        ("True", _) => "True".to_string(),
        (status, "") => status.to_string(),
        (status, reason) => format!("{status} ({reason})"),
    }
}
