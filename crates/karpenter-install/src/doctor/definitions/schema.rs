//! Compares the schema that a cluster serves with the one in this program. Descriptions, and fields that API servers
//! omit, are ignored.

use std::collections::BTreeSet;

use karpenter_api::crds::Crd;
use serde_json::{Map, Value};

/// How many fields a message names at most.
const NAMED_MAX: usize = 3;

/// How a served version differs from the one in this program; `None` if it does not.
pub(super) fn difference(version: &Value, crd: &Crd) -> Option<String> {
    let served = normalized(version.pointer("/schema/openAPIV3Schema")?);
    let definition: Value = serde_saphyr::from_str(crd.yaml).ok()?;
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let ours = versions.iter().find(|one| one["name"] == crd.version)?;
    let ours = normalized(ours.pointer("/schema/openAPIV3Schema")?);
    if served == ours {
        return None;
    }
    let (known, wanted) = (fields(&served), fields(&ours));
    let named = |fields: Vec<&String>| {
        let rest = fields.len().saturating_sub(NAMED_MAX);
        let names: Vec<&str> = fields.iter().take(NAMED_MAX).map(|field| field.as_str()).collect();
        let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
        format!("{}{more}", names.join(", "))
    };
    let lacking: Vec<&String> = wanted.difference(&known).collect();
    let unknown: Vec<&String> = known.difference(&wanted).collect();
    Some(match (lacking.is_empty(), unknown.is_empty()) {
        (false, _) => format!("it lacks {}, which the server drops from objects", named(lacking)),
        (true, false) => format!("it has {}, which this version does not have", named(unknown)),
        (true, true) => "its rules, defaults or allowed values differ".to_owned(),
    })
}

/// The paths of all fields in a schema, such as `spec.template.spec.taints[].key`.
fn fields(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(schema, "", &mut found);
    found
}

fn collect(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(property, &path, found);
        found.insert(path);
    }
    for (keyword, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(inner) = schema.get(keyword) {
            collect(inner, &format!("{path}{suffix}"), found);
        }
    }
}

/// The schema without descriptions and empty values; numbers are normalized, and sets are sorted.
fn normalized(schema: &Value) -> Value {
    reduced(schema, false)
}

fn is_description(keyword: &str) -> bool {
    matches!(keyword, "description" | "message")
}

/// Removes descriptions and empty values. `is_map` states that the keys are names of fields, not keywords of the
/// schema.
fn reduced(value: &Value, is_map: bool) -> Value {
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    };
    match value {
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(key, _)| is_map || !is_description(key)).filter_map(
                |(key, value)| {
                    let value = match (is_map, key.as_str()) {
                        // The value of this keyword is data, not a schema.
                        (false, "default" | "example") => normalized_numbers(value),
                        (false, "enum" | "required") => sorted(value),
                        (false, "properties") => reduced(value, true),
                        _ => reduced(value, false),
                    };
                    (is_map || key == "default" || !says_nothing(&value)).then(|| (key.clone(), value))
                },
            );
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| reduced(item, false)).collect(),
        other => normalized_numbers(other),
    }
}

fn sorted(value: &Value) -> Value {
    let mut items: Vec<Value> = value.as_array().into_iter().flatten().map(normalized_numbers).collect();
    items.sort_by_key(Value::to_string);
    items.into()
}

/// Writes 1.0 as 1, as API servers do.
fn normalized_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(items) => items.iter().map(normalized_numbers).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), normalized_numbers(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karpenter_api::crds;
    use serde_json::json;

    fn ours(crd: &Crd) -> Value {
        let definition: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
        definition["spec"]["versions"][0].clone()
    }

    #[test]
    fn schema_as_stored_by_a_server_does_not_differ() {
        for crd in crds::all().iter().chain(crds::legacy()) {
            let mut version = ours(crd);
            assert_eq!(difference(&version, crd), None, "{}", crd.name);
            let schema = &mut version["schema"]["openAPIV3Schema"];
            schema["description"] = json!("in other words");
            schema["nullable"] = json!(false);
            assert_eq!(difference(&version, crd), None, "{}", crd.name);
        }
    }

    #[test]
    fn different_fields_are_named() {
        let crd = crds::all().iter().find(|crd| crd.kind == "NodePool").expect("there");
        let spec = "/schema/openAPIV3Schema/properties/spec/properties";
        let message = |damage: &dyn Fn(&mut Value)| {
            let mut version = ours(crd);
            damage(version.pointer_mut(spec).expect("a schema"));
            difference(&version, crd).expect("message")
        };
        let lacking = message(&|spec| drop(spec.as_object_mut().expect("fields").remove("weight")));
        assert!(lacking.starts_with("it lacks spec.weight,"), "{lacking}");
        let unknown = message(&|spec| spec["theirs"] = json!({"type": "string"}));
        assert!(unknown.starts_with("it has spec.theirs,"), "{unknown}");
        let rules = message(&|spec| spec["weight"]["maximum"] = json!(50));
        assert!(rules.contains("rules"), "{rules}");
    }
}
