//! Finds values of the wrong type, and reports them with the error messages of Go's decoder.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{push_field, time};
use crate::builtin::{self, FieldInfo, FieldType, TypeForm, TypeInfo, canonical_quantity};
use crate::patch::go_kind;

/// The error of decoding the object into the Go type of its kind; `None` if there is no error or the kind is not
/// built-in.
///
/// If there are several errors, kube-apiserver reports the first in the order of the document; this function reports
/// the first in the order of field names.
pub fn decode_error(object: &Value, group: &str, version: &str, kind: &str) -> Option<String> {
    let info = builtin::type_of(group, version, kind)?;
    let mut position = FieldPosition { owner: info.short_name(), path: String::new() };
    fields(info, object, &mut position).err()
}

/// A position in the document: the Go struct that has the field, and the names of the fields that lead to it.
struct FieldPosition<'position> {
    owner: &'position str,
    path: String,
}

impl FieldPosition<'_> {
    fn mismatch(&self, value: &Value, wanted: &str) -> String {
        let kind = match value {
            // The message contains the number only if the field has an integer type, so that another number would be
            // valid.
            Value::Number(number) if matches!(wanted, "int32" | "int64") => format!("number {number}"),
            other => go_kind(other).to_string(),
        };
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {kind} into Go value of type {wanted}");
        }
        format!(
            "json: cannot unmarshal {kind} into Go struct field {}.{} of type {wanted}",
            self.owner, self.path
        )
    }
}

fn fields(info: &'static TypeInfo, value: &Value, position: &mut FieldPosition<'_>) -> Result<(), String> {
    let Value::Object(object) = value else {
        return if value.is_null() { Ok(()) } else { Err(position.mismatch(value, &go_name(info))) };
    };
    for (name, value) in object {
        let Some(field) = info.field(name) else { continue };
        if value.is_null() {
            continue;
        }
        let mut inner = FieldPosition { owner: info.short_name(), path: position.path.clone() };
        push_field(&mut inner.path, name);
        let wanted = go_type(field);
        typed(&field.field_type, value, &wanted, &mut inner)?;
    }
    Ok(())
}

fn typed(
    field_type: &FieldType,
    value: &Value,
    wanted: &str,
    position: &mut FieldPosition<'_>,
) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let fits = match field_type {
        FieldType::String => value.is_string(),
        FieldType::Boolean => value.is_boolean(),
        FieldType::Double => value.is_number(),
        FieldType::Int32 => is_int32(value),
        FieldType::Int64 => value.is_i64(),
        FieldType::Bytes => return bytes(value, position),
        FieldType::List(element) => {
            let Value::Array(items) = value else { return Err(position.mismatch(value, wanted)) };
            let wanted = element_name(wanted, "[]", element);
            return items.iter().try_for_each(|item| typed(element, item, &wanted, position));
        }
        FieldType::Map(element) => {
            let Value::Object(entries) = value else { return Err(position.mismatch(value, wanted)) };
            let wanted = element_name(wanted, "map[string]", element);
            return entries.values().try_for_each(|entry| typed(element, entry, &wanted, position));
        }
        FieldType::Named(id) => return named(id.info(), value, position),
    };
    if fits {
        return Ok(());
    }
    Err(position.mismatch(value, wanted))
}

pub(super) fn is_int32(value: &Value) -> bool {
    value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}

fn named(info: &'static TypeInfo, value: &Value, position: &mut FieldPosition<'_>) -> Result<(), String> {
    match (info.form, value) {
        (TypeForm::Struct, _) => fields(info, value, position),
        (TypeForm::Time | TypeForm::MicroTime, Value::String(text)) => {
            time::check(text, info.form == TypeForm::MicroTime)
        }
        (TypeForm::Duration, Value::String(_)) => Ok(()),
        (TypeForm::Time | TypeForm::MicroTime | TypeForm::Duration, _) => {
            Err(position.mismatch(value, "string"))
        }
        (TypeForm::Quantity, Value::String(text)) => quantity(text),
        (TypeForm::Quantity, Value::Number(number)) => quantity(&number.to_string()),
        (TypeForm::Quantity, _) => Err(WRONG_QUANTITY.to_string()),
        (TypeForm::IntOrString, Value::String(_)) => Ok(()),
        (TypeForm::IntOrString, _) if is_int32(value) => Ok(()),
        (TypeForm::IntOrString, _) => Err(position.mismatch(value, "int32")),
        _ => Ok(()),
    }
}

const WRONG_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn quantity(text: &str) -> Result<(), String> {
    if canonical_quantity(text.trim()).is_some() {
        return Ok(());
    }
    let rest = text.trim().trim_start_matches(['+', '-']);
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let suffix = digits.strip_prefix('.').unwrap_or(digits).trim_start_matches(|c: char| c.is_ascii_digit());
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let tail = letters.trim_start_matches(['+', '-']).trim_start_matches(|c: char| c.is_ascii_digit());
    Err(if rest.len() == suffix.len() || !tail.is_empty() {
        WRONG_QUANTITY.to_string()
    } else {
        "unable to parse quantity's suffix".to_string()
    })
}

fn bytes(value: &Value, position: &FieldPosition<'_>) -> Result<(), String> {
    let Value::String(text) = value else { return Err(position.mismatch(value, "[]uint8")) };
    match STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(
            base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _),
        ) => Err(format!("illegal base64 data at input byte {offset}")),
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len() / 4 * 4)),
    }
}

/// The name of a Go struct, in a package that is named after the API version.
fn go_name(info: &TypeInfo) -> String {
    let mut parts = info.name.rsplit('.');
    let name = parts.next().unwrap_or("");
    format!("{}.{name}", parts.next().unwrap_or(""))
}

fn go_type(field: &FieldInfo) -> String {
    field.go_type.map_or_else(|| go_type_of(&field.field_type), str::to_string)
}

fn go_type_of(field_type: &FieldType) -> String {
    match field_type {
        FieldType::String => "string".to_string(),
        FieldType::Bytes => "[]uint8".to_string(),
        FieldType::Int32 => "int32".to_string(),
        FieldType::Int64 => "int64".to_string(),
        FieldType::Double => "float64".to_string(),
        FieldType::Boolean => "bool".to_string(),
        FieldType::List(element) => format!("[]{}", go_type_of(element)),
        FieldType::Map(element) => format!("map[string]{}", go_type_of(element)),
        FieldType::Named(id) => go_name(id.info()),
    }
}

fn element_name(outer: &str, prefix: &str, element: &FieldType) -> String {
    outer.strip_prefix(prefix).map_or_else(|| go_type_of(element), str::to_string)
}
