//! Applies defaults to an object in place, and removes nulls, as the API server does before validation.
//!
//! In integer fields, floats without a fraction become integers (7.0 becomes 7), as clients do when they convert YAML
//! to JSON; typed deserialization would reject the float.
//!
//! Values of the wrong type stay unchanged; `check` reports them.

use serde_json::Value;

use super::check::whole_number;
use super::{JsonType, Schema};

impl Schema {
    /// Removes nulls from fields that are not nullable and have no default, then applies defaults, including defaults
    /// within values that are defaults themselves.
    pub fn apply_defaults(&self, value: &mut Value) {
        self.drop_nulls(value);
        self.fill(value);
    }

    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, field| {
                    !(field.is_null()
                        && self
                            .field_schema(name)
                            .is_some_and(|schema| !schema.nullable && schema.default.is_none()))
                });
                for (name, field) in fields.iter_mut() {
                    if let Some(schema) = self.field_schema(name) {
                        schema.drop_nulls(field);
                    }
                }
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
                    let missing = fields.get(name).is_none_or(|field| field.is_null() && !schema.nullable);
                    if missing {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                for (name, field) in fields.iter_mut() {
                    if let Some(schema) = self.field_schema(name) {
                        schema.fill(field);
                    }
                }
            }
            Value::Array(elements) => {
                if let Some(schema) = &self.items {
                    elements.iter_mut().for_each(|element| schema.fill(element));
                }
            }
            Value::Number(number) if self.int_or_string || self.json_type == Some(JsonType::Integer) => {
                if let Some(whole) = whole_number(number) {
                    *value = Value::from(whole);
                }
            }
            _ => {}
        }
    }

    /// The schema of a field: that of the property, or else that of additionalProperties.
    pub(super) fn field_schema(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional_properties.as_deref())
    }
}
