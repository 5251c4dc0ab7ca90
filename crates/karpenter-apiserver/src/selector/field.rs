//! Field selectors such as `metadata.name=web,status.phase!=Running`.
//!
//! A selector can use only the selectable fields of a kind. Their values are extracted when an object is stored.
//!
//! Upstream: k8s.io/apimachinery/pkg/fields/selector.go

use std::borrow::Cow;

use serde_json::Value;

use crate::store::Entry;

/// A field that field selectors can use.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectableField {
    pub name: String,
    /// Alternative paths to the value. The first path with a value that is not empty is used.
    pub paths: Vec<Vec<String>>,
    /// The value of the field if no path has a value.
    pub default: String,
}

/// How the error message for an unsupported field is worded, which depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq)]
enum UnsupportedFieldMessage {
    /// The wording for kinds that have no selectable fields of their own.
    MetadataOnly,
    Plain,
    Job,
    ResourceSlice,
}

/// All selectable fields of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectableFields {
    fields: Vec<SelectableField>,
    /// Fields that have another name in another version of the kind, as (requested name, stored name).
    aliases: Vec<(String, String)>,
    has_namespace: bool,
    unsupported_message: UnsupportedFieldMessage,
}

impl SelectableFields {
    pub fn metadata_only() -> Self {
        Self {
            fields: Vec::new(),
            aliases: Vec::new(),
            has_namespace: true,
            unsupported_message: UnsupportedFieldMessage::MetadataOnly,
        }
    }

    /// The selectable fields of a custom resource, given as JSON paths such as `.spec.color`.
    pub fn custom(namespaced: bool, paths: &[String]) -> Self {
        let fields = paths
            .iter()
            .map(|path| {
                let name = path.trim_start_matches('.').to_string();
                let paths = vec![steps(&name)];
                SelectableField { name, paths, default: String::new() }
            })
            .collect();
        Self {
            fields,
            aliases: Vec::new(),
            has_namespace: namespaced,
            unsupported_message: UnsupportedFieldMessage::Plain,
        }
    }

    /// The selectable fields of a built-in kind.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Self {
        let plain = |names: &[&str]| Self {
            fields: names.iter().map(|name| field(name)).collect(),
            aliases: Vec::new(),
            has_namespace: true,
            unsupported_message: UnsupportedFieldMessage::Plain,
        };
        let cluster = |names: &[&str]| Self { has_namespace: false, ..plain(names) };
        match (group, kind) {
            ("", "Pod") => Self {
                aliases: vec![("spec.host".into(), "spec.nodeName".into())],
                ..plain(&[
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.serviceAccountName",
                    "spec.hostNetwork",
                    "status.phase",
                    "status.podIP",
                    "status.nominatedNodeName",
                ])
            },
            ("", "Node") => cluster(&["spec.unschedulable"]),
            ("", "ReplicationController") => plain(&["status.replicas"]),
            ("", "Namespace") => cluster(&["status.phase"]),
            ("", "Secret") => plain(&["type"]),
            ("", "Service") => plain(&["spec.clusterIP", "spec.type"]),
            ("", "Event") => plain(EVENT_FIELDS),
            ("events.k8s.io", "Event") => {
                let aliases = EVENT_FIELDS
                    .iter()
                    .filter_map(|name| {
                        let asked = match *name {
                            "reportingComponent" => "reportingController".to_string(),
                            other => {
                                other.strip_prefix("involvedObject.").map(|x| format!("regarding.{x}"))?
                            }
                        };
                        Some((asked, (*name).to_string()))
                    })
                    .collect();
                Self { aliases, ..plain(EVENT_FIELDS) }
            }
            ("batch", "Job") => Self {
                fields: vec![SelectableField {
                    name: "status.successful".into(),
                    paths: vec![steps("status.succeeded")],
                    default: "0".into(),
                }],
                unsupported_message: UnsupportedFieldMessage::Job,
                ..plain(&[])
            },
            ("certificates.k8s.io", "CertificateSigningRequest") => cluster(&["spec.signerName"]),
            ("resource.k8s.io", "ResourceSlice") if version == "v1" => Self {
                unsupported_message: UnsupportedFieldMessage::ResourceSlice,
                ..cluster(&["spec.nodeName", "spec.driver"])
            },
            _ => Self::metadata_only(),
        }
    }

    /// The values that an object has in the selectable fields, in the order of these fields.
    pub fn extract(&self, object: &Value) -> Box<[Box<str>]> {
        self.fields
            .iter()
            .map(|field| {
                field
                    .paths
                    .iter()
                    .filter_map(|path| at(object, path).map(text))
                    .find(|value| !value.is_empty())
                    .unwrap_or_else(|| field.default.as_str().into())
                    .into()
            })
            .collect()
    }

    fn target(&self, name: &str) -> Result<Target, String> {
        let renamed = self.aliases.iter().find(|(asked, _)| asked == name);
        // If a field has another name in this version, its name in the stored version cannot be selected.
        let hidden = renamed.is_none()
            && name != "spec.nodeName"
            && self.aliases.iter().any(|(_, stored)| stored == name);
        let stored = renamed.map_or(name, |(_, stored)| stored.as_str());
        if stored == "metadata.name" {
            return Ok(Target::Name);
        }
        if stored == "metadata.namespace" && self.has_namespace {
            return Ok(Target::Namespace);
        }
        match self.fields.iter().position(|field| field.name == stored) {
            Some(index) if !hidden => Ok(Target::Field(index)),
            _ => Err(match self.unsupported_message {
                UnsupportedFieldMessage::MetadataOnly => format!(
                    "\"{name}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
                UnsupportedFieldMessage::Plain => format!("field label not supported: {name}"),
                UnsupportedFieldMessage::Job => format!("field label \"{name}\" not supported for Job"),
                UnsupportedFieldMessage::ResourceSlice => {
                    format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {name}")
                }
            }),
        }
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

fn field(name: &str) -> SelectableField {
    let own = steps(name);
    let (paths, default) = match name {
        "spec.hostNetwork" | "spec.unschedulable" => (vec![own], "false"),
        "status.podIP" => (vec![steps("status.podIPs.0.ip"), own], ""),
        "status.replicas" => (vec![own], "0"),
        "source" => (vec![steps("source.component"), steps("reportingComponent")], ""),
        _ => (vec![own], ""),
    };
    SelectableField { name: name.into(), paths, default: default.into() }
}

fn steps(path: &str) -> Vec<String> {
    path.split('.').map(str::to_string).collect()
}

fn at<'value>(object: &'value Value, path: &[String]) -> Option<&'value Value> {
    path.iter().try_fold(object, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(_) | Value::Number(_) => Cow::Owned(value.to_string()),
        _ => Cow::Borrowed(""),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Name,
    Namespace,
    Field(usize),
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    target: Target,
    value: String,
    equal: bool,
}

/// A parsed field selector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

impl FieldSelector {
    pub fn parse(selector: &str, selectable: &SelectableFields) -> Result<Self, String> {
        let mut parts = split_terms(selector);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((name, equal, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{selector}'; can't understand '{part}'"));
            };
            let value = unescape(value)?;
            terms.push(Term { target: selectable.target(name)?, value, equal });
        }
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name that the selector requires objects to have; `None` if it requires none.
    pub fn name(&self) -> Option<&str> {
        self.required(Target::Name)
    }

    /// The namespace that the selector requires objects to have; `None` if it requires none.
    pub fn namespace(&self) -> Option<&str> {
        self.required(Target::Namespace)
    }

    fn required(&self, target: Target) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.target == target).map(|term| term.value.as_str())
    }

    pub fn matches(&self, entry: &Entry) -> bool {
        self.terms.iter().all(|term| {
            let actual = match term.target {
                Target::Name => entry.name(),
                Target::Namespace => entry.namespace(),
                Target::Field(index) => entry.field(index),
            };
            (actual == term.value) == term.equal
        })
    }
}

