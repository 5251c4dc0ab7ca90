//! The kinds that the server serves: names, scopes, subresources, and how their objects are stored.
//!
//! A registry never changes; when a custom resource is added or removed, a new registry replaces it.

mod builtin;
mod custom;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::crd::CustomKind;
use crate::selector::SelectableFields;
use crate::status::ApiResult;
use crate::store::StorageId;

/// One kind in one of its served versions.
#[derive(Debug, Clone)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub storage: StorageId,
    /// The version in which objects of the kind are stored.
    pub storage_version: String,
    pub storage_version_hash: Option<String>,
    pub conversion: Conversion,
    pub selectable: Arc<SelectableFields>,
    /// The properties of a custom resource; `None` for built-in kinds.
    pub custom: Option<Custom>,
}

/// The properties that custom resources have and built-in kinds do not.
#[derive(Debug, Clone)]
pub struct Custom {
    /// The name of the CustomResourceDefinition that defines the kind.
    pub definition: String,
    pub kind: CustomKind,
    /// Whether the CRD is being deleted, so that new objects are rejected.
    pub terminating: bool,
}

/// A subresource, and the kind of its request and response bodies.
#[derive(Debug, Clone, PartialEq)]
pub struct Subresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// How objects are converted between the stored and the served version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// No conversion, because the served version is the stored one.
    None,
    /// The kind is a custom resource, whose versions differ only in `apiVersion`.
    ApiVersion,
    /// The served objects are Events of `events.k8s.io`, which are stored as core Events.
    Event,
    /// The served objects are HorizontalPodAutoscalers of `autoscaling/v1`, which are stored as `autoscaling/v2`.
    Autoscaler,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// The `apiVersion` that stored objects have.
    pub fn storage_api_version(&self) -> String {
        group_version(&self.group, &self.storage_version)
    }

    pub fn is_definition(&self) -> bool {
        self.is("apiextensions.k8s.io", "CustomResourceDefinition")
    }

    /// `pods`, `deployments.apps`.
    pub fn qualified_plural(&self) -> String {
        qualified(&self.group, &self.plural)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
}

pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") }
}

/// All served kinds.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// The resources, by group, version and plural name.
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        for resource in builtin::resources() {
            registry.insert(resource);
        }
        registry
    }

    pub fn insert(&mut self, resource: Resource) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, Arc::new(resource));
    }

    /// Serves the kind of a CustomResourceDefinition, in place of the versions served before.
    pub fn define(&mut self, definition: &Value) -> ApiResult<()> {
        let resources = custom::resources(definition)?;
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.remove(text("/spec/group"), text("/spec/names/plural"));
        for resource in resources {
            self.insert(resource);
        }
        Ok(())
    }

    pub fn remove(&mut self, group: &str, plural: &str) {
        self.resources.retain(|(g, _, p), _| g != group || p != plural);
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// A served version of a kind: the storage version if it is served, else any other.
    pub fn any_version(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut found = None;
        for resource in self.resources.values() {
            if resource.group == group && resource.plural == plural {
                if resource.version == resource.storage_version {
                    return Some(resource);
                }
                found = found.or(Some(resource));
            }
        }
        found
    }

    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all()
            .find(|resource| resource.group == group && resource.version == version && resource.kind == kind)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    pub fn version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all().filter(move |resource| resource.group == group && resource.version == version)
    }

    /// The names of all groups: first the core group, then built-in groups, then custom ones; the latter two are sorted
    /// alphabetically.
    pub fn groups(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.all().map(|resource| resource.group.as_str()).collect();
        names.into_iter().map(str::to_string).collect()
    }

    /// The versions of a group, the most preferred first.
    pub fn versions(&self, group: &str) -> Vec<String> {
        let names: BTreeSet<&str> = self
            .all()
            .filter(|resource| resource.group == group)
            .map(|resource| resource.version.as_str())
            .collect();
        let mut versions: Vec<String> = names.into_iter().map(str::to_string).collect();
        versions.sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then_with(|| a.cmp(b)));
        versions
    }
}

/// Kubernetes' order of versions: stable ones before beta before alpha, the newest of each first, and other names last.
fn version_priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let (level, minor) = match &rest[digits..] {
            "" => (3, ""),
            stage => match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor),
                (_, Some(minor)) => (1, minor),
                _ => return None,
            },
        };
        let minor = if level == 3 { 0 } else { minor.parse().ok()? };
        Some((level, major, minor))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_by_kubernetes_priority() {
        let mut versions =
            vec!["v1alpha1", "foo10", "v2", "v11beta2", "v1", "v3beta1", "v10", "foo1", "v12alpha1"];
        versions.sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then_with(|| a.cmp(b)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]
        );
    }
}
