//! The resources that a CustomResourceDefinition defines: one for each served version.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Conversion, Custom, Resource, Subresource, qualified};
use crate::crd::CustomKind;
use crate::selector::SelectableFields;
use crate::status::ApiResult;

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

pub(super) fn resources(definition: &Value) -> ApiResult<Vec<Resource>> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let texts = |pointer: &str| -> Vec<String> {
        let list = definition.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
    };
    let empty = Vec::new();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).unwrap_or(&empty);
    let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_string();
    let stored = versions.iter().find(|version| version["storage"] == true).map(name).unwrap_or_default();
    let mut kinds = Vec::new();
    let mut paths = BTreeSet::new();
    for version in versions {
        let kind = CustomKind::from_definition(definition, &name(version))?;
        // All versions share one index, so a field that is selectable in one version can be selected in all versions.
        paths.extend(kind.selectable_fields().iter().cloned());
        if version["served"] == true {
            kinds.push((name(version), kind));
        }
    }
    let paths: Vec<String> = paths.into_iter().collect();
    let (group, plural, kind_name) =
        (text("/spec/group"), text("/spec/names/plural"), text("/spec/names/kind"));
    let namespaced = text("/spec/scope") == "Namespaced";
    let selectable = Arc::new(SelectableFields::custom(namespaced, &paths));
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
    let singular = match text("/spec/names/singular") {
        "" => kind_name.to_lowercase(),
        given => given.to_string(),
    };
    Ok(kinds
        .into_iter()
        .map(|(version, kind)| {
            let mut subresources = Vec::new();
            let mut offer = |name: &str, group: &str, version: &str, kind: &str| {
                subresources.push(Subresource {
                    name: name.into(),
                    group: group.into(),
                    version: version.into(),
                    kind: kind.into(),
                    verbs: strings(&["get", "patch", "update"]),
                });
            };
            if kind.has_status() {
                offer("status", group, &version, kind_name);
            }
            if kind.scale_paths().is_some() {
                offer("scale", "autoscaling", "v1", "Scale");
            }
            Resource {
                group: group.into(),
                kind: kind_name.into(),
                list_kind: match text("/spec/names/listKind") {
                    "" => format!("{kind_name}List"),
                    given => given.into(),
                },
                plural: plural.into(),
                singular: singular.clone(),
                short_names: texts("/spec/names/shortNames"),
                categories: texts("/spec/names/categories"),
                namespaced,
                verbs: strings(VERBS),
                subresources,
                storage: qualified(group, plural).into(),
                storage_version: stored.clone(),
                storage_version_hash: Some(version_hash(group, &stored, kind_name)),
                conversion: if version == stored { Conversion::None } else { Conversion::ApiVersion },
                selectable: selectable.clone(),
                custom: Some(Custom {
                    definition: text("/metadata/name").into(),
                    kind,
                    terminating: definition
                        .pointer("/metadata/deletionTimestamp")
                        .is_some_and(Value::is_string),
                }),
                version,
            }
        })
        .collect())
}

/// A hash that changes when the storage version changes. Clients only compare it.
fn version_hash(group: &str, version: &str, kind: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{group}/{version}/{kind}");
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut encoded: String =
        (0..11).map(|digit| char::from(LETTERS[((hash >> (digit * 6)) & 63) as usize])).collect();
    encoded.push('=');
    encoded
}
