//! The columns of services, configuration, events, RBAC and admission.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE, Kind, NAME, SELECTOR, count, created, integer, labels, list, name, name_and_age, plain,
    selector_or_none, text, text_or, with_more,
};
use crate::table::age;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            AGE,
            SELECTOR,
        ],
        cells: |object, now| {
            vec![
                name(object),
                text(object, "/spec/type").into(),
                text_or(object, "/spec/clusterIPs/0", "<none>").into(),
                external_ip(object).into(),
                service_ports(object).into(),
                created(object, now),
                labels(object, "/spec/selector").into(),
            ]
        },
    },
    Kind {
        group: "",
        kind: "Endpoints",
        columns: &[NAME, ("Endpoints", "string", 0), AGE],
        cells: |object, now| vec![name(object), endpoints(object).into(), created(object, now)],
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[
            NAME,
            ("AddressType", "string", 0),
            ("Ports", "string", 0),
            ("Endpoints", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let ports: Vec<String> = list(object, "/ports")
                .iter()
                .map(|port| port.get("port").or(port.get("name")).map_or_else(|| "*".to_string(), plain))
                .collect();
            let addresses: Vec<String> = list(object, "/endpoints")
                .iter()
                .flat_map(|endpoint| list(endpoint, "/addresses").iter().map(plain))
                .collect();
            let shown = |parts: &[String]| match with_more(parts, 3, ",") {
                empty if empty.is_empty() => Value::from("<unset>"),
                term => Value::from(term),
            };
            vec![
                name(object),
                text(object, "/addressType").into(),
                shown(&ports),
                shown(&addresses),
                created(object, now),
            ]
        },
    },
    Kind { group: "", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Kind { group: "events.k8s.io", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Kind {
        group: "",
        kind: "ConfigMap",
        columns: &[NAME, ("Data", "string", 0), AGE],
        cells: |object, now| {
            let entries = count(object, "/data") + count(object, "/binaryData");
            vec![name(object), entries.into(), created(object, now)]
        },
    },
    Kind {
        group: "",
        kind: "Secret",
        columns: &[NAME, ("Type", "string", 0), ("Data", "string", 0), AGE],
        cells: |object, now| {
            vec![
                name(object),
                text(object, "/type").into(),
                count(object, "/data").into(),
                created(object, now),
            ]
        },
    },
    Kind { group: "", kind: "ServiceAccount", columns: &[NAME, AGE], cells: name_and_age },
    Kind {
        group: "",
        kind: "ResourceQuota",
        columns: &[NAME, ("Request", "string", 0), ("Limit", "string", 0), AGE],
        cells: |object, now| {
            let [requests, limits] = quota(object);
            vec![name(object), requests.into(), limits.into(), created(object, now)]
        },
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        columns: BINDING_COLUMNS,
        cells: role_binding,
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        columns: BINDING_COLUMNS,
        cells: role_binding,
    },
    Kind {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[NAME, ("Pod-Selector", "string", 0), AGE],
        cells: |object, now| {
            vec![name(object), selector_or_none(object, "/spec/podSelector").into(), created(object, now)]
        },
    },
    Kind {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[
            NAME,
            ("Class", "string", 0),
            ("Hosts", "string", 0),
            ("Address", "string", 0),
            ("Ports", "string", 0),
            AGE,
        ],
        cells: |object, now| {
            let hosts: Vec<String> = list(object, "/spec/rules")
                .iter()
                .map(|rule| text(rule, "/host").to_string())
                .filter(|host| !host.is_empty())
                .collect();
            let hosts = if hosts.is_empty() { "*".to_string() } else { with_more(&hosts, 3, ",") };
            let ports = if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
            vec![
                name(object),
                text_or(object, "/spec/ingressClassName", "<none>").into(),
                hosts.into(),
                load_balancer(object).into(),
                ports.into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[NAME, ("Controller", "string", 0), ("Parameters", "string", 0), AGE],
        cells: |object, now| {
            let parameters = match object.pointer("/spec/parameters").filter(|found| found.is_object()) {
                None => "<none>".to_string(),
                Some(found) => {
                    let group = text(found, "/apiGroup");
                    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                    format!("{}{group}/{}", text(found, "/kind"), text(found, "/name"))
                }
            };
            vec![
                name(object),
                text(object, "/spec/controller").into(),
                parameters.into(),
                created(object, now),
            ]
        },
    },
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "MutatingWebhookConfiguration",
        columns: &[NAME, ("Webhooks", "integer", 0), AGE],
        cells: webhooks,
    },
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingWebhookConfiguration",
        columns: &[NAME, ("Webhooks", "integer", 0), AGE],
        cells: webhooks,
    },
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicy",
        columns: &[NAME, ("Validations", "integer", 0), ("ParamKind", "string", 0), AGE],
        cells: |object, now| {
            let kind = match object.pointer("/spec/paramKind").filter(|found| found.is_object()) {
                Some(found) => format!("{}/{}", text(found, "/apiVersion"), text(found, "/kind")),
                None => "<unset>".to_string(),
            };
            vec![name(object), count(object, "/spec/validations").into(), kind.into(), created(object, now)]
        },
    },
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicyBinding",
        columns: &[NAME, ("PolicyName", "string", 0), ("ParamRef", "string", 0), AGE],
        cells: |object, now| {
            let parameter =
                match (text(object, "/spec/paramRef/namespace"), text(object, "/spec/paramRef/name")) {
                    (_, "") => "<unset>".to_string(),
                    ("", parameter) => format!("*/{parameter}"),
                    (namespace, parameter) => format!("{namespace}/{parameter}"),
                };
            vec![
                name(object),
                text(object, "/spec/policyName").into(),
                parameter.into(),
                created(object, now),
            ]
        },
    },
];

