//! A pod is the same whether it is read from JSON, read from protobuf, or copied from a complete object.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod as RawPod;
use karpenter_apiserver::builtin::{FieldInfo, FieldType, TypeForm, TypeInfo};
use karpenter_runtime::protobuf::field::{Field, Kind, Message};
use karpenter_runtime::protobuf::to_json;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::go::{Fill, json_of, pod_type, protobuf_of, sample, zero};
use crate::fields::{Kept, POD_FIELDS, PODS_AND_NODES};
use crate::pod::{Pod, PodFields};

fn from_json(pod: &Value) -> RawPod {
    let PodFields(raw) = serde_json::from_str(&pod.to_string()).expect("a pod");
    raw
}

fn from_protobuf(bytes: &[u8]) -> RawPod {
    let text = to_json::object(bytes, PODS_AND_NODES).expect("decoded");
    let PodFields(raw) = serde_json::from_slice(&text).expect("a pod");
    raw
}

fn copied(pod: &Value) -> RawPod {
    serde_json::from_value::<RawPod>(pod.clone()).expect("a pod").keep()
}

/// The stored form of a pod that an API server has as this JSON.
fn kept(pod: &Value) -> RawPod {
    let read = from_json(pod);
    assert_eq!(differences(&read, &from_protobuf(&protobuf_of(pod))), NONE, "from JSON and from protobuf");
    assert_eq!(differences(&read, &copied(pod)), NONE, "from JSON and copied");
    read
}

const NONE: [String; 0] = [];

/// The paths at which the values differ.
fn differences<T: Serialize>(one: &T, other: &T) -> Vec<String> {
    let json = |value: &T| serde_json::to_value(value).expect("JSON");
    let mut found = Vec::new();
    compare(&json(one), &json(other), "", &mut found);
    found
}

fn compare(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let (one, other) = (one.get(key), other.get(key));
                let path = format!("{path}/{key}");
                match (one, other) {
                    (Some(one), Some(other)) => compare(one, other, &path, found),
                    _ => found.push(format!("{path}: {one:?} and {other:?}")),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{path}/{index}"), found);
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{path}: {one} and {other}")),
    }
}

#[test]
fn recorded_pod_is_the_same_from_json_and_protobuf() {
    let json: Value = serde_json::from_slice(include_bytes!("../recorded/pod.json")).expect("JSON");
    let read = from_json(&json);
    assert_eq!(differences(&from_protobuf(include_bytes!("../recorded/pod.pb")), &read), NONE);
    assert_eq!(differences(&copied(&json), &read), NONE);
    let pod = Pod::from(read);
    assert_eq!(Pod::from(serde_json::from_value::<RawPod>(json).expect("a pod")), pod);
    assert_eq!(&*pod.name, "rich");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn pod_is_the_same_from_json_and_protobuf_and_copied(seed: u64) {
        let mut random = seed;
        let mut fill = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match random >> 61 {
                0 => Fill::Absent,
                1 => Fill::Zero,
                _ => Fill::Set,
            }
        };
        let pod = json_of(sample(pod_type(), &mut fill));
        // The protobuf bytes are correct: the embedded API server decodes them to the same pod.
        let read = karpenter_apiserver::protobuf::decode(&protobuf_of(&pod)).expect("decoded");
        prop_assert_eq!(differences(&read, &pod), NONE);
        kept(&pod);
    }
}

/// Visits every field of the API types, down to the fields that are not in the table.
struct Walk<'a> {
    /// A pod with every field set.
    full: &'a Value,
    unchanged: &'a RawPod,
    read: usize,
    not_read: Vec<String>,
}

