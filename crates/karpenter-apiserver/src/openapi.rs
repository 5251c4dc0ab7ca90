//! OpenAPI v3 (`/openapi/v3`): an index, and a document for each group and version.
//!
//! The documents contain what `kubectl apply`, `explain` and `create --validate` need: paths with kinds and parameters,
//! and the schemas of all served kinds. Built-in types have no descriptions, and of the responses only the one for
//! success is described. OpenAPI v2 is not served, because clients request v3 first.
//!
//! Upstream: k8s.io/kube-openapi/pkg/handler3/handler.go, k8s.io/kube-openapi/pkg/builder3/openapi.go

mod paths;
mod types;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// A kind that a document describes.
#[derive(Debug, Clone)]
pub struct ServedKind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub list_kind: &'a str,
    pub plural: &'a str,
    pub namespaced: bool,
    pub verbs: Vec<&'a str>,
    /// The names of subresources, each with group, version and kind of its bodies.
    pub subresources: Vec<(&'a str, [&'a str; 3])>,
    /// The schema of a custom resource; `None` for built-in kinds.
    pub schema: Option<&'a Value>,
    /// The selectable fields of a custom resource.
    pub selectable_fields: &'a [String],
}

impl ServedKind<'_> {
    /// The first part of the path: `api/v1` or `apis/apps/v1`.
    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("api/{}", self.version)
        } else {
            format!("apis/{}/{}", self.group, self.version)
        }
    }

    fn group_version_kind(&self) -> Value {
        group_version_kind([self.group, self.version, self.kind])
    }
}

fn group_version_kind([group, version, kind]: [&str; 3]) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// The index: for each group and version, the URL of its document. The URL contains a hash of the document, so that
/// clients can cache documents without expiration.
pub fn index(kinds: &[ServedKind]) -> Value {
    let mut hashes: BTreeMap<String, Hash> = BTreeMap::new();
    for kind in kinds {
        let hash = hashes.entry(kind.root()).or_default();
        hash.add(&[kind.kind, kind.list_kind, kind.plural, if kind.namespaced { "n" } else { "c" }]);
        hash.add(&kind.verbs);
        kind.subresources.iter().for_each(|(name, _)| hash.add(&[name]));
        if let Some(schema) = kind.schema {
            hash.add(&[&schema.to_string()]);
            kind.selectable_fields.iter().for_each(|path| hash.add(&[path]));
        }
    }
    let paths: Map<String, Value> = hashes
        .into_iter()
        .map(|(root, hash)| {
            let address = format!("/openapi/v3/{root}?hash={}", hash.text());
            (root, json!({"serverRelativeURL": address}))
        })
        .collect();
    json!({"paths": paths})
}

/// The document of one group and version; kinds of other groups and versions are ignored. `None` if no kind has this
/// group and version.
pub fn document(group: &str, version: &str, kinds: &[ServedKind]) -> Option<Value> {
    let kinds: Vec<&ServedKind> =
        kinds.iter().filter(|kind| kind.group == group && kind.version == version).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut schemas = Map::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut all_paths = Map::new();
    for kind in &kinds {
        if let Some(schema) = kind.schema {
            schemas.extend(types::custom(kind, schema, &mut wanted));
        } else {
            wanted.extend(types::name_of([kind.group, kind.version, kind.kind]));
            wanted.extend(types::name_of([kind.group, kind.version, kind.list_kind]));
        }
        for (_, body) in &kind.subresources {
            wanted.extend(types::name_of(*body));
        }
        all_paths.extend(paths::of(kind));
    }
    wanted.insert(format!("{}DeleteOptions", types::META_PREFIX));
    schemas.insert(format!("{}Patch", types::META_PREFIX), json!({"type": "object"}));
    types::add_builtin(wanted, &mut schemas);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.35"},
        "paths": all_paths,
        "components": {"schemas": schemas},
    }))
}

/// The FNV-1a hash. Servers with the same kinds must have the same URLs, and the hasher of Rust's standard library may
/// change.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, texts: &[&str]) {
        for text in texts {
            for byte in text.bytes().chain([0]) {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }

    fn text(&self) -> String {
        format!("{:016X}", self.0)
    }
}
