//! Reads manifest text into plain values: YAML streams, JSON (single, array or concatenated) and the `List` objects
//! that `kubectl get` prints, flattened to one document per object.
//!
//! Decides what is text and what is an object, never whether an object is right; file access belongs to the caller.
//! One broken YAML document does not spoil its neighbours: every document that can be read is returned, next to an
//! error for every one that cannot. Input is untrusted: nesting, alias replay and merge keys are bounded, and a key
//! given twice is an error, because the reader of a manifest cannot know which of the two was meant.

mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use tree::UniqueKeys;

/// One object of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The file name, or `-` for standard input; whatever the caller called it.
    pub source: Arc<str>,
    /// The document's number within its source, from 1.
    pub index: usize,
    /// The position within the list the object came in, from 0; `None` for a document of its own.
    pub item: Option<usize>,
    /// The line its document starts on, from 1, where known.
    pub line: Option<u64>,
    pub value: Value,
}

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: document {index}{}: {message}", source_name, line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct ManifestError {
    pub source_name: Arc<str>,
    /// The document's number within its source, from 1.
    pub index: usize,
    /// The line of the mistake, from 1, where known.
    pub line: Option<u64>,
    pub message: String,
}

/// Everything that could be read from one source, and everything that could not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    pub documents: Vec<Document>,
    pub errors: Vec<ManifestError>,
}

/// Reads all documents of a text.
pub fn read(source: &str, text: &str) -> Manifests {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { source: source.into(), manifests: Manifests::default() };
    if text.trim_start().starts_with(['{', '[']) {
        reader.read_json(text);
    } else {
        reader.read_yaml(text);
    }
    reader.manifests
}

struct Reader {
    source: Arc<str>,
    manifests: Manifests,
}

impl Reader {
    fn read_json(&mut self, text: &str) {
        let stream = serde_json::Deserializer::from_str(text).into_iter::<UniqueKeys>();
        for (position, next) in stream.enumerate() {
            let index = position + 1;
            match next {
                Ok(UniqueKeys(value)) => self.accept(index, None, value),
                Err(error) => {
                    // Flow style YAML starts with a brace too; it is only read as YAML when it is not JSON.
                    if index == 1 && error.is_syntax() && self.read_flow_yaml(text) {
                        return;
                    }
                    let line = u64::try_from(error.line()).ok().filter(|line| *line > 0);
                    self.fail(index, line, without_json_position(&error));
                    return;
                }
            }
        }
    }

    fn read_flow_yaml(&mut self, text: &str) -> bool {
        let mut attempt = Reader { source: self.source.clone(), manifests: Manifests::default() };
        attempt.read_yaml(text);
        let readable = attempt.manifests.errors.is_empty();
        if readable {
            self.manifests = attempt.manifests;
        }
        readable
    }

    fn read_yaml(&mut self, text: &str) {
        for (position, (chunk, result)) in yaml::parse_documents(text).into_iter().enumerate() {
            let index = position + 1;
            match result {
                Ok(value) => self.accept(index, Some(chunk.content_line), value),
                Err(error) => {
                    let line = error.line.map_or(chunk.content_line, |line| chunk.first_line + line - 1);
                    self.fail(index, Some(line), error.message);
                }
            }
        }
    }

    fn accept(&mut self, index: usize, line: Option<u64>, value: Value) {
        match value {
            Value::Null => {}
            Value::Object(_) if is_list(&value) => {
                let mut position = 0;
                self.flatten(index, line, value, &mut position);
            }
            Value::Object(_) => self.push(index, None, line, value),
            Value::Array(items) => {
                let mut position = 0;
                for item in items {
                    self.flatten(index, line, item, &mut position);
                }
            }
            other => {
                let found = type_name(&other);
                self.fail(index, line, format!("expected an object with apiVersion and kind, found {found}"));
            }
        }
    }

    /// Lists inside lists are what several `kubectl get` outputs merged by hand look like.
    fn flatten(&mut self, index: usize, line: Option<u64>, value: Value, position: &mut usize) {
        if !is_list(&value) {
            let item = *position;
            *position += 1;
            if value.is_object() {
                self.push(index, Some(item), line, value);
            } else {
                let found = type_name(&value);
                self.fail(index, line, format!("items[{item}]: expected an object, found {found}"));
            }
            return;
        }
        let Value::Object(mut list) = value else { return };
        let api_version = list.remove("apiVersion");
        // A typed list (PodList) may leave out what its items are; a plain List may not.
        let kind = list
            .get("kind")
            .and_then(Value::as_str)
            .and_then(|kind| kind.strip_suffix("List"))
            .filter(|kind| !kind.is_empty())
            .map(str::to_owned);
        let Some(Value::Array(items)) = list.remove("items") else { return };
        for mut item in items {
            if let (Some(kind), Some(object)) = (&kind, item.as_object_mut()) {
                object.entry("kind").or_insert_with(|| Value::String(kind.clone()));
                if let Some(api_version) = &api_version {
                    object.entry("apiVersion").or_insert_with(|| api_version.clone());
                }
            }
            self.flatten(index, line, item, position);
        }
    }

    fn push(&mut self, index: usize, item: Option<usize>, line: Option<u64>, value: Value) {
        self.manifests.documents.push(Document { source: self.source.clone(), index, item, line, value });
    }

    fn fail(&mut self, index: usize, line: Option<u64>, message: String) {
        self.manifests.errors.push(ManifestError { source_name: self.source.clone(), index, line, message });
    }
}

fn is_list(value: &Value) -> bool {
    value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
        && value.get("items").is_some_and(Value::is_array)
        && value.get("spec").is_none()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// serde_json appends the position, which the error already carries.
fn without_json_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cut = text.rfind(" at line ").unwrap_or(text.len());
    text[..cut].to_owned()
}
