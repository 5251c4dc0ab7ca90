//! Structural schemas (the subset of OpenAPI v3 that CRDs may use), parsed into a tree.
//!
//! Parsing does not report errors, because `definition` validated the document before it was stored. The modules
//! `prune`, `check`, `lists` and `rules` use the tree.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/structural.go

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::formats::Format;
use super::pattern;
use super::rules::Rule;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl JsonType {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the items of a list are identified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Which fields an object may have besides its properties.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// The schema does not say, so such fields are removed.
    #[default]
    Unspecified,
    Allowed,
    Refused,
    Schema(Box<Schema>),
}

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) regex: Result<Regex, String>,
}

/// A node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) json_type: Option<JsonType>,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) atomic_map: bool,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) list_type: ListType,
    /// Pruned.
    pub(crate) default: Option<Value>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed_values: Vec<Value>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<Format>,
    pub(crate) minimum: Option<f64>,
    pub(crate) minimum_exclusive: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) maximum_exclusive: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) length_min: Option<usize>,
    pub(crate) length_max: Option<usize>,
    pub(crate) items_min: Option<usize>,
    pub(crate) items_max: Option<usize>,
    pub(crate) properties_min: Option<usize>,
    pub(crate) properties_max: Option<usize>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
    pub(crate) rules: Vec<Rule>,
    /// Whether this node or a node below it has rules; if not, evaluation skips the subtree.
    pub(crate) has_rules_inside: bool,
    /// Whether this node or a node below it is a set, a keyed list or an embedded resource.
    pub(crate) has_invariants_inside: bool,
}

impl Schema {
    pub(crate) fn parse(document: &Value) -> Self {
        let empty = Map::new();
        let node = Node(document.as_object().unwrap_or(&empty));
        let mut schema = Self {
            json_type: node.text("type").and_then(JsonType::parse),
            int_or_string: node.flag("x-kubernetes-int-or-string"),
            nullable: node.flag("nullable"),
            preserve_unknown_fields: node.flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: node.flag("x-kubernetes-embedded-resource"),
            atomic_map: node.text("x-kubernetes-map-type") == Some("atomic"),
            properties: node.children("properties"),
            additional: match node.0.get("additionalProperties") {
                None | Some(Value::Null) => Additional::Unspecified,
                Some(Value::Bool(false)) => Additional::Refused,
                Some(Value::Bool(true)) => Additional::Allowed,
                Some(child) => Additional::Schema(Box::new(Self::parse(child))),
            },
            items: node.child("items"),
            list_type: match node.text("x-kubernetes-list-type") {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(node.texts("x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            default: node.0.get("default").filter(|default| !default.is_null()).cloned(),
            required: node.texts("required"),
            allowed_values: node.list("enum").to_vec(),
            pattern: node.text("pattern").filter(|text| !text.is_empty()).map(|text| Pattern {
                text: text.to_string(),
                regex: pattern::compile(text).map_err(|error| error.to_string()),
            }),
            format: node.text("format").and_then(Format::parse),
            minimum: node.number("minimum"),
            minimum_exclusive: node.flag("exclusiveMinimum"),
            maximum: node.number("maximum"),
            maximum_exclusive: node.flag("exclusiveMaximum"),
            multiple_of: node.number("multipleOf"),
            length_min: node.count("minLength"),
            length_max: node.count("maxLength"),
            items_min: node.count("minItems"),
            items_max: node.count("maxItems"),
            properties_min: node.count("minProperties"),
            properties_max: node.count("maxProperties"),
            all_of: node.list("allOf").iter().map(Self::parse).collect(),
            any_of: node.list("anyOf").iter().map(Self::parse).collect(),
            one_of: node.list("oneOf").iter().map(Self::parse).collect(),
            not: node.child("not"),
            rules: node.list("x-kubernetes-validations").iter().map(Rule::parse).collect(),
            has_rules_inside: false,
            has_invariants_inside: false,
        };
        schema.has_rules_inside =
            !schema.rules.is_empty() || schema.children().any(|child| child.has_rules_inside);
        schema.has_invariants_inside = schema.list_type != ListType::Atomic
            || schema.embedded_resource
            || schema.children().any(|child| child.has_invariants_inside);
        if let Some(mut default) = schema.default.take() {
            schema.prune_value(&mut default);
            schema.default = Some(default);
        }
        schema
    }

    /// The schema nodes directly below this one.
    fn children(&self) -> impl Iterator<Item = &Schema> {
        self.properties.values().chain(self.items.as_deref()).chain(self.additional_schema())
    }

    pub(crate) fn additional_schema(&self) -> Option<&Schema> {
        match &self.additional {
            Additional::Schema(schema) => Some(schema),
            _ => None,
        }
    }

    /// The schema of a field: that of the property, or else that of `additionalProperties`.
    pub(crate) fn field_schema(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// The type by its name in messages; empty if the schema states none.
    pub(crate) fn type_name(&self) -> &'static str {
        self.json_type.map_or("", JsonType::as_str)
    }
}

/// Reads the keywords of one schema node.
struct Node<'a>(&'a Map<String, Value>);

impl<'a> Node<'a> {
    fn text(&self, keyword: &str) -> Option<&'a str> {
        self.0.get(keyword).and_then(Value::as_str)
    }

    fn flag(&self, keyword: &str) -> bool {
        self.0.get(keyword).and_then(Value::as_bool).unwrap_or_default()
    }

    fn number(&self, keyword: &str) -> Option<f64> {
        self.0.get(keyword).and_then(Value::as_f64)
    }

    fn count(&self, keyword: &str) -> Option<usize> {
        self.0.get(keyword).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
    }

    fn list(&self, keyword: &str) -> &'a [Value] {
        self.0.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn texts(&self, keyword: &str) -> Vec<String> {
        self.list(keyword).iter().filter_map(Value::as_str).map(str::to_string).collect()
    }

    fn child(&self, keyword: &str) -> Option<Box<Schema>> {
        self.0.get(keyword).filter(|child| child.is_object()).map(|child| Box::new(Schema::parse(child)))
    }

    fn children(&self, keyword: &str) -> BTreeMap<String, Schema> {
        let Some(children) = self.0.get(keyword).and_then(Value::as_object) else { return BTreeMap::new() };
        children.iter().map(|(name, child)| (name.clone(), Schema::parse(child))).collect()
    }
}
