//! Structural schemas (the part of OpenAPI v3 that CRDs may use), parsed into a tree.
//!
//! Parsing fails for every keyword that validation does not enforce, so that no rule of a CRD is silently ignored. CEL
//! rules are in `cel`, validation in `check`, and defaults in `defaults`.
//!
//! Upstream: Kubernetes `k8s.io/apiextensions-apiserver/pkg/apiserver/schema`.

mod check;
mod defaults;
mod formats;
mod hint;
mod text;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

pub use check::Findings;
pub use hint::closest_name;
pub use text::short_text;

/// Why a schema document is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("schema node {path}: must be an object")]
    NotAnObject { path: String },
    #[error("schema node {path}: keyword {keyword} is not supported")]
    UnsupportedKeyword { path: String, keyword: String },
    #[error("schema node {path}: keyword {keyword} has an unusable value")]
    BadValue { path: String, keyword: String },
    #[error("schema node {path}: pattern does not compile: {source}")]
    BadPattern { path: String, source: Box<regex::Error> },
    #[error("schema has a CEL rule that does not compile: {0}")]
    BadRule(String),
    #[error("crd text is unusable: {0}")]
    BadCrd(String),
}

/// The JSON type that a part of the schema requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl JsonType {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => JsonType::Object,
            "array" => JsonType::Array,
            "string" => JsonType::String,
            "integer" => JsonType::Integer,
            "number" => JsonType::Number,
            "boolean" => JsonType::Boolean,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The string formats that our schemas use and the API server enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DateTime,
    Int32,
    Int64,
}

#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    regex: Regex,
}

/// One part (node) of a structural schema, which describes one value.
#[derive(Debug, Clone)]
pub struct Schema {
    json_type: Option<JsonType>,
    int_or_string: bool,
    nullable: bool,
    preserve_unknown_fields: bool,
    properties: BTreeMap<String, Schema>,
    additional_properties: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    pattern: Option<Pattern>,
    allowed_values: Vec<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    length_min: Option<usize>,
    length_max: Option<usize>,
    items_min: Option<usize>,
    items_max: Option<usize>,
    properties_min: Option<usize>,
    properties_max: Option<usize>,
    format: Option<Format>,
    list_type: ListType,
    default: Option<Value>,
}

/// Keywords that do not affect validation or that other code handles.
const IGNORED_KEYWORDS: [&str; 4] =
    ["description", "title", "x-kubernetes-map-type", "x-kubernetes-validations"];

impl Schema {
    /// Parses an OpenAPI v3 schema, e.g. `openAPIV3Schema` of a CRD version.
    pub fn parse(document: &Value) -> Result<Self, SchemaError> {
        parse_node(document, "<root>")
    }

    /// Replaces the schema of a top-level property. It is used for `metadata`, whose fields CRDs do not describe.
    pub fn set_property(&mut self, name: &str, schema: Schema) {
        self.properties.insert(name.to_string(), schema);
    }
}

