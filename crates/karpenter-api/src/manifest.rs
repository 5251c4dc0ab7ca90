//! Parses manifests and returns one document per object. The input may be a YAML stream, JSON (one object, an array or
//! several objects in sequence), or a `List` as `kubectl get` prints it.
//!
//! Objects are not validated, and the caller reads files. An invalid YAML document does not affect the others: the
//! result has all valid documents, and an error for each invalid one. Input is untrusted, so nesting, aliases and merge
//! keys are limited, and duplicate keys are errors.

mod json;
mod parallel;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::one_line;

use json::Opened;

/// One object of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Where the object comes from, as passed by the caller: a file name, or `-` for standard input.
    pub source: Arc<str>,
    /// The number of the document within its source, starting at 1.
    pub index: usize,
    /// The index of the object in the list that contained it, starting at 0; `None` if it was not in a list.
    pub item: Option<usize>,
    /// The number of the document's first line, starting at 1, if known.
    pub line: Option<u64>,
    pub value: Value,
}

/// Why a document of the input is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: document {index}{}: {message}", source_name, line.map(|line| format!(", line {line}")).unwrap_or_default(), message = one_line(message))]
pub struct ManifestError {
    pub source_name: Arc<str>,
    /// The number of the document within its source, starting at 1.
    pub index: usize,
    /// The number of the line with the error, starting at 1, if known.
    pub line: Option<u64>,
    pub message: String,
}

/// All documents and all errors of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    pub documents: Vec<Document>,
    pub errors: Vec<ManifestError>,
}

/// Parses all documents of a text.
pub fn read(source: &str, text: &str) -> Manifests {
    let mut documents = Vec::new();
    let errors = read_each(source, text, |document| documents.push(document));
    Manifests { documents, errors }
}

/// Passes the documents of a text to `sink` one by one, so that they are not all in memory at once.
pub fn read_each(source: &str, text: &str, mut sink: impl FnMut(Document)) -> Vec<ManifestError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { source: source.into(), sink: &mut sink, errors: Vec::new() };
    if text.trim_start().starts_with(['{', '[']) {
        reader.read_json(text);
    } else {
        reader.read_yaml(text);
    }
    reader.errors
}

struct Reader<'s> {
    source: Arc<str>,
    sink: &'s mut dyn FnMut(Document),
    errors: Vec<ManifestError>,
}

/// The apiVersion and kind of list items that state none.
struct Defaults {
    kind: Option<String>,
    api_version: Option<Value>,
}

