//! Validation of containers: names, images, ports, environment, mounts, probes and resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Errors, check_nonnegative, not_found, quantities, text};
use crate::admission::json::{integer, is_set, items, text as string};
use crate::field::FieldError;

pub(super) fn check_containers(spec: &Value, volumes: &BTreeSet<&str>, path: &str, errors: &mut Errors) {
    let containers = items(&spec["containers"]);
    let list = format!("{path}.containers");
    if containers.is_empty() {
        errors.push(FieldError::required(&list, ""));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let own = format!("{list}[{index}]");
        check_common(container, volumes, &own, errors);
        if !names.insert(string(&container["name"])) {
            errors.push(FieldError::duplicate(format!("{own}.name"), container["name"].clone()));
        }
        check_lifecycle(container, &own, errors);
        check_probes(container, &own, errors);
    }
    check_host_ports(containers, 0, &list, errors);
    check_init_containers(spec, names, volumes, path, errors);
}

fn check_init_containers<'a>(
    spec: &'a Value,
    mut names: BTreeSet<&'a str>,
    volumes: &BTreeSet<&str>,
    path: &str,
    errors: &mut Errors,
) {
    let list = format!("{path}.initContainers");
    for (index, container) in items(&spec["initContainers"]).iter().enumerate() {
        let own = format!("{list}[{index}]");
        check_common(container, volumes, &own, errors);
        let policy = string(&container["restartPolicy"]);
        if is_set(&container["restartPolicy"]) && !matches!(policy, "Always" | "Never" | "OnFailure") {
            let supported = ["Always", "Never", "OnFailure"];
            errors.push(FieldError::not_supported(format!("{own}.restartPolicy"), json!(policy), &supported));
        }
        let name = string(&container["name"]);
        if names.contains(name) {
            errors.push(FieldError::duplicate(format!("{own}.name"), json!(name)));
        } else if !name.is_empty() {
            names.insert(name);
        }
        check_host_ports(std::slice::from_ref(container), 0, &list, errors);
        if policy == "Always" {
            check_lifecycle(container, &own, errors);
            check_probes(container, &own, errors);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if is_set(&container[key]) {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    errors.push(FieldError::forbidden(format!("{own}.{key}"), why));
                }
            }
        }
    }
}

pub(super) fn check_common(container: &Value, volumes: &BTreeSet<&str>, path: &str, errors: &mut Errors) {
    let name = string(&container["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        for problem in text::label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), json!(name), problem));
        }
    }
    if string(&container["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    check_choice(
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
        &format!("{path}.terminationMessagePolicy"),
        errors,
    );
    check_ports(&container["ports"], &format!("{path}.ports"), errors);
    check_environment(container, path, errors);
    check_mounts(container, volumes, path, errors);
    check_choice(
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
        &format!("{path}.imagePullPolicy"),
        errors,
    );
    quantities::check_requirements(&container["resources"], &format!("{path}.resources"), errors);
}

/// Checks that a required value is one of `choices`.
pub(super) fn check_choice(value: &Value, choices: &[&str], path: &str, errors: &mut Errors) {
    match string(value) {
        "" => errors.push(FieldError::required(path, "")),
        given if !choices.contains(&given) => {
            errors.push(FieldError::not_supported(path, value.clone(), choices))
        }
        _ => {}
    }
}

fn check_ports(ports: &Value, path: &str, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, port) in items(ports).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let name = string(&port["name"]);
        if !name.is_empty() {
            let problems = text::port_name(name);
            if problems.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{own}.name"), json!(name)));
            }
            for problem in problems {
                errors.push(FieldError::invalid(format!("{own}.name"), json!(name), problem));
            }
        }
        match integer(&port["containerPort"]).unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{own}.containerPort"), "")),
            number => {
                if let Some(problem) = text::port_number(number) {
                    errors.push(FieldError::invalid(format!("{own}.containerPort"), json!(number), problem));
                }
            }
        }
        let host_port = integer(&port["hostPort"]).unwrap_or(0);
        if host_port != 0
            && let Some(problem) = text::port_number(host_port)
        {
            errors.push(FieldError::invalid(format!("{own}.hostPort"), json!(host_port), problem));
        }
        check_choice(&port["protocol"], &["SCTP", "TCP", "UDP"], &format!("{own}.protocol"), errors);
    }
}

fn check_host_ports(containers: &[Value], first: usize, path: &str, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (position, port) in items(&container["ports"]).iter().enumerate() {
            let number = integer(&port["hostPort"]).unwrap_or(0);
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", string(&port["protocol"]), string(&port["hostIP"]));
            if !taken.insert(key.clone()) {
                let own = format!("{path}[{}].ports[{position}].hostPort", index + first);
                errors.push(FieldError::duplicate(own, json!(key)));
            }
        }
    }
}

