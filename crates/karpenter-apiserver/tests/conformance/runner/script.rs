//! Scripts: steps as data. A step is a request, or reads events from a watch that an earlier step opened.
//!
//! `${name}` is replaced by a value captured from an earlier response. A string that consists of `${name}` only becomes
//! the captured value with its type. `for` repeats a step for each item; `${item}` and `${item.field}` are replaced by
//! the item.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, folder};

/// The area of the server that a step tests; reports are grouped by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Area {
    Core,
    Merge,
    Crd,
    Admission,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Documentation in the file; not used.
    #[allow(dead_code)]
    about: String,
    area: Area,
    steps: Vec<Step>,
}

/// A step as written in the file.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) area: Option<Area>,
    /// Whether earlier writes must have reached the caches that admission reads. For kube-apiserver, whose caches lag
    /// by some milliseconds, the runner waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) settle: bool,
    /// `METHOD /path?query`. Query values are not escaped; the runner escapes them.
    #[serde(default)]
    pub(crate) request: Option<String>,
    /// `json`, `merge`, `strategic`, `patch`, `apply`, `protobuf` or a full content type.
    #[serde(default, rename = "type")]
    pub(crate) content_type: Option<String>,
    /// `table`, `metadata`, `metadata-list`, `aggregated`, `protobuf` or a full list of types.
    #[serde(default)]
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// A body that is not JSON, or malformed.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// A body from `fixtures/`, in hexadecimal.
    #[serde(default)]
    pub(crate) fixture: Option<String>,
    /// Variables to capture: name and JSON pointer into the response.
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    /// The parts of the response that are compared, for large documents. JSON pointers, in which a segment
    /// `[field=value]` selects a list item.
    #[serde(default)]
    pub(crate) pick: Vec<String>,
    /// Parts of the response that are not compared; as in `pick`.
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
    /// The server reports several errors in an undefined order (Go's maps), so they are sorted before the comparison.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unordered: bool,
    /// Keeps the response open under this name.
    #[serde(default)]
    pub(crate) watch: Option<String>,
    /// Reads `events` events from the open response of this name, or all until it ends.
    #[serde(default)]
    pub(crate) collect: Option<String>,
    #[serde(default)]
    pub(crate) events: Option<usize>,
    #[serde(default)]
    pub(crate) close: Option<String>,
    /// Makes the server lose its history of changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) forget: bool,
    #[serde(default, rename = "for", skip_serializing_if = "Vec::is_empty")]
    pub(crate) items: Vec<Value>,
}

/// A script with its repeated steps expanded.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) area: Area,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    pub(crate) fn area_of(&self, step: &str) -> Area {
        self.steps
            .iter()
            .find(|candidate| candidate.name == step)
            .and_then(|step| step.area)
            .unwrap_or(self.area)
    }
}

impl Step {
    /// A hash of everything that the response depends on, so that a recorded response is not compared with another
    /// request.
    pub(crate) fn fingerprint(&self) -> String {
        let mut step = self.clone();
        step.area = None;
        let text = serde_json::to_string(&step).unwrap_or_default();
        // FNV-1a: small, and stable across platforms and versions.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// A short description of the step.
    pub(crate) fn action(&self) -> String {
        match (&self.request, &self.collect, &self.close) {
            (Some(request), ..) => request.clone(),
            (_, Some(watch), _) => format!("collect {watch}"),
            (_, _, Some(watch)) => format!("close {watch}"),
            _ => String::from("nothing"),
        }
    }
}

/// All scripts, by name.
pub(crate) fn load_all() -> Result<Vec<Script>, Error> {
    let mut scripts = Vec::new();
    for entry in fs::read_dir(folder().join("steps"))? {
        let path = entry?.path();
        let Some(name) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".yaml"))
        else {
            continue;
        };
        let text = fs::read_to_string(&path)?;
        scripts.push(parse(name, &text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

pub(crate) fn parse(name: &str, text: &str) -> Result<Script, Error> {
    // `y` and `no` are strings, as in Kubernetes.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    let mut steps = Vec::new();
    for step in file.steps {
        if step.items.is_empty() {
            steps.push(step);
            continue;
        }
        for item in &step.items {
            let variables = item_variables(item);
            let mut value = serde_json::to_value(&step)?;
            substitute(&mut value, &variables);
            let mut repeated: Step = serde_json::from_value(value)?;
            repeated.items = Vec::new();
            let label = variables.get("item.case").or_else(|| variables.get("item"));
            if !step.name.contains("${item") {
                repeated.name = format!("{} [{}]", step.name, label.map(plain_text).unwrap_or_default());
            }
            steps.push(repeated);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for step in &steps {
        if !seen.insert(step.name.clone()) {
            return Err(format!("two steps are named {:?}", step.name).into());
        }
    }
    Ok(Script { name: name.to_owned(), area: file.area, steps })
}

fn item_variables(item: &Value) -> BTreeMap<String, Value> {
    let mut variables = BTreeMap::from([(String::from("item"), item.clone())]);
    if let Value::Object(fields) = item {
        for (field, value) in fields {
            variables.insert(format!("item.{field}"), value.clone());
        }
    }
    variables
}

/// Replaces `${name}` everywhere. Unknown names are kept for a later substitution.
pub(crate) fn substitute(value: &mut Value, variables: &BTreeMap<String, Value>) {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            if let Some(found) = whole.and_then(|name| variables.get(name)) {
                *value = found.clone();
                return;
            }
            *text = substitute_text(text, variables);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, variables)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (key, mut field) in old {
                substitute(&mut field, variables);
                fields.insert(substitute_text(&key, variables), field);
            }
        }
        _ => {}
    }
}

pub(crate) fn substitute_text(text: &str, variables: &BTreeMap<String, Value>) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        let pattern = format!("${{{name}}}");
        if text.contains(&pattern) {
            text = text.replace(&pattern, &plain_text(value));
        }
    }
    text
}

fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
