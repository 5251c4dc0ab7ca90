//! Scripts, which describe steps as data. A step makes a request, or reads events from a watch that an earlier step
//! opened.
//!
//! `${name}` is replaced by a value that was captured from an earlier response. A string that consists only of
//! `${name}` becomes the captured value with its type. `for` repeats a step for each item, whose value replaces
//! `${item}` and `${item.field}`.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, folder};

/// The area of the server that a step tests, by which reports are grouped.
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
    /// A description, which is written for readers of the file and not used here.
    #[allow(dead_code)]
    about: String,
    area: Area,
    steps: Vec<Step>,
}

/// A step in the form in which the file has it.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) area: Option<Area>,
    /// Whether earlier writes must have reached the caches that admission reads. kube-apiserver's caches are some
    /// milliseconds behind, so the runner waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) settle: bool,
    /// The request, as `METHOD /path?query`. The runner escapes the values in the query.
    #[serde(default)]
    pub(crate) request: Option<String>,
    /// The content type: `json`, `merge`, `strategic`, `patch`, `apply`, `protobuf`, or a full media type.
    #[serde(default, rename = "type")]
    pub(crate) content_type: Option<String>,
    /// The `Accept` header: `table`, `metadata`, `metadata-list`, `aggregated`, `protobuf`, or a full list of media
    /// types.
    #[serde(default)]
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// The body as text, if it is malformed or not JSON.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// The name of a body in `fixtures/`, which is in hexadecimal.
    #[serde(default)]
    pub(crate) fixture: Option<String>,
    /// The variables to capture, each with a JSON pointer into the response.
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    /// The parts of the response to compare, for large documents: JSON pointers in which a segment `[field=value]`
    /// selects a list item.
    #[serde(default)]
    pub(crate) pick: Vec<String>,
    /// The parts of the response not to compare, in the same syntax as `pick`.
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
    /// Whether the server reports several errors in an undefined order (because of Go's maps), so that they are sorted
    /// before the comparison.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unordered: bool,
    /// Keeps the response open, as a watch with this name.
    #[serde(default)]
    pub(crate) watch: Option<String>,
    /// Reads `events` events from the watch with this name; without `events`, reads until the watch ends.
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

/// A script after its repeated steps were expanded.
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
    /// A hash of everything that the response depends on. It prevents that a recorded response is compared with the
    /// response to another request.
    pub(crate) fn fingerprint(&self) -> String {
        let mut step = self.clone();
        step.area = None;
        let text = serde_json::to_string(&step).unwrap_or_default();
        // The hash is FNV-1a, which is the same on all platforms and in all versions.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// A short description of what the step does.
    pub(crate) fn action(&self) -> String {
        match (&self.request, &self.collect, &self.close) {
            (Some(request), ..) => request.clone(),
            (_, Some(watch), _) => format!("collect {watch}"),
            (_, _, Some(watch)) => format!("close {watch}"),
            _ => String::from("nothing"),
        }
    }
}

/// All scripts, sorted by name.
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
    // As in Kubernetes, `y` and `no` are strings.
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

/// Replaces `${name}` everywhere in the value. A name that is unknown is left for a later substitution.
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