fn parse_node(document: &Value, path: &str) -> Result<Schema, SchemaError> {
    let node = document.as_object().ok_or_else(|| SchemaError::NotAnObject { path: path.to_string() })?;
    let reader = NodeReader { node, path };
    reader.refuse_unsupported()?;

    let json_type = match node.get("type") {
        None => None,
        Some(value) => {
            Some(value.as_str().and_then(JsonType::parse).ok_or_else(|| reader.bad_value("type"))?)
        }
    };
    let int_or_string = reader.flag("x-kubernetes-int-or-string")?;
    if node.contains_key("anyOf") && !int_or_string {
        return Err(reader.unsupported("anyOf"));
    }
    let mut properties = BTreeMap::new();
    if let Some(value) = node.get("properties") {
        for (name, child) in value.as_object().ok_or_else(|| reader.bad_value("properties"))? {
            properties.insert(name.clone(), parse_node(child, &format!("{path}.{name}"))?);
        }
    }
    let child = |keyword: &str, suffix: &str| -> Result<Option<Box<Schema>>, SchemaError> {
        node.get(keyword).map(|child| parse_node(child, &format!("{path}{suffix}")).map(Box::new)).transpose()
    };
    Ok(Schema {
        json_type,
        int_or_string,
        nullable: reader.flag("nullable")?,
        preserve_unknown_fields: reader.flag("x-kubernetes-preserve-unknown-fields")?,
        properties,
        additional_properties: child("additionalProperties", ".*")?,
        items: child("items", "[]")?,
        required: reader.strings("required")?,
        pattern: reader.pattern()?,
        allowed_values: match node.get("enum") {
            None => Vec::new(),
            Some(value) => value.as_array().ok_or_else(|| reader.bad_value("enum"))?.clone(),
        },
        minimum: reader.number("minimum")?,
        maximum: reader.number("maximum")?,
        length_min: reader.count("minLength")?,
        length_max: reader.count("maxLength")?,
        items_min: reader.count("minItems")?,
        items_max: reader.count("maxItems")?,
        properties_min: reader.count("minProperties")?,
        properties_max: reader.count("maxProperties")?,
        format: match node.get("format").map(Value::as_str) {
            None => None,
            Some(Some("date-time")) => Some(Format::DateTime),
            Some(Some("int32")) => Some(Format::Int32),
            Some(Some("int64")) => Some(Format::Int64),
            Some(_) => return Err(reader.bad_value("format")),
        },
        list_type: match node.get("x-kubernetes-list-type").map(Value::as_str) {
            None | Some(Some("atomic")) => ListType::Atomic,
            Some(Some("set")) => ListType::Set,
            Some(Some("map")) => ListType::Map(reader.strings("x-kubernetes-list-map-keys")?),
            Some(_) => return Err(reader.bad_value("x-kubernetes-list-type")),
        },
        default: node.get("default").cloned(),
    })
}

/// Reads the keywords of one schema node; errors state the node's path.
struct NodeReader<'a> {
    node: &'a Map<String, Value>,
    path: &'a str,
}

impl NodeReader<'_> {
    fn bad_value(&self, keyword: &str) -> SchemaError {
        SchemaError::BadValue { path: self.path.to_string(), keyword: keyword.to_string() }
    }

    fn unsupported(&self, keyword: &str) -> SchemaError {
        SchemaError::UnsupportedKeyword { path: self.path.to_string(), keyword: keyword.to_string() }
    }

    fn refuse_unsupported(&self) -> Result<(), SchemaError> {
        const ENFORCED_KEYWORDS: [&str; 22] = [
            "type",
            "format",
            "default",
            "nullable",
            "enum",
            "pattern",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "required",
            "properties",
            "additionalProperties",
            "items",
            "anyOf",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-list-type",
        ];
        match self.node.keys().find(|keyword| {
            !ENFORCED_KEYWORDS.contains(&keyword.as_str())
                && !IGNORED_KEYWORDS.contains(&keyword.as_str())
                && keyword.as_str() != "x-kubernetes-list-map-keys"
        }) {
            Some(keyword) => Err(self.unsupported(keyword)),
            None => Ok(()),
        }
    }

    fn flag(&self, keyword: &str) -> Result<bool, SchemaError> {
        match self.node.get(keyword) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.bad_value(keyword)),
        }
    }

    fn number(&self, keyword: &str) -> Result<Option<f64>, SchemaError> {
        self.node.get(keyword).map(|value| value.as_f64().ok_or_else(|| self.bad_value(keyword))).transpose()
    }

    fn count(&self, keyword: &str) -> Result<Option<usize>, SchemaError> {
        self.node
            .get(keyword)
            .map(|value| {
                value
                    .as_u64()
                    .and_then(|count| usize::try_from(count).ok())
                    .ok_or_else(|| self.bad_value(keyword))
            })
            .transpose()
    }

    fn strings(&self, keyword: &str) -> Result<Vec<String>, SchemaError> {
        let Some(value) = self.node.get(keyword) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.bad_value(keyword))?;
        list.iter()
            .map(|item| item.as_str().map(str::to_string).ok_or_else(|| self.bad_value(keyword)))
            .collect()
    }

    fn pattern(&self) -> Result<Option<Pattern>, SchemaError> {
        let Some(value) = self.node.get("pattern") else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.bad_value("pattern"))?.to_string();
        let regex = Regex::new(&text).map_err(|source| SchemaError::BadPattern {
            path: self.path.to_string(),
            source: Box::new(source),
        })?;
        Ok(Some(Pattern { text, regex }))
    }
}
