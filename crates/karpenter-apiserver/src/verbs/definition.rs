//! The lifecycle of CustomResourceDefinitions. As soon as a CRD is stored, its kind is served. A CRD that is deleted is
//! removed after all objects of its kind.
//!
//! In kube-apiserver, controllers perform this lifecycle; this server performs it within the request.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/controller/establish/establishing_controller.go,
//! k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go

use std::sync::Arc;

use serde_json::{Value, json};

use super::Call;
use super::delete::CUSTOM_CLEANUP;
use crate::apply;
use crate::crd;
use crate::options::DeleteOptions;
use crate::registry::Resource;
use crate::request::ResourcePath;
use crate::server::Core;
use crate::store::{Draft, Range, StorageId, WriteRefused};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Call<'_> {
    /// Sets the status of a stored CRD to established, and starts to serve its kind.
    pub(crate) fn establish(&self, name: &str) {
        let storage: StorageId = DEFINITIONS.into();
        loop {
            let Some(entry) = self.core.store.get(&storage, name) else { return };
            let old = entry.value();
            let mut definition = old.clone();
            crd::established_status(&mut definition, self.now);
            if definition != old {
                // As in kube-apiserver, there are two writes: first `NamesAccepted` with `Established=False`, then
                // `Established=True`.
                let mut revision = entry.revision();
                let mut steps = vec![definition.clone()];
                if old["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
                    steps.insert(0, with_installing_status(&definition));
                }
                let mut before = old.clone();
                let mut outdated = false;
                for mut step in steps {
                    self.record_status(&before, &mut step);
                    let draft = Draft::new(&step, &self.resource.selectable);
                    match self.core.store.update(&storage, revision, draft) {
                        Ok(entry) => revision = entry.revision(),
                        Err(WriteRefused::Changed(_)) => outdated = true,
                        Err(_) => return,
                    }
                    before = step;
                }
                if outdated {
                    continue;
                }
                definition = before;
            }
            self.core.change_registry(|registry| {
                // This cannot fail, because the CRD passed validation.
                let _ = registry.define(&definition);
            });
            self.core.reindex(&definition);
            return;
        }
    }

    /// Records kube-apiserver as the manager of the status fields.
    fn record_status(&self, old: &Value, new: &mut Value) {
        let version = self.resource.api_version();
        apply::record_update(Some(old), new, self.shape(), "kube-apiserver", &version, "status", self.now);
    }

    /// Does what follows from removing an object: if it is a CRD, its kind is no longer served; if it is the last
    /// object of a kind whose CRD is terminating, the CRD is removed.
    pub(crate) fn after_removal(&self, object: &Value) {
        if self.resource.is_definition() {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            self.core.change_registry(|registry| registry.remove(group, plural));
        } else if let Some(custom) = &self.resource.custom
            && custom.terminating
        {
            self.finish_definition(&custom.definition);
        }
    }

    /// Deletes all objects of a kind whose CRD is being deleted. When the last of them is gone, the CRD is removed.
    pub(crate) fn remove_instances(&self, definition: &str) {
        let Some(entry) = self.core.store.get(&DEFINITIONS.into(), definition) else { return };
        let object = entry.value();
        self.core.change_registry(|registry| {
            let _ = registry.define(&object);
        });
        let registry = self.core.registry();
        let served = registry
            .all()
            .find(|resource| resource.custom.as_ref().is_some_and(|custom| custom.definition == definition));
        if let Some(resource) = served {
            self.delete_all(resource);
        }
        self.finish_definition(definition);
    }

    fn delete_all(&self, resource: &Arc<Resource>) {
        let snapshot = self.core.store.list(&resource.storage, &Range::default());
        for entry in &snapshot.entries {
            let path = ResourcePath {
                group: resource.group.clone(),
                version: resource.version.clone(),
                plural: resource.plural.clone(),
                namespace: entry.namespace().to_string(),
                name: Some(entry.name().to_string()),
                subresource: None,
                rest: Vec::new(),
                watch: false,
            };
            let call = self.with(resource.clone(), path);
            // If another request deleted the object in the meantime, this is not an error.
            let _ = call.delete_object(entry.key(), entry.name(), &DeleteOptions::default());
        }
    }

    /// Removes a CRD that is being deleted if there are no more objects of its kind.
    fn finish_definition(&self, name: &str) {
        let storage: StorageId = DEFINITIONS.into();
        loop {
            let Some(entry) = self.core.store.get(&storage, name) else { return };
            let mut definition = entry.value();
            let text = |pointer: &str| {
                definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string()
            };
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            let instances: StorageId = crate::registry::qualified(&group, &plural).into();
            if self.core.store.count(&instances) > 0
                || !definition["metadata"]["deletionTimestamp"].is_string()
            {
                return;
            }
            let finalizers: Vec<String> = definition["metadata"]["finalizers"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .filter(|finalizer| *finalizer != CUSTOM_CLEANUP)
                .map(str::to_string)
                .collect();
            let gone = finalizers.is_empty();
            match definition["metadata"].as_object_mut() {
                Some(metadata) if gone => drop(metadata.remove("finalizers")),
                Some(metadata) => drop(metadata.insert("finalizers".into(), json!(finalizers))),
                None => return,
            }
            let selectable =
                match self.core.registry().any_version("apiextensions.k8s.io", "customresourcedefinitions") {
                    Some(resource) => resource.selectable.clone(),
                    None => return,
                };
            let draft = Draft::new(&definition, &selectable);
            let written = if gone {
                self.core.store.delete(&storage, entry.revision(), draft)
            } else {
                self.core.store.update(&storage, entry.revision(), draft)
            };
            match written {
                Err(WriteRefused::Changed(_)) => continue,
                Ok(_) if gone => self.core.change_registry(|registry| registry.remove(&group, &plural)),
                Ok(_) | Err(_) => {}
            }
            return;
        }
    }
}

/// The status of a CRD whose names are accepted and that is not established yet, with reason `Installing`.
fn with_installing_status(definition: &Value) -> Value {
    let mut definition = definition.clone();
    for condition in definition["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Established" {
            condition["status"] = json!("False");
            condition["reason"] = json!("Installing");
        }
    }
    definition
}

impl Core {
    /// Updates the selectable fields of stored objects after their CustomResourceDefinition changed.
    pub(crate) fn reindex(&self, definition: &Value) {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let registry = self.registry();
        if let Some(resource) = registry.any_version(text("/spec/group"), text("/spec/names/plural")) {
            self.store.reindex(&resource.storage, &resource.selectable);
        }
    }
}
