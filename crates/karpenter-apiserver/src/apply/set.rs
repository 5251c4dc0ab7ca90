//! Sets of field paths, which represent the fields that a manager owns.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/fieldpath/set.go

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{Element, Path};
use crate::shape::Shape;

/// A tree of path elements. Each element is a member of the set, has members below it, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<Element>,
    /// The elements that have members below them; none of these sets is empty.
    children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// A set of paths, each given as a list of field names.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Path = path.iter().map(|name| Element::Field((*name).to_string())).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Inserts a path. The empty path, which stands for the whole object, is never inserted.
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => match self.children.get_mut(first) {
                Some(child) => child.insert(rest),
                None => self.children.entry(first.clone()).or_default().insert(rest),
            },
        }
    }

    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    pub(super) fn has_member(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// All elements at the top level: those that are members, and those that only have members below them.
    pub(super) fn elements(&self) -> BTreeSet<&Element> {
        self.members.iter().chain(self.children.keys()).collect()
    }

    pub(super) fn child(&self, element: &Element) -> Option<&Self> {
        self.children.get(element)
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let merged = match result.children.get(element) {
                Some(own) => own.union(child),
                None => child.clone(),
            };
            result.children.insert(element.clone(), merged);
        }
        result
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter_map(|(element, child)| {
                let common = child.intersection(other.children.get(element)?);
                (!common.is_empty()).then(|| (element.clone(), common))
            })
            .collect();
        Self { members: self.members.intersection(&other.members).cloned().collect(), children }
    }

    /// The members of this set that `other` lacks. Members below a member of `other` are kept.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.subtract(other, false)
    }

    /// The members of this set that are not members of `other` and not below one.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.subtract(other, true)
    }

    fn subtract(&self, other: &Self, recursive: bool) -> Self {
        let mut result = self.clone();
        result.remove(other, recursive);
        result
    }

    /// Like [`Self::difference`], but changes this set, because most sets lose few members or none.
    pub(super) fn remove_all(&mut self, other: &Self) {
        self.remove(other, false);
    }

    fn remove(&mut self, other: &Self, recursive: bool) {
        for (element, other) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.remove(other, recursive);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
        for member in &other.members {
            self.members.remove(member);
            if recursive {
                self.children.remove(member);
            }
        }
    }

    /// Adds the declared struct fields that are on the paths to members; sets usually do not contain these.
    pub(super) fn with_named_fields(&self, shape: &Shape) -> Self {
        let mut result = Self { members: self.members.clone(), children: BTreeMap::new() };
        for (element, child) in &self.children {
            let below = match (element, shape) {
                (Element::Field(name), Shape::Struct(fields)) => match fields.field(name) {
                    Some(field) => {
                        result.members.insert(element.clone());
                        &field.shape
                    }
                    None => &Shape::Deduced,
                },
                (Element::Field(_), Shape::Map(value)) => value,
                (Element::Key(_), Shape::Keyed(keyed)) => &keyed.element,
                _ => &Shape::Deduced,
            };
            result.children.insert(element.clone(), child.with_named_fields(below));
        }
        result
    }

    /// Adapts the set to a schema in which some parts became atomic after the set was recorded: a manager that owned
    /// fields of such a part now owns the whole part.
    pub(super) fn reconcile(&mut self, shape: &Shape) {
        let mut atomic = Vec::new();
        for (element, child) in &mut self.children {
            let below = match (element, shape) {
                (Element::Field(name), Shape::Struct(fields)) => fields.field(name).map(|field| &field.shape),
                (Element::Field(_), Shape::Map(value)) => Some(&**value),
                (Element::Key(_), Shape::Keyed(keyed)) => Some(&keyed.element),
                _ => None,
            };
            match below {
                Some(Shape::Atomic) => atomic.push(element.clone()),
                Some(below) => child.reconcile(below),
                None => {}
            }
        }
        for element in atomic {
            self.children.remove(&element);
            self.members.insert(element);
        }
    }

    /// The paths of all members; members at one level come before those below it.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            paths.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// The `fieldsV1` JSON.
    pub(super) fn encode(&self) -> Value {
        let mut result = Map::new();
        for member in &self.members {
            result.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut below = child.encode();
            if let Value::Object(below) = &mut below
                && self.members.contains(element)
            {
                below.insert(".".to_string(), Value::Object(Map::new()));
            }
            result.insert(element.encode(), below);
        }
        Value::Object(result)
    }

    pub(super) fn decode(value: &Value) -> Result<Self, String> {
        let Value::Object(fields) = value else { return Err("not an object".to_string()) };
        let mut result = Self::default();
        for (text, below) in fields {
            if text == "." {
                continue;
            }
            let Some(element) = Element::parse(text)? else { continue };
            let child = Self::decode(below)?;
            let is_member = child.is_empty() || below.get(".").is_some();
            if is_member {
                result.members.insert(element.clone());
            }
            if !child.is_empty() {
                result.children.insert(element, child);
            }
        }
        Ok(result)
    }
}
