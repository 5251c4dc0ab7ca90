//! The steps of a write: defaults, managed fields, admission, validation, commit.
//!
//! Every verb that creates or updates an object takes these steps.
//!
//! Upstream: k8s.io/apiserver/pkg/registry/rest/create.go, k8s.io/apiserver/pkg/registry/rest/update.go

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Call;
use super::services;
use crate::admission::{self, Lookup, Operation, Verb};
use crate::apply::{self, EncodedUpdate};
use crate::builtin;
use crate::clock::rfc3339_seconds;
use crate::convert;
use crate::crd;
use crate::field::FieldError;
use crate::registry::{Conversion, qualified};
use crate::server::Core;
use crate::shape::Shape;
use crate::status::{ApiResult, Failure};
use crate::store::{Draft, Entry, Range, WriteRefused, key};

/// Lets admission read objects in the store.
pub(crate) struct StoreLookup<'a>(pub(crate) &'a Core);

impl Lookup for StoreLookup<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let storage = qualified(group, plural).into();
        self.0.store.get(&storage, &key(namespace, name)).map(|entry| entry.shared_value())
    }

    fn label(&self, group: &str, plural: &str, namespace: &str, name: &str, label: &str) -> Option<String> {
        let storage = qualified(group, plural).into();
        self.0.store.get(&storage, &key(namespace, name))?.label(label).map(str::to_string)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let range = Range { namespace: namespace.to_string(), ..Range::default() };
        let snapshot = self.0.store.list(&qualified(group, plural).into(), &range);
        snapshot.entries.iter().map(|entry| entry.shared_value()).collect()
    }
}

/// The result of a write.
#[derive(Debug, Clone)]
pub(crate) enum Written {
    /// Stored, or unchanged.
    Stored(Arc<Entry>),
    /// The write removed the last finalizer of a terminating object, which was then deleted; this is its last state.
    Deleted(Arc<Entry>),
    /// The object for the response. It is not stored, because the write was a dry run or completed a deletion.
    ResponseOnly(Value),
}

impl Written {
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Stored(entry) | Self::Deleted(entry) => entry.value(),
            Self::ResponseOnly(value) => value.clone(),
        }
    }
}

/// Why an update was not stored.
pub(crate) enum UpdateError {
    Rejected(Box<Failure>),
    /// Another request changed the stored object in the meantime.
    Conflict,
}

impl From<Box<Failure>> for UpdateError {
    fn from(failure: Box<Failure>) -> Self {
        Self::Rejected(failure)
    }
}

