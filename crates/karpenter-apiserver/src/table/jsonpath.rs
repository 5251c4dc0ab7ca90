//! The JSON paths of printer columns: fields, indexes, slices, wildcards, recursive descent and simple filters.
//!
//! A path to a missing field selects nothing. Unions, template ranges and functions are not supported.
//!
//! Upstream: k8s.io/client-go/util/jsonpath

use std::cmp::Ordering;

use serde_json::Value;

use crate::field::go_float;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice { from: Option<i64>, to: Option<i64>, step: i64 },
    Every,
    Descend,
    Filter(Box<Filter>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    /// The comparison that a filter makes; `None` if the filter only checks that the value exists.
    comparison: Option<(&'static str, Operand)>,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Parses a path; `None` if kube-apiserver would reject it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').unwrap_or(rest);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("..") {
                steps.push(Step::Descend);
                rest = after;
                if !rest.starts_with('[') {
                    rest = parse_field(rest, &mut steps)?;
                }
            } else if let Some(after) = rest.strip_prefix('.') {
                rest = if after.is_empty() || after.starts_with('[') {
                    after
                } else {
                    parse_field(after, &mut steps)?
                };
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing_bracket(after)?;
                steps.push(parse_brackets(after[..end].trim())?);
                rest = &after[end + 1..];
            } else {
                rest = parse_field(rest, &mut steps)?;
            }
        }
        Some(Self(steps))
    }

    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut current = vec![object];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in current {
                select(step, value, &mut next);
            }
            current = next;
        }
        current
    }
}

/// Parses a field name up to the next separator. A backslash escapes the character after it.
fn parse_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' => {
                end = index;
                break;
            }
            other => name.push(other),
        }
    }
    if name.is_empty() {
        return None;
    }
    steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
    Some(&text[end..])
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), found) if open == found => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(index),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn parse_brackets(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return parse_filter(filter.trim()).map(|filter| Step::Filter(Box::new(filter)));
    }
    if let Some(name) = unquoted(text) {
        return Some(Step::Field(name));
    }
    let number = |part: &str| match part.trim() {
        "" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [index] => index.trim().parse().ok().map(Step::Index),
        [from, to] => Some(Step::Slice { from: number(from)?, to: number(to)?, step: 1 }),
        [from, to, step] => {
            let step = number(step)?.unwrap_or(1);
            (step > 0).then_some(Step::Slice { from: number(from)?, to: number(to)?, step })
        }
        _ => None,
    }
}

fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\'", "'").replace("\\\"", "\""))
}

fn parse_filter(text: &str) -> Option<Filter> {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), found) if open == found => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            _ => {
                if let Some(operator) =
                    OPERATORS.iter().find(|operator| text[index..].starts_with(**operator))
                {
                    let left = parse_operand(text[..index].trim())?;
                    let right = parse_operand(text[index + operator.len()..].trim())?;
                    return Some(Filter { left, comparison: Some((operator, right)) });
                }
            }
        }
    }
    Some(Filter { left: parse_operand(text)?, comparison: None })
}

fn parse_operand(text: &str) -> Option<Operand> {
    if let Some(path) = text.strip_prefix('@') {
        return JsonPath::parse(path).map(Operand::Path);
    }
    if let Some(literal) = unquoted(text) {
        return Some(Operand::Literal(Value::from(literal)));
    }
    serde_json::from_str(text).ok().map(Operand::Literal)
}

fn select<'a>(step: &Step, value: &'a Value, found: &mut Vec<&'a Value>) {
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
        (Step::Index(index), Value::Array(elements)) => {
            let index = if *index < 0 { index + elements.len() as i64 } else { *index };
            found.extend(usize::try_from(index).ok().and_then(|index| elements.get(index)));
        }
        (Step::Slice { from, to, step }, Value::Array(elements)) => {
            let count = elements.len() as i64;
            let place = |index: i64| (if index < 0 { index + count } else { index }).clamp(0, count);
            let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(count)));
            let mut index = from;
            while index < to {
                found.push(&elements[index as usize]);
                index += step;
            }
        }
        (Step::Every, Value::Array(elements)) => found.extend(elements),
        (Step::Every, Value::Object(fields)) => found.extend(fields.values()),
        (Step::Descend, value) => descend(value, found),
        (Step::Filter(filter), Value::Array(elements)) => {
            found.extend(elements.iter().filter(|element| filter.accepts(element)));
        }
        _ => {}
    }
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|field| descend(field, found)),
        Value::Array(elements) => elements.iter().for_each(|element| descend(element, found)),
        _ => {}
    }
}

impl Operand {
    fn value<'a>(&'a self, element: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.find(element).first().copied(),
            Self::Literal(literal) => Some(literal),
        }
    }
}

impl Filter {
    fn accepts(&self, element: &Value) -> bool {
        let left = self.left.value(element);
        let Some((operator, right)) = &self.comparison else { return left.is_some() };
        let (Some(left), Some(right)) = (left, right.value(element)) else { return false };
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (left, right) if left == right => Some(Ordering::Equal),
            _ => None,
        };
        match *operator {
            "==" => order == Some(Ordering::Equal),
            "!=" => order != Some(Ordering::Equal),
            "<=" => order.is_some_and(Ordering::is_le),
            ">=" => order.is_some_and(Ordering::is_ge),
            "<" => order.is_some_and(Ordering::is_lt),
            _ => order.is_some_and(Ordering::is_gt),
        }
    }
}

/// The text of a value in a cell.
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_string(),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or_else(String::new, go_float),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn column_json_paths_select_values() {
        let object = json!({
            "spec": {"a.b": 1, "list": [10, 20, 30], "limits": {"cpu": "1"}},
            "status": {"conditions": [
                {"type": "Other", "status": "False", "n": 1},
                {"type": "Ready", "status": "True", "n": 2},
            ]},
        });
        for (path, expected) in [
            (".spec.limits.cpu", vec!["1"]),
            (".spec.limits", vec![r#"{"cpu":"1"}"#]),
            (r".spec.a\.b", vec!["1"]),
            (".spec['a.b']", vec!["1"]),
            (".spec.list[1]", vec!["20"]),
            (".spec.list[-1]", vec!["30"]),
            (".spec.list[0:2]", vec!["10", "20"]),
            (".spec.list[*]", vec!["10", "20", "30"]),
            (".spec.limits.*", vec!["1"]),
            (".status.conditions[?(@.type==\"Ready\")].status", vec!["True"]),
            (".status.conditions[?(@.type=='Ready')].status", vec!["True"]),
            (".status.conditions[?(@.n>1)].type", vec!["Ready"]),
            (".status.conditions[?(@.type!=\"Ready\")].type", vec!["Other"]),
            (".status.conditions[?(@.missing)].type", vec![]),
            ("..cpu", vec!["1"]),
            (".missing.field", vec![]),
        ] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} parses"));
            let found: Vec<String> = parsed.find(&object).into_iter().map(print).collect();
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(JsonPath::parse(".a[?(@.b"), None);
    }
}
