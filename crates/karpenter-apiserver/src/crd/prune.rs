//! Removes unknown fields (pruning) and applies defaults.
//!
//! Values of the wrong type stay unchanged; `check` reports them.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning/algorithm.go,
//! k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/algorithm.go

use serde_json::{Map, Value};

use super::schema::{Additional, Schema};

const TYPE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields of `metadata`, all of which are omitted if empty.
const METADATA_FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const OWNER_FIELDS: [&str; 6] = ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];
const MANAGER_FIELDS: [&str; 7] =
    ["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];

/// Collects the paths of the fields that pruning removed.
#[derive(Default)]
struct Removed {
    path: String,
    paths: Vec<String>,
}

impl Removed {
    fn enter_field(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        length
    }

    fn leave(&mut self, length: usize) {
        self.path.truncate(length);
    }

    fn record(&mut self, name: &str) {
        let length = self.enter_field(name);
        self.paths.push(self.path.clone());
        self.leave(length);
    }
}

impl Schema {
    /// Prunes a whole object. `apiVersion`, `kind` and the fields of `ObjectMeta` are always kept. Returns the paths of
    /// removed fields, sorted.
    pub(crate) fn prune_object(&self, object: &mut Value) -> Vec<String> {
        let mut removed = Removed::default();
        if let Some(metadata) = object.get_mut("metadata") {
            removed.enter_field("metadata");
            prune_metadata(metadata, &mut removed);
            removed.leave(0);
        }
        prune(object, Some(self), true, &mut removed);
        removed.paths.sort();
        removed.paths
    }

    /// Prunes a value that this schema node describes.
    pub(crate) fn prune_value(&self, value: &mut Value) {
        prune(value, Some(self), false, &mut Removed::default());
    }

    /// Removes nulls from fields that are not nullable and have no default, then applies defaults, including defaults
    /// within default values.
    pub(crate) fn apply_defaults(&self, value: &mut Value) {
        self.drop_nulls(value);
        self.fill(value);
    }

    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, field| {
                    let Some(schema) = self.field_schema(name) else { return true };
                    if field.is_null() && !schema.nullable && schema.default.is_none() {
                        return false;
                    }
                    schema.drop_nulls(field);
                    true
                });
            }
            Value::Array(elements) => {
                if let Some(schema) = &self.items {
                    elements.iter_mut().for_each(|element| schema.drop_nulls(element));
                }
            }
            _ => {}
        }
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, schema) in &self.properties {
                    let Some(default) = &schema.default else { continue };
                    match fields.get_mut(name) {
                        None => {
                            fields.insert(name.clone(), default.clone());
                        }
                        Some(field) if field.is_null() && !schema.nullable => *field = default.clone(),
                        Some(_) => {}
                    }
                }
                for (name, field) in fields.iter_mut() {
                    if let Some(schema) = self.field_schema(name) {
                        schema.fill_null(field);
                        schema.fill(field);
                    }
                }
            }
            Value::Array(elements) => {
                if let Some(schema) = &self.items {
                    for element in elements {
                        schema.fill_null(element);
                        schema.fill(element);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_null(&self, value: &mut Value) {
        if value.is_null()
            && !self.nullable
            && let Some(default) = &self.default
        {
            *value = default.clone();
        }
    }
}

fn prune(value: &mut Value, schema: Option<&Schema>, is_resource: bool, removed: &mut Removed) {
    let keeps_unknown = schema.is_some_and(|schema| schema.preserve_unknown_fields);
    let is_resource = is_resource || schema.is_some_and(|schema| schema.embedded_resource);
    match value {
        Value::Object(fields) => {
            if is_resource && !removed.path.is_empty() {
                let length = removed.enter_field("metadata");
                if let Some(metadata) = fields.get_mut("metadata") {
                    prune_metadata(metadata, removed);
                }
                removed.leave(length);
            }
            fields.retain(|name, field| {
                if is_resource && TYPE_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                let child = schema.and_then(|schema| schema.properties.get(name));
                let additional = schema.map(|schema| &schema.additional);
                match (child, additional) {
                    (Some(child), _) => {
                        let length = removed.enter_field(name);
                        prune(field, Some(child), false, removed);
                        removed.leave(length);
                        true
                    }
                    (None, Some(Additional::Schema(child))) => {
                        let length = removed.enter_field(name);
                        prune(field, Some(child), false, removed);
                        removed.leave(length);
                        true
                    }
                    // `additionalProperties: true` keeps the fields themselves. They have no schema, so everything in
                    // them is removed.
                    (None, Some(Additional::Allowed | Additional::Refused)) => {
                        let length = removed.enter_field(name);
                        prune(field, None, false, removed);
                        removed.leave(length);
                        true
                    }
                    _ if keeps_unknown => true,
                    _ => {
                        removed.record(name);
                        false
                    }
                }
            });
        }
        Value::Array(elements) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            if keeps_unknown && items.is_none() {
                return;
            }
            for (index, element) in elements.iter_mut().enumerate() {
                let length = removed.enter_index(index);
                prune(element, items, false, removed);
                removed.leave(length);
            }
        }
        _ => {}
    }
}

/// Removes fields that `ObjectMeta` does not have. Values of the wrong type are kept, because validation reports them.
fn prune_metadata(metadata: &mut Value, removed: &mut Removed) {
    let Value::Object(fields) = metadata else { return };
    retain_known(fields, &METADATA_FIELDS, removed);
    fields.retain(|_, field| !is_empty(field));
    for (list, known) in [("ownerReferences", &OWNER_FIELDS[..]), ("managedFields", &MANAGER_FIELDS[..])] {
        let Some(Value::Array(entries)) = fields.get_mut(list) else { continue };
        let length = removed.enter_field(list);
        for (index, entry) in entries.iter_mut().enumerate() {
            let length = removed.enter_index(index);
            if let Value::Object(entry) = entry {
                retain_known(entry, known, removed);
            }
            removed.leave(length);
        }
        removed.leave(length);
    }
}

fn retain_known(fields: &mut Map<String, Value>, known: &[&str], removed: &mut Removed) {
    fields.retain(|name, _| {
        let is_known = known.contains(&name.as_str());
        if !is_known {
            removed.record(name);
        }
        is_known
    });
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
