//! Discovery: lists groups, versions and resources, and the version of the server.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/discovery

use serde_json::{Value, json};

use crate::openapi::{self, ServedKind};
use crate::registry::{Registry, Resource, group_version};

/// The Kubernetes release whose behaviour the embedded API server implements.
pub const GIT_VERSION: &str = "v1.35.4";

pub fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": GIT_VERSION, "emulationMajor": "1", "emulationMinor": "35",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "34", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// `/api`
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`
pub fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        ordered_groups(registry).iter().map(|name| group_entry(registry, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/apps`
pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    if name.is_empty() || registry.versions(name).is_empty() {
        return None;
    }
    let mut group = group_entry(registry, name);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(group)
}

/// `/api/v1`, `/apis/apps/v1`
pub fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    // Groups that have custom resources are not sorted by name.
    let mut ordered_by_name = true;
    for resource in registry.version(group, version) {
        entries.push(resource_entry(resource));
        ordered_by_name &= resource.custom.is_none();
        for subresource in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if (&subresource.group, &subresource.version) != (&resource.group, &resource.version) {
                if !subresource.group.is_empty() {
                    entry["group"] = json!(subresource.group);
                }
                entry["version"] = json!(subresource.version);
            }
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return None;
    }
    if ordered_by_name {
        entries.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": entries,
    });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// The aggregated form of `/api` or `/apis`: all groups with their resources.
pub fn aggregated(registry: &Registry, core: bool, format_version: &str) -> Value {
    let groups = if core { vec![String::new()] } else { ordered_groups(registry) };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> = registry
                .versions(group)
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        registry.version(group, version).map(|resource| aggregated_entry(resource)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{format_version}"),
        "metadata": {}, "items": items,
    })
}

/// `/openapi/v3` and the paths below it. `path` is what follows `/openapi/`.
pub fn openapi(registry: &Registry, path: &str) -> Option<Value> {
    let kinds: Vec<ServedKind<'_>> = registry.all().map(|resource| served_kind(resource)).collect();
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["v3"] => Some(openapi::index(&kinds)),
        ["v3", "api", version] => openapi::document("", version, &kinds),
        ["v3", "apis", group, version] => openapi::document(group, version, &kinds),
        _ => None,
    }
}

fn served_kind(resource: &Resource) -> ServedKind<'_> {
    ServedKind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        list_kind: &resource.list_kind,
        plural: &resource.plural,
        namespaced: resource.namespaced,
        verbs: resource.verbs.iter().map(String::as_str).collect(),
        subresources: resource
            .subresources
            .iter()
            .map(|sub| (sub.name.as_str(), [sub.group.as_str(), sub.version.as_str(), sub.kind.as_str()]))
            .collect(),
        schema: resource.custom.as_ref().map(|custom| custom.kind.schema_document()),
        selectable_fields: resource.custom.as_ref().map_or(&[], |custom| custom.kind.selectable_fields()),
    }
}

/// The order in which kube-apiserver lists its groups. Groups that are not in the list come after them.
const GROUPS_IN_ORDER: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

fn ordered_groups(registry: &Registry) -> Vec<String> {
    let mut names: Vec<String> = registry.groups().into_iter().filter(|name| !name.is_empty()).collect();
    let rank = |name: &String| GROUPS_IN_ORDER.iter().position(|known| known == name).unwrap_or(usize::MAX);
    names.sort_by_key(rank);
    names
}

fn group_entry(registry: &Registry, name: &str) -> Value {
    let versions: Vec<Value> = registry
        .versions(name)
        .iter()
        .map(|version| json!({"groupVersion": group_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if let Some(hash) = &resource.storage_version_hash {
        entry["storageVersionHash"] = json!(hash);
    }
    entry
}

fn aggregated_entry(resource: &Resource) -> Value {
    // Group and version are omitted if they equal those of the enclosing entry.
    let kind = |group: &str, version: &str, kind: &str| {
        let same = group == resource.group && version == resource.version;
        let (group, version) = if same { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular, "verbs": resource.verbs,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let response_kind = kind(&subresource.group, &subresource.version, &subresource.kind);
            json!({"subresource": subresource.name, "responseKind": response_kind, "verbs": subresource.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
