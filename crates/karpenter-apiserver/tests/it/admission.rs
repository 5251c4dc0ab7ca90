//! Compares defaults, strategies, admission plugins and validation of built-in kinds with responses of kube-apiserver
//! 1.35.4.
//!
//! Each line of `admission/recorded.jsonl` is one request: an object to create, possibly a merge patch, and the
//! response, which is an object, or code, message and causes. Uids are replaced by `UID`, times by `TIME`. A message is
//! cut off at its first line break, after which it has a diff of Go structs. The order within messages is not compared,
//! because kube-apiserver iterates over hash maps.

use std::sync::Arc;

use jiff::Timestamp;
use karpenter_apiserver::admission::{self, Lookup, Operation, Verb};
use karpenter_apiserver::status::{ApiResult, Failure};
use karpenter_apiserver::{builtin, patch};
use serde_json::{Value, json};

/// A cluster with one namespace and no other objects.
struct EmptyCluster;

impl Lookup for EmptyCluster {
    fn get(&self, group: &str, plural: &str, _namespace: &str, name: &str) -> Option<Arc<Value>> {
        ((group, plural, name) == ("", "namespaces", "default"))
            .then(|| Arc::new(json!({"status": {"phase": "Active"}})))
    }

    fn list(&self, _group: &str, _plural: &str, _namespace: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }
}

struct Case<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    plural: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Case<'_> {
    fn normalise(&self, object: &mut Value) {
        builtin::round_trip(object, self.group, self.version, self.kind);
        admission::default_object(self.group, self.version, self.kind, object);
    }

    fn admit(&self, verb: Verb, object: &mut Value, old: Option<&Value>) -> ApiResult<()> {
        let operation = Operation {
            verb,
            group: self.group,
            version: self.version,
            kind: self.kind,
            plural: self.plural,
            subresource: if old.is_some() { self.subresource } else { "" },
            namespace: self.namespace,
            name: self.name,
            old,
            now: Timestamp::UNIX_EPOCH,
        };
        admission::admit(&operation, object, &EmptyCluster)
    }

    fn refuse(&self, errors: &[karpenter_apiserver::field::FieldError]) -> ApiResult<()> {
        // Events are one kind in two groups; errors name the core group.
        let group = if self.kind == "Event" { "" } else { self.group };
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Box::new(Failure::invalid(group, self.kind, self.name, errors)))
        }
    }

    fn create(&self, mut object: Value) -> ApiResult<Value> {
        self.normalise(&mut object);
        object["metadata"]["uid"] = json!("UID");
        object["metadata"]["creationTimestamp"] = json!("TIME");
        self.admit(Verb::Create, &mut object, None)?;
        admission::prepare_create(self.group, self.version, self.kind, &mut object, Timestamp::UNIX_EPOCH);
        self.refuse(&admission::validate_create(self.group, self.version, self.kind, &object))?;
        Ok(object)
    }

    fn change(&self, mut old: Value, merge_patch: &Value) -> ApiResult<Value> {
        old["metadata"]["resourceVersion"] = json!("1");
        let mut new = patch::merge_patch(&old, merge_patch);
        self.normalise(&mut new);
        self.admit(Verb::Update, &mut new, Some(&old))?;
        let (group, version, kind) = (self.group, self.version, self.kind);
        admission::prepare_update(group, version, kind, &mut new, &old, self.subresource);
        self.refuse(&admission::validate_update(group, version, kind, &new, &old, self.subresource))?;
        Ok(new)
    }
}

fn answer(recorded: &Value) -> ApiResult<Value> {
    let text = |key: &str| recorded[key].as_str().unwrap_or_default();
    let mut object = recorded["object"].clone();
    let namespace = if recorded["namespaced"] == true { "default" } else { "" };
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
    let case = Case {
        group: text("group"),
        version: text("version"),
        kind: text("kind"),
        plural: text("plural"),
        subresource: text("subresource"),
        namespace,
        name: &name,
    };
    let created = case.create(object)?;
    if recorded["patch"].is_null() { Ok(created) } else { case.change(created, &recorded["patch"]) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn sorted(text: &str) -> Vec<char> {
    let mut characters: Vec<char> = text.chars().collect();
    characters.sort_unstable();
    characters
}

/// How the response differs from the recorded one; `None` if it does not.
fn difference(recorded: &Value) -> Option<String> {
    let ours = answer(recorded);
    match (&ours, recorded["code"].as_u64()) {
        (Ok(object), None) => {
            let mut object = object.clone();
            for key in ["managedFields", "resourceVersion", "uid", "creationTimestamp"] {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove(key);
                }
            }
            let shown = object.to_string().replace("1970-01-01T00:00:00Z", "TIME");
            let expected = recorded["answer"].to_string();
            (shown != expected).then(|| format!("ours {shown}\nreal {expected}"))
        }
        (Err(failure), Some(code)) => {
            let mut causes: Vec<Value> = failure
                .causes
                .iter()
                .map(|cause| json!([cause.field.as_deref().unwrap_or_default(), first_line(&cause.message)]))
                .collect();
            let mut expected: Vec<Value> = recorded["causes"].as_array().cloned().unwrap_or_default();
            causes.sort_by_key(Value::to_string);
            expected.sort_by_key(Value::to_string);
            let message = recorded["message"].as_str().unwrap_or_default();
            let is_equal = u64::from(failure.code) == code
                && sorted(first_line(&failure.message)) == sorted(message)
                && causes == expected;
            (!is_equal).then(|| {
                format!(
                    "ours {} {}\nreal {code} {message}\n{causes:?}\n{expected:?}",
                    failure.code, failure.message
                )
            })
        }
        (Ok(object), Some(_)) => Some(format!("ours {object}\nreal {}", recorded["message"])),
        (Err(failure), None) => Some(format!("ours {}\nreal {}", failure.message, recorded["answer"])),
    }
}

#[test]
fn responses_match_recorded_ones() {
    let recorded: Vec<Value> = include_str!("../admission/recorded.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is a JSON object"))
        .collect();
    assert!(recorded.len() > 400, "the table was read");
    let differences: Vec<String> = recorded
        .iter()
        .filter_map(|case| {
            Some(format!("{} {} {}\n{}", case["kind"], case["object"], case["patch"], difference(case)?))
        })
        .collect();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n\n"));
}