/// How `metadata.managedFields` changes with a write.
#[derive(Clone, Copy)]
pub(crate) enum Ownership<'a> {
    /// The changed fields are recorded as owned by this manager.
    Manager(&'a str),
    /// Like `Manager`, for objects that were decoded without `managedFields`: the stored managed fields are changed as
    /// JSON. This works only for built-in kinds in their storage version.
    ManagerEncoded(&'a str),
    /// The object already has its final `managedFields`, as after server-side apply.
    AsGiven,
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

    /// Decodes a stored object, in the version that [`Self::resource`] has.
    pub(crate) fn load(&self, entry: &Entry) -> Value {
        let mut object = entry.value();
        if self.resource.conversion == Conversion::ApiVersion {
            object["apiVersion"] = json!(self.resource.api_version());
        }
        object
    }

    pub(crate) fn draft(&self, object: &Value) -> Draft {
        self.draft_with(object, None)
    }

    fn draft_with(&self, object: &Value, managed_fields: Option<&[u8]>) -> Draft {
        let mut object = Cow::Borrowed(object);
        if self.resource.conversion == Conversion::ApiVersion {
            object.to_mut()["apiVersion"] = json!(self.resource.storage_api_version());
        }
        Draft::with_managed_fields(&object, &self.resource.selectable, managed_fields)
    }

    pub(crate) fn shape(&self) -> &Shape {
        match &self.resource.custom {
            Some(custom) => custom.kind.shape(),
            None => builtin::shape(&self.resource.group, &self.resource.version, &self.resource.kind)
                .unwrap_or(&Shape::Deduced),
        }
    }

    /// Normalizes the object as Go does by decoding and encoding it, and applies defaults.
    pub(crate) fn normalise(&self, object: &mut Value) {
        let (group, version, kind) = (&self.resource.group, &self.resource.version, &self.resource.kind);
        if let Some(custom) = &self.resource.custom {
            custom.kind.default(object);
            return;
        }
        builtin::round_trip(object, group, version, kind);
        admission::default_object(group, version, kind, object);
        if self.resource.is_definition() {
            crd::default_definition(object);
        }
    }

    pub(crate) fn record(&self, old: Option<&Value>, new: &mut Value, ownership: Ownership<'_>) {
        let Ownership::Manager(manager) = ownership else { return };
        let version = self.served.api_version();
        let subresource = self.subresource();
        if !self.is_converted() {
            apply::record_update(old, new, self.shape(), manager, &version, subresource, self.now);
            return;
        }
        // Managed fields refer to the version in which the request was made.
        let old = old.map(|old| convert::from_stored(&self.served, old.clone()));
        let mut shown = convert::from_stored(&self.served, new.clone());
        let shape = self.served_shape();
        apply::record_update(old.as_ref(), &mut shown, shape, manager, &version, subresource, self.now);
        let fields = shown["metadata"]["managedFields"].take();
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            if !fields.is_null() {
                metadata.insert("managedFields".into(), fields);
            }
        }
    }

    /// Like [`Self::record`], for a new object; [`apply::record_create`] documents the result.
    fn record_new(&self, object: &mut Value, manager: &str) -> Option<Vec<u8>> {
        if self.is_converted() {
            self.record(None, object, Ownership::Manager(manager));
            return None;
        }
        let version = self.served.api_version();
        apply::record_create(object, self.shape(), manager, &version, self.now)
    }

    fn record_update_encoded(
        &self,
        entry: &Entry,
        old: &Value,
        new: &Value,
        manager: &str,
    ) -> Option<EncodedUpdate> {
        let (stored, version) = (entry.managed_fields(), self.resource.api_version());
        apply::record_update_encoded(
            stored,
            old,
            new,
            self.shape(),
            manager,
            &version,
            self.subresource(),
            self.now,
        )
    }

    /// Whether the served version has other fields than the storage version.
    pub(crate) fn is_converted(&self) -> bool {
        matches!(self.served.conversion, Conversion::Event | Conversion::Autoscaler)
    }

    fn refuse_invalid(&self, name: &str, errors: &[FieldError]) -> ApiResult<()> {
        if errors.is_empty() {
            return Ok(());
        }
        // Core Events and those of `events.k8s.io` are the same kind; error messages name the core group.
        let group = if self.resource.is("events.k8s.io", "Event") { "" } else { &self.resource.group };
        Err(Box::new(Failure::invalid(group, &self.resource.kind, name, errors)))
    }

    /// Runs all checks on a new object, then stores it.
    pub(crate) fn store_new(
        &self,
        mut object: Value,
        ownership: Ownership<'_>,
        dry_run: bool,
    ) -> ApiResult<Written> {
        let resource = &self.resource;
        let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|text| !text.is_empty()) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Box::new(Failure::new(500, "", why)));
        }
        if resource.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Box::new(Failure::new(405, "MethodNotAllowed", why)));
        }
        self.normalise(&mut object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // Clients cannot set these fields, so no manager owns them.
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        let managed_fields = match ownership {
            Ownership::AsGiven => None,
            Ownership::Manager(manager) | Ownership::ManagerEncoded(manager) => {
                self.record_new(&mut object, manager)
            }
        };
        let given = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        admission::admit(&self.operation(Verb::Create, &given, None), &mut object, &StoreLookup(self.core))?;
        // Name and uid must be set before: the selector of a Job contains its uid, and its pod labels contain its name.
        self.set_system_metadata(&mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        match &resource.custom {
            Some(custom) => {
                admission::prepare_custom_create(&mut object, custom.kind.has_status());
                // The status was reset, so its defaults are applied again, as kube-apiserver does when it reads the
                // object from storage.
                custom.kind.default(&mut object);
            }
            None => admission::prepare_create(group, version, kind, &mut object, self.now),
        }
        if resource.is_definition() {
            prepare_definition(&mut object);
        }
        if resource.is("", "Service") {
            services::allocate(&mut object, None, &StoreLookup(self.core));
        }
        let errors = match &resource.custom {
            Some(custom) => {
                let mut errors = admission::validate_custom_metadata(&object, resource.namespaced);
                custom.kind.check_create(&object, &mut errors);
                errors
            }
            None => {
                let mut errors = admission::validate_create(group, version, kind, &object);
                if resource.is_definition() {
                    errors.extend(crd::validate_definition(&object, None));
                }
                errors
            }
        };
        self.refuse_invalid(&name, &errors)?;
        if resource.custom.is_some() {
            crd::normalise_numbers(&mut object);
        }
        let exists = || {
            let mut failure = Failure::already_exists(group, &resource.plural, &name);
            let stored = self.core.store.get(&resource.storage, &key(&self.path.namespace, &name));
            if stored.is_some_and(|entry| entry.value()["metadata"]["deletionTimestamp"].is_string()) {
                failure.message = format!("object is being deleted: {}", failure.message);
            }
            Box::new(failure)
        };
        if dry_run {
            let stored = self.core.store.get(&resource.storage, &key(&self.path.namespace, &name));
            if stored.is_some() {
                return Err(exists());
            }
            if let Some(text) = managed_fields {
                object["metadata"]["managedFields"] = serde_json::from_slice(&text).unwrap_or_default();
            }
            return Ok(Written::ResponseOnly(object));
        }
        let draft = self.draft_with(&object, managed_fields.as_deref());
        let entry = self.core.store.create(&resource.storage, draft).map_err(|_| exists())?;
        if resource.is_definition() {
            self.establish(&name);
        }
        Ok(Written::Stored(entry))
    }

    fn set_system_metadata(&self, object: &mut Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let generated = (text("name").is_empty() && !text("generateName").is_empty())
            .then(|| self.core.ids.name(text("generateName")));
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

    /// Runs all checks on `new`, then stores it in place of the object in `entry`, which `old` is the decoded form of.
    pub(crate) fn store_changed(
        &self,
        entry: &Arc<Entry>,
        old: &Value,
        mut new: Value,
        ownership: Ownership<'_>,
        dry_run: bool,
    ) -> Result<Written, UpdateError> {
        let resource = &self.resource;
        let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
        let subresource = self.subresource();
        self.normalise(&mut new);
        keep_system_metadata(&mut new, old);
        self.record(Some(old), &mut new, ownership);
        let encoded = match ownership {
            Ownership::ManagerEncoded(manager) => match self.record_update_encoded(entry, old, &new, manager)
            {
                Some(encoded) => Some(encoded),
                None => {
                    let old = self.load(entry);
                    new["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
                    return self.store_changed(entry, &old, new, Ownership::Manager(manager), dry_run);
                }
            },
            Ownership::Manager(_) | Ownership::AsGiven => None,
        };
        admission::admit(
            &self.operation(Verb::Update, self.name(), Some(old)),
            &mut new,
            &StoreLookup(self.core),
        )?;
        match &resource.custom {
            Some(custom) => {
                admission::prepare_custom_update(&mut new, old, subresource, custom.kind.has_status());
            }
            None => admission::prepare_update(group, version, kind, &mut new, old, subresource),
        }
        if resource.is_definition() && subresource.is_empty() && new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if resource.is("", "Service") && subresource.is_empty() {
            services::allocate(&mut new, Some(old), &StoreLookup(self.core));
        }
        let errors = match &resource.custom {
            Some(custom) => {
                let mut errors = admission::validate_custom_metadata_update(&new, old, resource.namespaced);
                match subresource {
                    "status" => custom.kind.check_status_update(&new, old, &mut errors),
                    _ => custom.kind.check_update(&new, old, &mut errors),
                }
                errors
            }
            None => {
                let mut errors = admission::validate_update(group, version, kind, &new, old, subresource);
                if resource.is_definition() && subresource.is_empty() {
                    errors.extend(crd::validate_definition(&new, Some(old)));
                }
                errors
            }
        };
        self.refuse_invalid(self.name(), &errors)?;
        if resource.custom.is_some() {
            crd::normalise_numbers(&mut new);
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let gone = self.deletion_is_complete(&new);
        let is_same = match &encoded {
            Some(encoded) => !encoded.is_changed && new == *old,
            None => equal_except_times(&new, old),
        };
        if !gone && is_same {
            return Ok(Written::Stored(entry.clone()));
        }
        // If the managed fields were not decoded, their JSON is stored.
        let records = encoded.and_then(|encoded| match encoded.text {
            Some(text) => Some(Cow::Owned(text)),
            None => entry.managed_fields().map(Cow::Borrowed),
        });
        if let (true, Some(text)) = (dry_run || gone, &records) {
            new["metadata"]["managedFields"] = serde_json::from_slice(text).unwrap_or_default();
        }
        if dry_run {
            return Ok(Written::ResponseOnly(new));
        }
        let store = &self.core.store;
        let written = if gone {
            // The `DELETED` event contains the object as it was stored last; the response contains the updated object.
            let last = self.draft(&self.load(entry));
            store.delete(&resource.storage, entry.revision(), last).map(|_| Written::ResponseOnly(new))
        } else {
            let draft = self.draft_with(&new, records.as_deref());
            store.update(&resource.storage, entry.revision(), draft).map(Written::Stored)
        };
        match written {
            Ok(written) => {
                if gone {
                    self.after_removal(old);
                } else if resource.is_definition() && subresource.is_empty() {
                    self.establish(self.name());
                }
                Ok(written)
            }
            Err(WriteRefused::Changed(_)) => Err(UpdateError::Conflict),
            Err(WriteRefused::Missing | WriteRefused::Exists) => Err(UpdateError::Rejected(self.not_found())),
        }
    }

    /// Whether a terminating object has neither finalizers nor a grace period left, so that it must be removed.
    fn deletion_is_complete(&self, object: &Value) -> bool {
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let metadata = &object["metadata"];
        let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        metadata["deletionTimestamp"].is_string()
            && is_empty(&metadata["finalizers"])
            && grace == 0
            && (!self.resource.is("", "Namespace") || is_empty(&object["spec"]["finalizers"]))
    }
}

/// Sets the generation and `status.storedVersions` of a new CustomResourceDefinition.
fn prepare_definition(definition: &mut Value) {
    definition["metadata"]["generation"] = json!(1);
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> = versions
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    definition["status"]["storedVersions"] = json!(stored);
}

/// Resets those metadata fields that an update cannot change.
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

/// Whether two objects are equal, ignoring the times in `metadata.managedFields`.
fn equal_except_times(new: &Value, old: &Value) -> bool {
    equal_except(new, old, &["metadata", "managedFields"], &|new, old| {
        let (Value::Array(new), Value::Array(old)) = (new, old) else { return new == old };
        let same = |(new, old)| equal_except(new, old, &["time"], &|_, _| true);
        new.len() == old.len() && new.iter().zip(old).all(same)
    })
}

/// Whether two values are equal, where the parts at `path` are compared by `equal`. An absent part counts as null.
fn equal_except(left: &Value, right: &Value, path: &[&str], equal: &dyn Fn(&Value, &Value) -> bool) -> bool {
    let [name, rest @ ..] = path else { return equal(left, right) };
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    let others = |object: &Map<String, Value>| object.len() - usize::from(object.contains_key(*name));
    let (left_part, right_part) = (left.get(*name), right.get(*name));
    others(left) == others(right)
        && left.iter().all(|(key, value)| key == name || right.get(key) == Some(value))
        && equal_except(left_part.unwrap_or(&Value::Null), right_part.unwrap_or(&Value::Null), rest, equal)
}
