//! The objects of an installation, in the order in which they are applied. They come from the files in `deploy/` and
//! from the CRDs of this build. This module writes nothing.

use std::collections::BTreeMap;

use karpenter_api::crds;
use karpenter_api::labels::Provider;
use serde_json::{Value, json};

use crate::kinds::{self, text};
use crate::settings::{Scope, Settings};
use crate::{Error, MANAGER};

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");
const CONTROLLER: &str = include_str!("../../../deploy/controller.yaml");
/// The installation name that the files in `deploy/` contain.
const NAME: &str = "karpenter";
/// Namespaces that every cluster has.
const BUILT_IN_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Builds all objects that must be applied.
pub fn build(settings: &Settings) -> Result<Vec<Value>, Error> {
    let mistakes = settings.mistakes();
    if !mistakes.is_empty() {
        return Err(Error::Wrong(mistakes));
    }
    let mut objects = Vec::new();
    if settings.with_definitions {
        objects.extend(definitions(settings)?);
    }
    if settings.scope == Scope::OnlyDefinitions {
        return Ok(objects);
    }
    if !BUILT_IN_NAMESPACES.contains(&settings.namespace.as_str()) {
        // The namespace does not get our labels, because others may use it and `karpenter uninstall` must not delete
        // it.
        objects
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": settings.namespace}}));
    }
    objects.extend(permissions(settings)?);
    if settings.brings_controller() {
        objects.extend(controller(settings)?);
    }
    Ok(objects)
}

fn definitions(settings: &Settings) -> Result<Vec<Value>, Error> {
    let legacy = if settings.serves_legacy { crds::legacy() } else { &[] };
    let all = crds::all().iter().chain(legacy);
    let read = |crd: &crds::Crd| -> Result<Value, Error> {
        let mut definition: Value = serde_saphyr::from_str(crd.yaml)
            .map_err(|error| Error::BuiltIn(format!("{}: {error}", crd.kind)))?;
        // All installations share the CRDs, so they have no label with the name of one installation.
        definition["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!(MANAGER);
        Ok(definition)
    };
    all.map(read).collect()
}

/// The roles that this installation needs, by their names in the files.
fn roles(settings: &Settings) -> Vec<&'static str> {
    let mut names = vec![NAME];
    names.push(match settings.provider {
        Provider::Aws => "karpenter-aws",
        Provider::Kwok => "karpenter-kwok",
    });
    if settings.needs_features() {
        names.push("karpenter-features");
    }
    if settings.serves_legacy {
        names.push("karpenter-legacy");
    }
    names
}

fn permissions(settings: &Settings) -> Result<Vec<Value>, Error> {
    let wanted = roles(settings);
    let mut account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": settings.name, "namespace": settings.namespace, "labels": labels(settings)},
        // The Deployment mounts the token itself; other pods with this service account do not get one by default.
        "automountServiceAccountToken": false});
    if !settings.account_annotations.is_empty() {
        account["metadata"]["annotations"] = json!(settings.account_annotations);
    }
    let mut objects = vec![account];
    for mut role in documents(RBAC)? {
        let kind = text(&role, "/kind").to_owned();
        if !wanted.contains(&kinds::name(&role)) || role.get("rules").is_none() {
            continue;
        }
        let name = renamed(settings, kinds::name(&role));
        // The DNS Service is in kube-system, so its role is as well; all other roles are in the controller's namespace.
        let namespace = match (kind.as_str(), kinds::name(&role)) {
            ("ClusterRole", _) => None,
            (_, "karpenter-aws") => Some(text(&role, "/metadata/namespace").to_owned()),
            _ => Some(settings.namespace.clone()),
        };
        role["metadata"] = json!({"name": name, "labels": labels(settings)});
        let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": settings.name, "namespace": settings.namespace}]});
        if let Some(namespace) = namespace {
            role["metadata"]["namespace"] = json!(namespace);
            binding["metadata"]["namespace"] = json!(namespace);
        }
        objects.extend([role, binding]);
    }
    Ok(objects)
}