/// Splits a selector at commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, letter) in selector.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&selector[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let rest = &term[index..];
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else {
            (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?)
        };
        Some((&term[..index], equal, value))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{next}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                let code = u32::from(letter);
                return Err(format!("invalid field selector: unescaped character in value: {code}"));
            }
            _ => plain.push(letter),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ChangeKind, Draft};
    use serde_json::json;

    fn entry(object: &Value, selectable: &SelectableFields) -> Entry {
        Draft::new(object, selectable).commit(ChangeKind::Added, 1)
    }

    fn pod_matches(selector: &str, pod: &Value) -> bool {
        let selectable = SelectableFields::builtin("", "v1", "Pod");
        FieldSelector::parse(selector, &selectable).unwrap().matches(&entry(pod, &selectable))
    }

    #[test]
    fn pods_are_selected_by_node_and_phase() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x"},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
        assert!(pod_matches("spec.nodeName=x,status.phase!=Succeeded,status.phase!=Failed", &pod));
        assert!(pod_matches("spec.host==x", &pod));
        assert!(pod_matches("status.podIP=10.0.0.1", &pod));
        assert!(pod_matches("metadata.name=a,metadata.namespace=n", &pod));
        assert!(pod_matches("spec.hostNetwork=false", &pod));
        assert!(!pod_matches("spec.nodeName=", &pod));
        assert!(!pod_matches("status.phase!=Running", &pod));
    }

    #[test]
    fn unsupported_field_message_depends_on_kind() {
        let refused = |group: &str, kind: &str, selector: &str| {
            FieldSelector::parse(selector, &SelectableFields::builtin(group, "v1", kind)).unwrap_err()
        };
        assert_eq!(refused("", "Pod", "spec.x=1"), "field label not supported: spec.x");
        assert_eq!(
            refused("apps", "ReplicaSet", "status.replicas=1"),
            "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(refused("batch", "Job", "a=b"), "field label \"a\" not supported for Job");
        assert_eq!(
            refused("", "Node", "metadata.namespace=a"),
            "field label not supported: metadata.namespace"
        );
        assert_eq!(refused("", "Pod", "spec"), "invalid selector: 'spec'; can't understand 'spec'");
        assert_eq!(
            refused("events.k8s.io", "Event", "involvedObject.name=a"),
            "field label not supported: involvedObject.name"
        );
    }

    #[test]
    fn escaped_commas_in_values_are_supported() {
        let selectable = SelectableFields::custom(true, &[".spec.color".to_string()]);
        let object = json!({"metadata": {"name": "a"}, "spec": {"color": "a,b=c\\"}});
        let selector = FieldSelector::parse(r"spec.color=a\,b\=c\\", &selectable).unwrap();
        assert!(selector.matches(&entry(&object, &selectable)));
        assert!(FieldSelector::parse(r"spec.color=a\b", &selectable).is_err());
    }
}