const EVENT_COLUMNS: &[super::Column] = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Subobject", "string", 1),
    ("Source", "string", 1),
    ("Message", "string", 0),
    ("First Seen", "string", 1),
    ("Count", "string", 1),
    ("Name", "string", 1),
];

const BINDING_COLUMNS: &[super::Column] = &[
    NAME,
    ("Role", "string", 0),
    AGE,
    ("Users", "string", 1),
    ("Groups", "string", 1),
    ("ServiceAccounts", "string", 1),
];

/// The cells of an Event. Some fields have different names in core Events and in those of `events.k8s.io`.
fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let time = |pointers: &[&str]| {
        let found = pointers.iter().find(|pointer| !text(event, pointer).is_empty());
        found.map_or_else(|| "<unknown>".to_string(), |pointer| age(event, pointer, now))
    };
    let first = time(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let is_series = event.pointer("/series").is_some_and(|series| series.is_object());
    let (last, times) = if is_series {
        (age(event, "/series/lastObservedTime", now), integer(event, "/series/count"))
    } else {
        let last = ["/lastTimestamp", "/deprecatedLastTimestamp"];
        let last = match last.iter().find(|pointer| !text(event, pointer).is_empty()) {
            Some(pointer) => age(event, pointer, now),
            None => first.clone(),
        };
        (last, (integer(event, "/count") + integer(event, "/deprecatedCount")).max(1))
    };
    let about = if event.get("involvedObject").is_some() { "/involvedObject" } else { "/regarding" };
    let about = |field: &str| text(event, &format!("{about}/{field}"));
    let kind = about("kind").to_lowercase();
    let target = if about("name").is_empty() { kind } else { format!("{kind}/{}", about("name")) };
    let message = format!("{}{}", text(event, "/message"), text(event, "/note"));
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target.into(),
        about("fieldPath").into(),
        event_source(event).into(),
        message.trim().into(),
        first.into(),
        times.into(),
        name(event),
    ]
}

fn event_source(event: &Value) -> String {
    let first = |pointers: &[&str]| {
        pointers
            .iter()
            .map(|pointer| text(event, pointer))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    };
    let component = first(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    match first(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_string(),
        instance => format!("{component}, {instance}"),
    }
}

fn external_ip(service: &Value) -> String {
    let given: Vec<&str> = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    let given = given.join(",");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" if given.is_empty() => "<none>".to_string(),
        "ClusterIP" | "NodePort" => given,
        "LoadBalancer" => match (load_balancer(service), given) {
            (balanced, given) if balanced.is_empty() && given.is_empty() => "<pending>".to_string(),
            (balanced, given) if given.is_empty() => balanced,
            (balanced, given) if balanced.is_empty() => given,
            (balanced, given) => format!("{balanced},{given}"),
        },
        "ExternalName" => text(service, "/spec/externalName").to_string(),
        _ => "<unknown>".to_string(),
    }
}

fn load_balancer(object: &Value) -> String {
    let mut points: Vec<&str> = list(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|point| text_or(point, "/ip", text(point, "/hostname")))
        .filter(|point| !point.is_empty())
        .collect();
    points.sort_unstable();
    points.dedup();
    points.join(",")
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let node_port = integer(port, "/nodePort");
            let node_port = if node_port > 0 { format!(":{node_port}") } else { String::new() };
            format!("{}{node_port}/{}", integer(port, "/port"), text(port, "/protocol"))
        })
        .collect();
    if ports.is_empty() { "<none>".to_string() } else { ports.join(",") }
}

fn endpoints(object: &Value) -> String {
    let subsets = list(object, "/subsets");
    if subsets.is_empty() {
        return "<none>".to_string();
    }
    let mut parts = Vec::new();
    for subset in subsets {
        let addresses = || list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            parts.extend(addresses().map(str::to_string));
        }
        for port in ports {
            let port = integer(port, "/port");
            parts.extend(addresses().map(|address| {
                if address.contains(':') {
                    format!("[{address}]:{port}")
                } else {
                    format!("{address}:{port}")
                }
            }));
        }
    }
    with_more(&parts, 3, ",")
}

/// Two cells of a ResourceQuota with used and hard quantities: the first for requests and all other resources, the
/// second for limits.
fn quota(object: &Value) -> [String; 2] {
    let mut columns = [Vec::new(), Vec::new()];
    for (resource, hard) in object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten() {
        let used = object.pointer("/status/used").and_then(|used| used.get(resource));
        let used = used.map_or_else(|| "0".to_string(), plain);
        let column = usize::from(resource.starts_with("limits."));
        columns[column].push(format!("{resource}: {used}/{}", plain(hard)));
    }
    columns.map(|parts| parts.join(", "))
}

fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = list(object, "/subjects")
            .iter()
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match (kind, text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_string(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        name(object),
        format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into(),
        created(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), count(object, "/webhooks").into(), created(object, now)]
}