fn controller(settings: &Settings) -> Result<Vec<Value>, Error> {
    let mut objects = documents(CONTROLLER)?;
    for object in &mut objects {
        object["metadata"] =
            json!({"name": settings.name, "namespace": settings.namespace, "labels": labels(settings)});
        select(settings, object);
        if object["kind"] == kinds::DEPLOYMENT.kind {
            fill_in(settings, object)?;
        }
    }
    Ok(objects)
}

/// Replaces every label selector that selects the controller's pods.
fn select(settings: &Settings, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(instance) = map.get_mut("app.kubernetes.io/instance") {
                *instance = json!(settings.name);
            }
            map.values_mut().for_each(|inner| select(settings, inner));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| select(settings, inner)),
        _ => {}
    }
}

fn fill_in(settings: &Settings, deployment: &mut Value) -> Result<(), Error> {
    let broken = || Error::BuiltIn("deploy/controller.yaml lacks an expected field".to_owned());
    deployment["spec"]["replicas"] = json!(settings.replicas);
    let pod = deployment.pointer_mut("/spec/template/spec").ok_or_else(broken)?;
    pod["serviceAccountName"] = json!(settings.name);
    let container = pod.pointer_mut("/containers/0").ok_or_else(broken)?;
    container["image"] = json!(settings.image);
    container["args"] = json!(["controller", "--provider", provider_word(settings.provider)]);
    container["resources"] = json!({
        "requests": {"cpu": settings.cpu, "memory": settings.memory},
        "limits": {"memory": settings.memory},
    });
    let mut variables: BTreeMap<&str, &str> = BTreeMap::new();
    variables.insert("KARPENTER_SERVICE", &settings.name);
    if settings.serves_legacy {
        variables.insert("LEGACY_API", "true");
    }
    variables.extend(settings.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let list = container.get_mut("env").and_then(Value::as_array_mut).ok_or_else(broken)?;
    // A variable that the caller states replaces the one in the file.
    list.retain(|known| !variables.contains_key(text(known, "/name")));
    list.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));
    Ok(())
}

pub(crate) fn provider_word(provider: Provider) -> &'static str {
    match provider {
        Provider::Aws => "aws",
        Provider::Kwok => "kwok",
    }
}

fn labels(settings: &Settings) -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/instance": settings.name,
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
        "app.kubernetes.io/managed-by": MANAGER,
    })
}

/// The name of a role in this installation: `karpenter-aws` becomes `x-aws` if the installation's name is `x`.
fn renamed(settings: &Settings, name: &str) -> String {
    format!("{}{}", settings.name, name.strip_prefix(NAME).unwrap_or_default())
}

fn documents(text: &str) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple(text).map_err(|error| Error::BuiltIn(error.to_string()))
}

/// A permission that a service account needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub verb: String,
    /// The namespace in which the permission is needed; empty if in all namespaces.
    pub namespace: String,
    /// The name of the object for which the permission is needed; empty if for all objects.
    pub name: String,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(out, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(out, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(out, " {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(out, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// The permissions that the controller needs, according to the RBAC rules that are applied.
pub fn needed_permissions(settings: &Settings) -> Result<Vec<Permission>, Error> {
    let mut needed = Vec::new();
    for role in permissions(settings)? {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        let namespace = text(&role, "/metadata/namespace");
        for rule in rules {
            let words = |field: &str| -> Vec<&str> {
                let list = rule.get(field).and_then(Value::as_array);
                list.into_iter().flatten().filter_map(Value::as_str).collect()
            };
            let names = match words("resourceNames") {
                names if names.is_empty() => vec![""],
                names => names,
            };
            for group in words("apiGroups") {
                for resource in words("resources") {
                    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                    for verb in words("verbs") {
                        for name in &names {
                            needed.push(Permission {
                                group: group.to_owned(),
                                resource: resource.to_owned(),
                                subresource: subresource.to_owned(),
                                verb: verb.to_owned(),
                                namespace: namespace.to_owned(),
                                name: (*name).to_owned(),
                            });
                        }
                    }
                }
            }
        }
    }
    needed.sort();
    needed.dedup();
    Ok(needed)
}

#[cfg(test)]
mod tests;
