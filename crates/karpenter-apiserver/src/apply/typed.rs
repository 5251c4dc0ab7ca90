//! Operations on objects whose shape is known: the set of their fields, comparison, merging, removal and validation.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/typed

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{Element, Path, equal};
use super::set::FieldSet;
use crate::shape::{KeyedShape, ScalarType, Shape};

/// How to visit a value. A shape that must be deduced from the value is already resolved.
pub(super) enum Walk<'shape> {
    Leaf,
    Object,
    Keyed(&'shape KeyedShape),
    Set,
}

pub(super) fn walk<'shape>(shape: &'shape Shape, values: [Option<&Value>; 2]) -> Walk<'shape> {
    match shape {
        Shape::Atomic => Walk::Leaf,
        Shape::Struct(_) | Shape::Map(_) => Walk::Object,
        Shape::Keyed(keyed) => Walk::Keyed(keyed),
        Shape::Set => Walk::Set,
        // A list without a schema is atomic. Null is compatible with any shape.
        Shape::Deduced => {
            let objects = values.iter().flatten().all(|value| value.is_object() || value.is_null());
            if objects { Walk::Object } else { Walk::Leaf }
        }
    }
}

/// The shape of an object's field, and whether the schema declares the field.
pub(super) fn below<'shape>(shape: &'shape Shape, name: &str) -> (&'shape Shape, bool) {
    match shape {
        Shape::Struct(fields) => match fields.field(name) {
            Some(field) => (&field.shape, true),
            None => (&Shape::Deduced, false),
        },
        Shape::Map(value) => (value, false),
        _ => (&Shape::Deduced, false),
    }
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The path element by which a list item is identified.
pub(super) fn element(walk: &Walk<'_>, item: &Value) -> Result<Element, String> {
    let Walk::Keyed(keyed) = walk else {
        return match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_string())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_string()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_string())
            }
            plain => Ok(Element::Value(plain.clone())),
        };
    };
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_string()),
        _ => return Err("associative list with keys may not have non-map elements".to_string()),
    };
    let mut keys = Vec::with_capacity(keyed.keys.len());
    for name in &keyed.keys {
        let default = || keyed.key_defaults.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        if let Some(value) = fields.get(name).or_else(default) {
            keys.push((name.clone(), value.clone()));
        }
    }
    if keys.is_empty() {
        let names: Vec<String> = keyed.keys.iter().map(|key| crate::field::go_quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    keys.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(Element::Key(keys))
}

pub(super) fn element_shape<'shape>(walk: &Walk<'shape>) -> &'shape Shape {
    match walk {
        Walk::Keyed(keyed) => &keyed.element,
        _ => &Shape::Atomic,
    }
}

/// The items of a list, by path element. Items without a valid path element are left out.
fn grouped<'value>(walk: &Walk<'_>, items: &'value [Value]) -> BTreeMap<Element, Vec<&'value Value>> {
    let mut groups: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(identity) = element(walk, item) {
            groups.entry(identity).or_default().push(item);
        }
    }
    groups
}