const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
const FIELD_PATHS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn check_environment(container: &Value, path: &str, errors: &mut Errors) {
    for (index, variable) in items(&container["env"]).iter().enumerate() {
        let own = format!("{path}.env[{index}]");
        let name = string(&variable["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{own}.name"), ""));
        }
        for problem in text::environment_name(name) {
            errors.push(FieldError::invalid(format!("{own}.name"), json!(name), problem));
        }
        let source = &variable["valueFrom"];
        if !is_set(source) {
            continue;
        }
        let own = format!("{own}.valueFrom");
        let field = string(&source["fieldRef"]["fieldPath"]);
        if is_set(&source["fieldRef"]) {
            let is_subscript =
                field.starts_with("metadata.labels['") || field.starts_with("metadata.annotations['");
            if field.is_empty() {
                errors.push(FieldError::required(format!("{own}.fieldRef.fieldPath"), ""));
            } else if matches!(field, "metadata.labels" | "metadata.annotations") {
                let path = format!("{own}.fieldRef.fieldPath");
                errors.push(FieldError::not_supported(path, json!(field), &FIELD_PATHS));
            } else if !is_subscript && !FIELD_PATHS.contains(&field) {
                let why = format!("error converting fieldPath: field label not supported: {field}");
                errors.push(FieldError::invalid(format!("{own}.fieldRef.fieldPath"), json!(field), why));
            }
        }
        for reference in ["configMapKeyRef", "secretKeyRef"] {
            if is_set(&source[reference]) {
                check_key_reference(&source[reference], &format!("{own}.{reference}"), errors);
            }
        }
        let count = SOURCES.iter().filter(|key| is_set(&source[**key])).count();
        let problem = if count == 0 {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else if !string(&variable["value"]).is_empty() {
            "may not be specified when `value` is not empty"
        } else if count > 1 {
            "may not have more than one field specified at a time"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(own, json!(""), problem));
    }
}

/// Validates a reference to a key of a ConfigMap or Secret.
fn check_key_reference(reference: &Value, path: &str, errors: &mut Errors) {
    let (name, key) = (string(&reference["name"]), string(&reference["key"]));
    for problem in text::subdomain(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), json!(name), problem));
    }
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), ""));
    } else {
        for problem in text::config_key(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), json!(key), problem));
        }
    }
}

fn check_mounts(container: &Value, volumes: &BTreeSet<&str>, path: &str, errors: &mut Errors) {
    let mut places = BTreeSet::new();
    for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
        let own = format!("{path}.volumeMounts[{index}]");
        let name = string(&mount["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{own}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(not_found(format!("{own}.name"), &json!(name)));
        }
        let place = string(&mount["mountPath"]);
        if place.is_empty() {
            errors.push(FieldError::required(format!("{own}.mountPath"), ""));
        }
        if !places.insert(place) {
            errors.push(FieldError::invalid(format!("{own}.mountPath"), json!(place), "must be unique"));
        }
    }
    for (index, device) in items(&container["volumeDevices"]).iter().enumerate() {
        let own = format!("{path}.volumeDevices[{index}]");
        let name = string(&device["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{own}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(not_found(format!("{own}.name"), &json!(name)));
        }
        if string(&device["devicePath"]).is_empty() {
            errors.push(FieldError::required(format!("{own}.devicePath"), ""));
        }
    }
}

fn check_lifecycle(container: &Value, path: &str, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        if is_set(&container["lifecycle"][hook]) {
            check_handler(&container["lifecycle"][hook], &format!("{path}.lifecycle.{hook}"), errors);
        }
    }
}

fn check_probes(container: &Value, path: &str, errors: &mut Errors) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if !is_set(probe) {
            continue;
        }
        let own = format!("{path}.{kind}");
        check_handler(probe, &own, errors);
        for key in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            check_nonnegative(&probe[key], &format!("{own}.{key}"), errors);
        }
        if let Some(seconds) = integer(&probe["terminationGracePeriodSeconds"]) {
            let own = format!("{own}.terminationGracePeriodSeconds");
            if kind == "readinessProbe" {
                errors.push(FieldError::invalid(own, json!(seconds), "must not be set for readinessProbes"));
            } else if seconds <= 0 {
                errors.push(FieldError::invalid(own, json!(seconds), "must be greater than 0"));
            }
        }
        let threshold = integer(&probe["successThreshold"]).unwrap_or(0);
        if kind != "readinessProbe" && threshold != 1 {
            errors.push(FieldError::invalid(
                format!("{own}.successThreshold"),
                json!(threshold),
                "must be 1",
            ));
        }
    }
}

fn check_handler(handler: &Value, path: &str, errors: &mut Errors) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[kind];
        if !is_set(action) {
            continue;
        }
        found += 1;
        let own = format!("{path}.{kind}");
        if found > 1 {
            errors.push(FieldError::forbidden(own, "may not specify more than 1 handler type"));
            continue;
        }
        match kind {
            "exec" if items(&action["command"]).is_empty() => {
                errors.push(FieldError::required(format!("{own}.command"), ""));
            }
            "httpGet" => {
                check_port(&action["port"], &format!("{own}.port"), errors);
                if !matches!(string(&action["scheme"]), "HTTP" | "HTTPS") {
                    let supported = ["HTTP", "HTTPS"];
                    let scheme = json!(string(&action["scheme"]));
                    errors.push(FieldError::not_supported(format!("{own}.scheme"), scheme, &supported));
                }
            }
            "tcpSocket" => check_port(&action["port"], &format!("{own}.port"), errors),
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// Validates a port, which is a number or a name.
pub(super) fn check_port(port: &Value, path: &str, errors: &mut Errors) {
    match port {
        Value::String(name) => {
            for problem in text::port_name(name) {
                errors.push(FieldError::invalid(path, json!(name), problem));
            }
        }
        _ => {
            let number = integer(port).unwrap_or(0);
            if let Some(problem) = text::port_number(number) {
                errors.push(FieldError::invalid(path, json!(number), problem));
            }
        }
    }
}
