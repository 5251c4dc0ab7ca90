//! Validation of names, labels and embedded metadata, with kube-apiserver's messages.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/validation/validation.go

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::field::FieldError;

pub(crate) const DNS1035_LABEL_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
pub(crate) const DNS1123_SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_NAME_MESSAGE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

static DNS1035_LABEL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[a-z]([-a-z0-9]*[a-z0-9])?$").expect("a constant pattern"));
static DNS1123_SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        .expect("a constant pattern")
});
static QUALIFIED_PART: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").expect("a constant pattern"));

pub(crate) fn is_dns1035_label(text: &str) -> bool {
    dns1035_label_errors(text).is_empty()
}

pub(crate) fn dns1035_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push("must be no more than 63 bytes".to_string());
    }
    if !DNS1035_LABEL.is_match(text) {
        errors.push(DNS1035_LABEL_MESSAGE.to_string());
    }
    errors
}

pub(crate) fn dns1123_subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 bytes".to_string());
    }
    if !DNS1123_SUBDOMAIN.is_match(text) {
        errors.push(DNS1123_SUBDOMAIN_MESSAGE.to_string());
    }
    errors
}

fn qualified_name_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_string());
            } else {
                errors.extend(
                    dns1123_subdomain_errors(prefix).iter().map(|message| format!("prefix part {message}")),
                );
            }
            *name
        }
        _ => {
            let example = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!(
                "a qualified name {}{example}",
                &QUALIFIED_NAME_MESSAGE["name part ".len()..]
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_string());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_string());
    }
    if !QUALIFIED_PART.is_match(name) {
        errors.push(QUALIFIED_NAME_MESSAGE.to_string());
    }
    errors
}

fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push("must be no more than 63 bytes".to_string());
    }
    if !text.is_empty() && !QUALIFIED_PART.is_match(text) {
        errors.push(LABEL_VALUE_MESSAGE.to_string());
    }
    errors
}

/// Validates the metadata of an embedded resource: names, labels, annotations and finalizers.
pub(crate) fn check_metadata(metadata: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(name) = metadata.get("name").and_then(Value::as_str) {
        let detail = match name {
            "." | ".." => Some(format!("may not be '{name}'")),
            _ => ["/", "%"]
                .iter()
                .find(|part| name.contains(**part))
                .map(|part| format!("may not contain '{part}'")),
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(format!("{path}.name"), Value::from(name), detail));
        }
    }
    for (key, value) in metadata.get("labels").and_then(Value::as_object).into_iter().flatten() {
        for message in qualified_name_errors(key) {
            errors.push(FieldError::invalid(format!("{path}.labels"), Value::from(key.as_str()), message));
        }
        for message in label_value_errors(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.labels"), value.clone(), message));
        }
    }
    for (key, _) in metadata.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        for message in qualified_name_errors(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                format!("{path}.annotations"),
                Value::from(key.as_str()),
                message,
            ));
        }
    }
    for finalizer in metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        for message in qualified_name_errors(finalizer.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.finalizers"), finalizer.clone(), message));
        }
    }
}