/// The paths of all fields that an object sets.
pub(super) fn field_set(value: &Value, shape: &Shape) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, shape, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, shape: &Shape, path: &mut Path, set: &mut FieldSet) {
    let walk = walk(shape, [Some(value), None]);
    match walk {
        Walk::Leaf => set.insert(path),
        Walk::Object => {
            let Value::Object(fields) = value else { return };
            for (name, child) in fields {
                let (shape, declared) = below(shape, name);
                path.push(Element::Field(name.clone()));
                collect(child, shape, path, set);
                let empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
                if empty || !declared {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Walk::Keyed(_) | Walk::Set => {
            for (identity, same) in grouped(&walk, list(Some(value))) {
                path.push(identity);
                if let [only] = same.as_slice() {
                    collect(only, element_shape(&walk), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    pub(super) fn without(self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }
}

pub(super) fn compare(left: &Value, right: &Value, shape: &Shape) -> Comparison {
    let mut comparison = Comparison::default();
    difference(Some(left), Some(right), shape, &mut Vec::new(), &mut comparison);
    comparison
}

fn leaf_difference(left: Option<&Value>, right: Option<&Value>, path: &Path, into: &mut Comparison) {
    match (left, right) {
        (None, _) => into.added.insert(path),
        (_, None) => into.removed.insert(path),
        (Some(left), Some(right)) if !equal(left, right) => into.modified.insert(path),
        _ => {}
    }
}

fn difference(
    left: Option<&Value>,
    right: Option<&Value>,
    shape: &Shape,
    path: &mut Path,
    into: &mut Comparison,
) {
    if left.is_some() && left == right {
        // Equal parts are not visited, because most of an object does not change.
        return;
    }
    let walk = walk(shape, [left, right]);
    match walk {
        Walk::Leaf => return leaf_difference(left, right, path, into),
        Walk::Object => {
            let (left_fields, right_fields) = (object(left), object(right));
            let empty = |fields: Option<&Map<String, Value>>| fields.is_none_or(Map::is_empty);
            if empty(left_fields) && empty(right_fields) {
                return leaf_difference(left, right, path, into);
            }
            let names: BTreeSet<&String> =
                left_fields.into_iter().chain(right_fields).flat_map(Map::keys).collect();
            for name in names {
                let left_child = left_fields.and_then(|fields| fields.get(name));
                let right_child = right_fields.and_then(|fields| fields.get(name));
                path.push(Element::Field(name.clone()));
                difference(left_child, right_child, below(shape, name).0, path, into);
                path.pop();
            }
        }
        Walk::Keyed(_) | Walk::Set => {
            if list(left).is_empty() && list(right).is_empty() {
                return leaf_difference(left, right, path, into);
            }
            list_difference(&walk, list(left), list(right), path, into);
        }
    }
    if left.is_none() {
        into.added.insert(path);
    } else if right.is_none() {
        into.removed.insert(path);
    }
}

/// Compares two lists; items that occur more than once are compared as a whole.
fn list_difference<'value>(
    walk: &Walk<'_>,
    left: &'value [Value],
    right: &'value [Value],
    path: &mut Path,
    into: &mut Comparison,
) {
    let shape = element_shape(walk);
    let left_groups = grouped(walk, left);
    let right_groups = grouped(walk, right);
    let identities: BTreeSet<&Element> = left_groups.keys().chain(right_groups.keys()).collect();
    let group = |groups: &BTreeMap<Element, Vec<&'value Value>>, identity: &Element| {
        groups.get(identity).cloned().unwrap_or_default()
    };
    for identity in identities {
        path.push(identity.clone());
        match (&*group(&left_groups, identity), &*group(&right_groups, identity)) {
            (left @ ([] | [_]), right @ ([] | [_])) => {
                difference(left.first().copied(), right.first().copied(), shape, path, into);
            }
            (left @ [_, _, ..], right @ [_, _, ..]) => {
                let same = left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| equal(left, right));
                if !same {
                    into.modified.insert(path);
                }
            }
            ([_, _, ..], right) => {
                if let Some(right) = right.first() {
                    difference(None, Some(right), shape, path, into);
                }
                into.removed.insert(path);
            }
            (left, _) => {
                if let Some(left) = left.first() {
                    difference(Some(left), None, shape, path, into);
                }
                into.added.insert(path);
            }
        }
        path.pop();
    }
}

/// The value `left` after the fields of `right` were merged into it.
pub(super) fn merge(left: &Value, right: &Value, shape: &Shape) -> Value {
    merge_parts(Some(left), Some(right), shape).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merge_parts(left: Option<&Value>, right: Option<&Value>, shape: &Shape) -> Option<Value> {
    let whole = || right.or(left).cloned();
    let walk = walk(shape, [left, right]);
    match walk {
        Walk::Leaf => whole(),
        Walk::Object => {
            let (left_fields, right_fields) = (object(left), object(right));
            let empty = |fields: Option<&Map<String, Value>>| fields.is_none_or(Map::is_empty);
            if empty(left_fields) && empty(right_fields) {
                return whole();
            }
            let mut merged = Map::new();
            let names = left_fields.into_iter().chain(right_fields).flat_map(Map::keys);
            for name in names {
                if merged.contains_key(name) {
                    continue;
                }
                let left_child = left_fields.and_then(|fields| fields.get(name));
                let right_child = right_fields.and_then(|fields| fields.get(name));
                if let Some(value) = merge_parts(left_child, right_child, below(shape, name).0) {
                    merged.insert(name.clone(), value);
                }
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Walk::Keyed(_) | Walk::Set => {
            if list(left).is_empty() && list(right).is_empty() {
                return whole();
            }
            let merged = merge_lists(&walk, list(left), list(right));
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

/// Merges two lists. Items of `right` keep their order; items that only `left` has keep their position relative to
/// their neighbours.
fn merge_lists(walk: &Walk<'_>, left: &[Value], right: &[Value]) -> Vec<Value> {
    let shape = element_shape(walk);
    let identities = |items: &[Value]| -> Vec<(Element, usize)> {
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((element(walk, item).ok()?, index)))
            .collect()
    };
    let (left_ids, right_ids) = (identities(left), identities(right));
    let (left_groups, right_groups) = (grouped(walk, left), grouped(walk, right));
    let in_right = |id: &Element| right_groups.get(id).map(|same| same[0]);
    // An item that occurs twice in `left` cannot be merged.
    let in_left = |id: &Element| left_groups.get(id).filter(|same| same.len() == 1).map(|same| same[0]);
    let occurs_left = |id: &Element| left_groups.contains_key(id);
    let mut shared = right_ids.iter().map(|(id, _)| id).filter(|id| occurs_left(id));
    let mut next_shared = shared.next();
    let mut merged_right: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut left_at, mut right_at) = (0, 0);
    while left_at < left_ids.len() || right_at < right_ids.len() {
        if let (Some((left_id, _)), Some((right_id, _))) = (left_ids.get(left_at), right_ids.get(right_at)) {
            if left_id == right_id {
                merged_right.insert(right_id);
                out.extend(merge_parts(in_left(left_id), in_right(right_id), shape));
                left_at += 1;
                right_at += 1;
                next_shared = shared.next();
                continue;
            }
            if in_right(left_id).is_some() && next_shared.is_some_and(|next| next != left_id) {
                left_at += 1;
                continue;
            }
        }
        if let Some((left_id, index)) = left_ids.get(left_at) {
            if in_right(left_id).is_none() {
                out.extend(merge_parts(Some(&left[*index]), None, shape));
                left_at += 1;
                continue;
            }
            if merged_right.contains(left_id) {
                left_at += 1;
            }
        }
        if let Some((right_id, _)) = right_ids.get(right_at) {
            merged_right.insert(right_id);
            out.extend(merge_parts(in_left(right_id), in_right(right_id), shape));
            right_at += 1;
            if next_shared == Some(right_id) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The object without the members of a set. If a part loses all its children and is not a member itself, it becomes
/// null.
pub(super) fn remove(value: &Value, set: &FieldSet, shape: &Shape) -> Value {
    let walk = walk(shape, [Some(value), None]);
    match (&walk, value) {
        (Walk::Object, Value::Object(fields)) => {
            let mut kept = Map::new();
            for (name, child) in fields {
                let step = Element::Field(name.clone());
                if set.has_member(&step) {
                    continue;
                }
                let child = match set.child(&step) {
                    Some(part) => remove(child, part, below(shape, name).0),
                    None => child.clone(),
                };
                kept.insert(name.clone(), child);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Walk::Keyed(_) | Walk::Set, Value::Array(items)) => {
            let mut kept = Vec::new();
            for item in items {
                let Ok(step) = element(&walk, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if set.has_member(&step) {
                    continue;
                }
                kept.push(match set.child(&step) {
                    Some(part) => remove(item, part, element_shape(&walk)),
                    None => item.clone(),
                });
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Walk::Leaf, Value::Array(_) | Value::Object(_)) => Value::Null,
        _ => value.clone(),
    }
}

/// The errors of an applied object, as path and message.
pub(super) fn validate(value: &Value, shape: &Shape) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    check(value, shape, &mut String::new(), &mut problems);
    problems
}

pub(super) fn problems_text(problems: &[(String, String)]) -> String {
    let one = |(path, text): &(String, String)| {
        if path.is_empty() { text.clone() } else { format!("{path}: {text}") }
    };
    match problems {
        [only] => one(only),
        many => {
            let lines: Vec<String> = many.iter().map(|problem| format!("\n  {}", one(problem))).collect();
            format!("errors:{}", lines.concat())
        }
    }
}

fn check(value: &Value, shape: &Shape, path: &mut String, problems: &mut Vec<(String, String)>) {
    let walk = walk(shape, [Some(value), None]);
    match (&walk, value) {
        (_, Value::Null) | (Walk::Leaf, _) => {}
        (Walk::Object, Value::Object(fields)) => {
            for (name, child) in fields {
                let (below, declared, scalar) = match shape {
                    Shape::Struct(known) => {
                        let field = known.field(name);
                        let declared = known.preserves_unknown || field.is_some();
                        (below(shape, name).0, declared, field.and_then(|field| field.scalar))
                    }
                    _ => (below(shape, name).0, true, None),
                };
                let length = path.len();
                path.push('.');
                path.push_str(name);
                if let Some(why) = scalar.and_then(|scalar| scalar_problem(child, scalar)) {
                    problems.push((path.clone(), why));
                } else if declared {
                    check(child, below, path, problems);
                } else {
                    problems.push((path.clone(), "field not declared in schema".to_string()));
                }
                path.truncate(length);
                if !declared {
                    return;
                }
            }
        }
        (Walk::Object, other) => {
            problems.push((path.clone(), format!("expected map, got {}", shown(other))));
        }
        (_, Value::Array(items)) => {
            let mut seen: BTreeSet<Element> = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let identity = match element(&walk, item) {
                    Ok(identity) => identity,
                    Err(why) => {
                        problems.push((path.clone(), format!("element {index}: {why}")));
                        return;
                    }
                };
                if seen.contains(&identity) {
                    problems.push((path.clone(), format!("duplicate entries for key {identity}")));
                }
                let length = path.len();
                path.push_str(&identity.to_string());
                check(item, element_shape(&walk), path, problems);
                path.truncate(length);
                seen.insert(identity);
            }
        }
        (_, other) => problems.push((path.clone(), format!("expected list, got {}", shown(other)))),
    }
}

fn scalar_problem(value: &Value, wanted: ScalarType) -> Option<String> {
    match (wanted, value) {
        (_, Value::Null)
        | (ScalarType::String, Value::String(_))
        | (ScalarType::Number, Value::Number(_))
        | (ScalarType::Boolean, Value::Bool(_)) => None,
        // Go formats values differently depending on their type.
        (ScalarType::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go_type(other)))
        }
        (ScalarType::String, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other)))
        }
        (ScalarType::Boolean, other) => Some(format!("expected boolean, got {}", shown(other))),
    }
}

/// A value as Go prints it with `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{}:{}", crate::field::go_quote(name), go_syntax(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::String(text) => crate::field::go_quote(text),
        plain => plain.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value in the form in which these error messages show it.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go_print(value))
}