impl Reader<'_> {
    fn read_json(&mut self, text: &str) {
        let stream = serde_json::Deserializer::from_str(text).into_iter::<Opened<'_>>();
        for (position, next) in stream.enumerate() {
            let index = position + 1;
            match next {
                Ok(Opened::Other(value)) => self.accept(index, None, value),
                Ok(Opened::Array(items)) => self.read_json_items(index, text, &items, None),
                Ok(Opened::WithItems(mut fields, items)) => {
                    if is_object_list(&fields) {
                        let defaults = Defaults::of(&mut fields);
                        self.read_json_items(index, text, &items, Some(&defaults));
                    } else {
                        self.read_json_object(index, text, fields, &items);
                    }
                }
                Err(error) => {
                    // YAML in flow style starts with a brace as well, so text that is not JSON is parsed as YAML.
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

    fn read_json_items(
        &mut self,
        index: usize,
        text: &str,
        items: &[&RawValue],
        defaults: Option<&Defaults>,
    ) {
        let mut position = 0;
        let accept = |item: &&RawValue, parsed: Result<Value, serde_json::Error>| match parsed {
            Ok(mut value) => {
                if let Some(defaults) = defaults {
                    defaults.fill(&mut value);
                }
                self.flatten(index, None, value, &mut position);
            }
            Err(error) => {
                self.fail_within(index, text, item, &error);
                position += 1;
            }
        };
        if text.len() < yaml::PARALLEL_BYTES_MIN {
            let mut accept = accept;
            items.iter().for_each(|item| accept(item, json::parse(item)));
        } else {
            parallel::in_order(items, |item| json::parse(item), accept);
        }
    }

    /// Reads an object whose field `items` may make it a list of objects.
    fn read_json_object(
        &mut self,
        index: usize,
        text: &str,
        mut fields: Map<String, Value>,
        items: &[&RawValue],
    ) {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match json::parse(item) {
                Ok(value) => values.push(value),
                Err(error) => return self.fail_within(index, text, item, &error),
            }
        }
        fields.insert("items".to_owned(), Value::Array(values));
        self.push(index, None, None, Value::Object(fields));
    }

    fn fail_within(&mut self, index: usize, text: &str, item: &RawValue, error: &serde_json::Error) {
        let line = u64::try_from(error.line()).ok().filter(|line| *line > 0);
        let line = line.map(|line| json::lines_before(text, item) + line);
        self.fail(index, line, without_json_position(error));
    }

    fn read_flow_yaml(&mut self, text: &str) -> bool {
        let mut documents = Vec::new();
        let mut sink = |document| documents.push(document);
        let mut attempt = Reader { source: self.source.clone(), sink: &mut sink, errors: Vec::new() };
        attempt.read_yaml(text);
        let readable = attempt.errors.is_empty();
        if readable {
            documents.into_iter().for_each(|document| (self.sink)(document));
        }
        readable
    }

    fn read_yaml(&mut self, text: &str) {
        let mut index = 0;
        yaml::parse_documents(text, |chunk, result| {
            index += 1;
            match result {
                Ok(value) => self.accept(index, Some(chunk.content_line), value),
                Err(error) => {
                    let line = error.line.map_or(chunk.content_line, |line| chunk.first_line + line - 1);
                    self.fail(index, Some(line), error.message);
                }
            }
        });
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

    /// Lists may be nested, for example after several `kubectl get` outputs were merged by hand.
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
        let defaults = Defaults::of(&mut list);
        let Some(Value::Array(items)) = list.remove("items") else { return };
        for mut item in items {
            defaults.fill(&mut item);
            self.flatten(index, line, item, position);
        }
    }

    fn push(&mut self, index: usize, item: Option<usize>, line: Option<u64>, value: Value) {
        (self.sink)(Document { source: self.source.clone(), index, item, line, value });
    }

    fn fail(&mut self, index: usize, line: Option<u64>, message: String) {
        self.errors.push(ManifestError { source_name: self.source.clone(), index, line, message });
    }
}

impl Defaults {
    /// Items of a typed list (such as PodList) may omit apiVersion and kind, which then follow from the list; items of
    /// a plain List may not.
    fn of(list: &mut Map<String, Value>) -> Self {
        let kind = list
            .get("kind")
            .and_then(Value::as_str)
            .and_then(|kind| kind.strip_suffix("List"))
            .filter(|kind| !kind.is_empty())
            .map(str::to_owned);
        Self { kind, api_version: list.remove("apiVersion") }
    }

    fn fill(&self, item: &mut Value) {
        if let (Some(kind), Some(object)) = (&self.kind, item.as_object_mut()) {
            object.entry("kind").or_insert_with(|| Value::String(kind.clone()));
            if let Some(api_version) = &self.api_version {
                object.entry("apiVersion").or_insert_with(|| api_version.clone());
            }
        }
    }
}

fn is_list(value: &Value) -> bool {
    value.as_object().is_some_and(is_object_list) && value.get("items").is_some_and(Value::is_array)
}

/// Whether an object with a field `items` is a list of objects, and not a kind that has a field of that name.
fn is_object_list(fields: &Map<String, Value>) -> bool {
    fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
        && !fields.contains_key("spec")
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The message of serde_json without the position that it appends, because our error has a field for the position.
fn without_json_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cut = text.rfind(" at line ").unwrap_or(text.len());
    text[..cut].to_owned()
}
