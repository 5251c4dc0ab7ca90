//! Masks what may differ between two correct servers: uids, times, revisions, generated names, continue tokens and
//! addresses. Identity is preserved: each object keeps its label, and its revisions are numbered. So an update that
//! writes although it must not, or a delete that does not although it must, is still detected.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+[smhdy])+( ago)?$"));
/// The name of the volume with the service account token, which ends with a random suffix.
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| pattern("kube-api-access-[a-z0-9]{5}"));
static REVISION_IN_TEXT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(?i)(resource ?version[a-z :,\\"]*?:? ?|current: )\(?([1-9]\d*)\)?( \(\d+\))?"#)
});
/// Where the scheme is defined in the Go source, which messages state.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| pattern(r#"in scheme \\?"[^"]*""#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("pattern {text}: {error}"))
}

/// The labels (in place of uids) and the numbers of revisions that were assigned in earlier responses of the script.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    uid_labels: BTreeMap<String, String>,
    /// For each object name: how many uids it has had.
    uids_per_name: BTreeMap<String, usize>,
    /// For each uid: its revisions in order.
    revisions: BTreeMap<String, Vec<String>>,
    generated_names: BTreeMap<String, String>,
    generated_per_prefix: BTreeMap<String, usize>,
}

impl Masks {
    pub(crate) fn apply(&mut self, answer: &mut Value) {
        self.learn(answer);
        self.mask(answer, "");
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                if let Some(Value::Object(metadata)) = fields.get("metadata") {
                    self.learn_object(metadata);
                }
                fields.values().for_each(|field| self.learn(field));
            }
            _ => {}
        }
    }

    fn learn_object(&mut self, metadata: &Map<String, Value>) {
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (uid, prefix, mut name) = (text("uid"), text("generateName"), text("name"));
        if !prefix.is_empty() && name.starts_with(&prefix) && name.len() > prefix.len() {
            if !self.generated_names.contains_key(&name) {
                let count = self.generated_per_prefix.entry(prefix.clone()).or_default();
                *count += 1;
                self.generated_names.insert(name.clone(), format!("{prefix}<generated {count}>"));
            }
            name = self.generated_names[&name].clone();
        }
        if !uid.is_empty() && !self.uid_labels.contains_key(&uid) {
            let count = self.uids_per_name.entry(name.clone()).or_default();
            *count += 1;
            let label =
                if *count == 1 { format!("<uid of {name}>") } else { format!("<uid {count} of {name}>") };
            self.uid_labels.insert(uid, label);
        }
    }

    fn mask(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::Array(items) => {
                for item in items.iter_mut() {
                    self.mask(item, key);
                }
                // Entries are sorted by time, and only those of the same second by name, so their order is random.
                if key == "managedFields" {
                    items.sort_by_key(|entry| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|field| entry[field].to_string())
                    });
                }
            }
            Value::Object(fields) => {
                let uid = fields.get("uid").and_then(Value::as_str).map(str::to_owned);
                if let Some(Value::String(revision)) = fields.get_mut("resourceVersion") {
                    *revision = self.revision(uid.as_deref(), revision);
                }
                for (name, field) in fields.iter_mut() {
                    if name != "resourceVersion" || !field.is_string() {
                        self.mask(field, name);
                    }
                }
            }
            Value::String(text) => *text = self.text(text, key),
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => *value = "<port>".into(),
            _ => {}
        }
    }

    fn revision(&mut self, uid: Option<&str>, revision: &str) -> String {
        let Some(uid) = uid else {
            return if revision.is_empty() || revision == "0" {
                revision.to_owned()
            } else {
                "<revision>".to_owned()
            };
        };
        let seen = self.revisions.entry(uid.to_owned()).or_default();
        let position = seen.iter().position(|known| known == revision).unwrap_or_else(|| {
            seen.push(revision.to_owned());
            seen.len() - 1
        });
        format!("<revision {}>", position + 1)
    }

    fn text(&self, text: &str, key: &str) -> String {
        match key {
            "continue" if !text.is_empty() => return "<continue>".to_owned(),
            "clusterIP" | "clusterIPs" if !text.is_empty() && text != "None" => {
                return "<address>".to_owned();
            }
            "serverAddress" => return "<address>".to_owned(),
            "cells" if AGE.is_match(text) => return "<age>".to_owned(),
            _ => {}
        }
        let mut text = UID
            .replace_all(text, |found: &Captures<'_>| {
                self.uid_labels.get(&found[0]).cloned().unwrap_or_else(|| "<uid>".to_owned())
            })
            .into_owned();
        for (name, label) in &self.generated_names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), label);
            }
        }
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<generated>");
        let text = TIME.replace_all(&text, |found: &Captures<'_>| match found.get(1) {
            Some(_) => "<time with fraction>".to_owned(),
            None => "<time>".to_owned(),
        });
        let text = SCHEME.replace_all(&text, "in scheme <place>");
        let text = without_quoted_managers(&text);
        REVISION_IN_TEXT
            .replace_all(&text, |found: &Captures<'_>| match found.get(3) {
                Some(_) => format!("{}<revision> (<revision>)", &found[1]),
                None => format!("{}<revision>", &found[1]),
            })
            .into_owned()
    }
}

/// Removes the managed fields from an object that a message quotes. Their order is random (see `mask`), and within a
/// message they cannot be sorted.
fn without_quoted_managers(text: &str) -> String {
    const OPENING: &str = r#"\"managedFields\":["#;
    let Some(start) = text.find(OPENING).map(|found| found + OPENING.len()) else { return text.to_owned() };
    let mut depth = 1_usize;
    let end = text[start..].find(|character| {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    match end {
        Some(length) => format!("{}<managers>{}", &text[..start], &text[start + length..]),
        None => text.to_owned(),
    }
}