impl Walk<'_> {
    fn message(&mut self, info: &TypeInfo, message: &Message, path: &str) {
        for field in &info.fields {
            if field.protobuf.is_empty() {
                continue;
            }
            let path = format!("{path}/{}", field.name);
            let Some(entry) = entry(message, &field.protobuf) else {
                assert!(!is_named(message, field.name), "{path} has another number in the API");
                assert_eq!(self.changes(&self.without(&path)), NONE, "{path} is not in the table");
                self.not_read.push(path);
                continue;
            };
            assert_eq!(entry.name, field.name, "{path}");
            let is_struct =
                matches!(&field.field_type, FieldType::Named(id) if id.info().form == TypeForm::Struct);
            let is_time = matches!(entry.kind, Kind::Time);
            assert!(is_time || entry.is_optional == (field.pointer || is_struct), "{path} is a pointer");
            match (&field.field_type, entry.kind) {
                (FieldType::Named(id), Kind::One(inner)) => self.message(id.info(), inner, &path),
                (FieldType::List(element), Kind::Many(inner)) => {
                    let FieldType::Named(id) = &**element else { panic!("{path} has no messages") };
                    self.message(id.info(), inner, &format!("{path}/0"));
                }
                (FieldType::String, Kind::Text) => self.value(&path, field, json!("other")),
                (FieldType::Int32 | FieldType::Int64, Kind::Number) => self.value(&path, field, json!(8)),
                (FieldType::Boolean, Kind::Flag) => self.value(&path, field, json!(false)),
                (FieldType::List(_), Kind::Texts) => self.value(&path, field, json!(["other"])),
                (FieldType::Map(_), Kind::Labels) => self.value(&path, field, json!({"key": "other"})),
                (FieldType::Map(_), Kind::Amounts) => self.value(&path, field, json!({"key": "2"})),
                (FieldType::Named(_), Kind::Time) => self.value(&path, field, json!("2026-01-01T00:00:01Z")),
                (of_api, _) => panic!("{path} is {of_api:?} in the API"),
            }
        }
    }

    /// Checks that the pod is read differently if the value at the path is another one, zero, or absent.
    fn value(&mut self, path: &str, field: &FieldInfo, other: Value) {
        let (zeroed, absent) = (self.with(path, zero(&field.field_type)), self.without(path));
        let is_zero_absent = differences(&kept(&zeroed), &kept(&absent)).is_empty();
        let is_time = matches!(&field.field_type, FieldType::Named(_));
        assert_eq!(is_zero_absent, !field.pointer || is_time, "{path}: zero differs from absent");
        for pod in [self.with(path, other), zeroed, absent] {
            let changes = self.changes(&pod);
            assert!(!changes.is_empty(), "{path} is in the table");
            assert!(changes.iter().all(|change| change.starts_with(path)), "{path}: {changes:?}");
        }
        self.read += 1;
    }

    fn changes(&self, pod: &Value) -> Vec<String> {
        differences(&kept(pod), self.unchanged)
    }

    fn with(&self, path: &str, value: Value) -> Value {
        let mut pod = self.full.clone();
        *pod.pointer_mut(path).expect(path) = value;
        json_of(pod)
    }

    fn without(&self, path: &str) -> Value {
        let mut pod = self.full.clone();
        let (parent, name) = path.rsplit_once('/').expect("a path");
        let parent = pod.pointer_mut(parent).and_then(Value::as_object_mut).expect(path);
        assert!(parent.remove(name).is_some(), "{path}");
        json_of(pod)
    }
}

/// The entry with these numbers.
fn entry<'a>(message: &'a Message, numbers: &[u32]) -> Option<&'a Field> {
    let (number, inner) = numbers.split_first()?;
    let field = message.0.iter().find(|field| field.number == *number)?;
    match field.kind {
        Kind::Within(message) => entry(message, inner),
        _ => inner.is_empty().then_some(field),
    }
}

fn is_named(message: &Message, name: &str) -> bool {
    message.0.iter().any(|field| match field.kind {
        Kind::Within(inner) => is_named(inner, name),
        _ => field.name == name,
    })
}

/// The number of values in the table.
fn values(message: &Message) -> usize {
    let count = |field: &Field| match field.kind {
        Kind::One(inner) | Kind::Many(inner) | Kind::Within(inner) => values(inner),
        _ => 1,
    };
    message.0.iter().map(count).sum()
}

#[test]
fn fields_in_the_table_change_the_pod_and_others_do_not() {
    let full = json_of(sample(pod_type(), &mut || Fill::Set));
    let unchanged = kept(&full);
    let mut walk = Walk { full: &full, unchanged: &unchanged, read: 0, not_read: Vec::new() };
    walk.message(pod_type(), POD_FIELDS, "");
    // Every entry of the table is a field of the API.
    assert_eq!(walk.read, values(POD_FIELDS));
    for path in
        ["/spec/ephemeralContainers", "/spec/containers/0/image", "/status/podIP", "/metadata/managedFields"]
    {
        assert!(walk.not_read.iter().any(|other| other == path), "{path} is walked");
    }
}
