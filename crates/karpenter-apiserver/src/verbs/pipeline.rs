//! The way of an object into the store: defaults, admission, rules, ownership of fields, commit.
//!
//! Everything that creates or changes an object goes through here, whatever the verb.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Call;
use crate::admission::{self, Lookup, Operation, Verb};
use crate::clock::rfc3339_seconds;
use crate::registry::qualified;
use crate::server::Core;
use crate::status::{Answer, Failure};
use crate::store::{Draft, Entry, Range, WriteRefused, key};

/// The store as admission reads it.
pub(crate) struct Stored<'a>(pub(crate) &'a Core);

impl Lookup for Stored<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let storage = qualified(group, plural).into();
        self.0.store.get(&storage, &key(namespace, name)).map(|entry| entry.value())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let range = Range { namespace: namespace.to_string(), ..Range::default() };
        let snapshot = self.0.store.list(&qualified(group, plural).into(), &range);
        snapshot.entries.iter().map(|entry| entry.value()).collect()
    }
}

/// What became of a write.
pub(crate) enum Written {
    /// Stored, or unchanged and left as it was.
    Stored(Arc<Entry>),
    /// The write let a deletion finish; this was the last state.
    Deleted(Arc<Entry>),
    /// A dry run: what would have been stored.
    Imagined(Value),
}

impl Written {
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Stored(entry) | Self::Deleted(entry) => entry.value(),
            Self::Imagined(value) => value.clone(),
        }
    }
}

impl Call<'_> {
    pub(crate) fn operation<'b>(
        &'b self,
        verb: Verb,
        name: &'b str,
        old: Option<&'b Value>,
    ) -> Operation<'b> {
        Operation {
            verb,
            group: &self.resource.group,
            version: &self.resource.version,
            kind: &self.resource.kind,
            plural: &self.resource.plural,
            subresource: self.subresource(),
            namespace: &self.path.namespace,
            name,
            old,
            now: self.now,
        }
    }

    pub(crate) fn reply_written(&self, code: u16, written: &Written) -> crate::encode::Reply {
        match written {
            Written::Stored(entry) | Written::Deleted(entry) => self.reply_entry(code, entry),
            Written::Imagined(value) => self.reply_object(code, value),
        }
    }

    fn draft(&self, object: &Value) -> Draft {
        Draft::new(object, &self.resource.selectable)
    }

    /// Stores a new object, all checks included.
    pub(crate) fn store_new(&self, mut object: Value, dry_run: bool) -> Answer<Written> {
        let resource = &self.resource;
        let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|text| !text.is_empty()) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Box::new(Failure::new(500, "", why)));
        }
        admission::default_object(group, version, kind, &mut object);
        admission::prepare_create(group, version, kind, &mut object, self.now);
        self.set_system_metadata(&mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        admission::admit(&self.operation(Verb::Create, &name, None), &mut object, &Stored(self.core))?;
        let errors = admission::validate_create(group, version, kind, &object);
        if !errors.is_empty() {
            return Err(Box::new(Failure::invalid(group, kind, &name, &errors)));
        }
        let exists = || Box::new(Failure::already_exists(group, &resource.plural, &name));
        if dry_run {
            let stored = self.core.store.get(&resource.storage, &key(&self.path.namespace, &name));
            return if stored.is_some() { Err(exists()) } else { Ok(Written::Imagined(object)) };
        }
        let entry = self.core.store.create(&resource.storage, self.draft(&object)).map_err(|_| exists())?;
        Ok(Written::Stored(entry))
    }

    fn set_system_metadata(&self, object: &mut Value) {
        let generated = {
            let metadata = &object["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default();
            (text("name").is_empty() && !text("generateName").is_empty())
                .then(|| self.core.ids.name(text("generateName")))
        };
        let metadata = &mut object["metadata"];
        if let Some(name) = generated {
            metadata["name"] = json!(name);
        }
        metadata["uid"] = json!(self.core.ids.uid());
        metadata["creationTimestamp"] = json!(rfc3339_seconds(self.now));
        if let Some(fields) = metadata.as_object_mut() {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
                fields.remove(field);
            }
        }
    }

    /// Replaces `entry` by `new`, all checks included. `Err(None)`: it changed meanwhile, look again.
    pub(crate) fn store_changed(
        &self,
        entry: &Arc<Entry>,
        old: &Value,
        mut new: Value,
        dry_run: bool,
    ) -> Result<Written, Option<Box<Failure>>> {
        let resource = &self.resource;
        let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
        let subresource = self.subresource();
        admission::default_object(group, version, kind, &mut new);
        keep_system_metadata(&mut new, old);
        admission::prepare_update(group, version, kind, &mut new, old, subresource);
        let operation = self.operation(Verb::Update, self.name(), Some(old));
        admission::admit(&operation, &mut new, &Stored(self.core)).map_err(Some)?;
        let errors = admission::validate_update(group, version, kind, &new, old, subresource);
        if !errors.is_empty() {
            return Err(Some(Box::new(Failure::invalid(group, kind, self.name(), &errors))));
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let gone = deletion_is_complete(&new);
        if same_apart_from_times(&new, old) && !gone {
            return Ok(Written::Stored(entry.clone()));
        }
        if dry_run {
            return Ok(Written::Imagined(new));
        }
        let store = &self.core.store;
        let written = if gone {
            store.delete(&resource.storage, entry.revision(), self.draft(&new)).map(Written::Deleted)
        } else {
            store.update(&resource.storage, entry.revision(), self.draft(&new)).map(Written::Stored)
        };
        written.map_err(|refused| match refused {
            WriteRefused::Changed(_) => None,
            WriteRefused::Missing | WriteRefused::Exists => Some(self.not_found()),
        })
    }
}

/// What no update can change.
fn keep_system_metadata(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        let kept = old["metadata"].get(field).cloned();
        let Some(metadata) = new["metadata"].as_object_mut() else { continue };
        match kept {
            Some(value) => metadata.insert(field.into(), value),
            None => metadata.remove(field),
        };
    }
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("selfLink");
    }
}

/// An object that is being deleted goes when its last finalizer does and no grace period is left.
pub(crate) fn deletion_is_complete(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let waits = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    metadata["deletionTimestamp"].is_string() && !waits && grace == 0
}

/// Equal, if the times in `metadata.managedFields` do not count.
fn same_apart_from_times(new: &Value, old: &Value) -> bool {
    if new == old {
        return true;
    }
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
            for entry in entries {
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("time");
                }
            }
        }
        object
    };
    timeless(new) == timeless(old)
}
