//! The `scale` subresource: represents the number of replicas of an object as a `Scale`.
//!
//! The `Scale` is computed from the object for each request. A write changes the `Scale`; then only its number of
//! replicas is written to the object.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go

use http::Method;
use serde_json::{Value, json};

use super::Call;
use super::decode::{bad, bad_patch, go_syntax_error, parse_yaml};
use super::patch::{PatchKind, apply_patch};
use super::pipeline::{Ownership, UpdateError};
use crate::admission;
use crate::apply::{self, ApplyRequest, ReplicasPath};
use crate::builtin;
use crate::encode::Reply;
use crate::options::{FieldValidation, WriteOptions};
use crate::registry::Resource;
use crate::shape::Shape;
use crate::status::ApiResult;
use crate::strict;

const GROUP: &str = "autoscaling";
const VERSION: &str = "v1";
const KIND: &str = "Scale";
const API_VERSION: &str = "autoscaling/v1";

/// How the request changes the `Scale`.
enum Change {
    Replace(Value),
    Patch(PatchKind, Value),
    Apply(Value),
}

impl Call<'_> {
    pub(super) fn read_scale(&self) -> ApiResult<Reply> {
        let entry = self.stored()?;
        Ok(Reply::json(200, &self.scale_of(&self.load(&entry))?))
    }

    pub(super) fn change_scale(&self) -> ApiResult<Reply> {
        let patching = self.incoming.method == Method::PATCH;
        let patch_kind = if patching { Some(self.patch_kind()?) } else { None };
        let options_kind = if patching { "PatchOptions" } else { "UpdateOptions" };
        let applies = patch_kind == Some(PatchKind::Apply);
        let options = WriteOptions::parse(&self.incoming.query, options_kind, applies)?;
        let manager = self.incoming.field_manager();
        let (change, warnings) = self.requested_change(patch_kind, &options)?;
        let paths = self.replicas_paths();
        loop {
            let entry = self.stored()?;
            let old = self.load(&entry);
            let mut before = self.scale_of(&old)?;
            apply::copy_owners_to_scale(&old, &mut before, &paths);
            let after = self.changed_scale(&before, &change, &options, &manager)?;
            let given = after["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            if !given.is_empty() && given != old["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
                return Err(self.modified());
            }
            let mut new = old.clone();
            match &self.resource.custom {
                None => {
                    admission::write_scale(&self.resource.group, &self.resource.plural, &mut new, &after)?;
                }
                Some(_) => write_custom_scale(&self.resource, &mut new, &after),
            }
            apply::copy_owners_to_object(&mut new, &after, &paths, &self.resource.api_version());
            match self.store_changed(&entry, &old, new, Ownership::AsGiven, options.dry_run) {
                Ok(written) => {
                    let scale = self.scale_of(&written.value())?;
                    return Ok(Reply::json(200, &scale).with_warnings(warnings));
                }
                Err(UpdateError::Rejected(failure)) => return Err(failure),
                Err(UpdateError::Conflict) if !patching && !given.is_empty() => return Err(self.modified()),
                Err(UpdateError::Conflict) => {}
            }
        }
    }

    /// Decodes the requested change from the body. Also returns warnings.
    fn requested_change(
        &self,
        patch_kind: Option<PatchKind>,
        options: &WriteOptions,
    ) -> ApiResult<(Change, Vec<String>)> {
        let body = &self.incoming.body;
        match patch_kind {
            None => {
                let mut scale = self.body_value()?;
                let is_scale = self.check_kind_is(&mut scale, [GROUP, VERSION, KIND], false);
                if self.resource.custom.is_some() && is_scale.is_err() {
                    return Err(bad("no kind is registered for the type v1.Scale in scheme \
                                    \"pkg/api/legacyscheme/scheme.go:30\""));
                }
                is_scale?;
                if let Some(why) = strict::decode_error(&scale, GROUP, VERSION, KIND) {
                    return Err(Box::new(strict::undecodable(VERSION, KIND, &why)));
                }
                let problems = unknown_fields(&scale);
                if options.field_validation == FieldValidation::Strict && !problems.is_empty() {
                    let why = strict::strict_error(&problems);
                    return Err(Box::new(strict::undecodable(VERSION, KIND, &why)));
                }
                self.check_name_and_namespace(&mut scale)?;
                let warns = options.field_validation == FieldValidation::Warn;
                Ok((Change::Replace(scale), if warns { problems } else { Vec::new() }))
            }
            Some(PatchKind::Apply) => {
                let mut applied = parse_yaml(body)?;
                let text = |field: &str| applied[field].as_str().unwrap_or_default();
                if text("apiVersion") != API_VERSION || text("kind") != KIND {
                    let (group, version) =
                        text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
                    return Err(bad(format!(
                        "invalid object type: {group}/{version}, Kind={}",
                        text("kind")
                    )));
                }
                let name = applied["metadata"]["name"].as_str().unwrap_or_default();
                if !name.is_empty() {
                    self.check_name_and_namespace(&mut applied)?;
                }
                Ok((Change::Apply(applied), Vec::new()))
            }
            Some(kind) => {
                let patch = serde_json::from_slice(body).map_err(|error| {
                    bad(format!("error decoding patch: {}", go_syntax_error(&error, body)))
                })?;
                Ok((Change::Patch(kind, patch), Vec::new()))
            }
        }
    }

    /// The `Scale` after the change, including its managed fields.
    fn changed_scale(
        &self,
        before: &Value,
        change: &Change,
        options: &WriteOptions,
        manager: &str,
    ) -> ApiResult<Value> {
        let shape = builtin::shape(GROUP, VERSION, KIND).unwrap_or(&Shape::Deduced);
        let mut after = match change {
            Change::Apply(applied) => {
                return apply::apply(ApplyRequest {
                    live: Some(before),
                    applied,
                    shape,
                    manager,
                    api_version: API_VERSION,
                    subresource: "scale",
                    force: options.force.unwrap_or(false),
                    now: self.now,
                });
            }
            Change::Replace(scale) => scale.clone(),
            Change::Patch(kind, patch) => {
                let mut after = apply_patch(*kind, before, patch, shape)?;
                if let Err(failure) = self.check_kind_is(&mut after, [GROUP, VERSION, KIND], false) {
                    return Err(if after.is_object() {
                        bad_patch(&after, &failure.message)
                    } else {
                        failure
                    });
                }
                if let Some(why) = strict::decode_error(&after, GROUP, VERSION, KIND) {
                    return Err(bad_patch(&after, &why));
                }
                let problems = unknown_fields(&after);
                if options.field_validation == FieldValidation::Strict && !problems.is_empty() {
                    return Err(bad_patch(&after, &strict::strict_error(&problems)));
                }
                self.check_name_and_namespace(&mut after)?;
                after
            }
        };
        builtin::round_trip(&mut after, GROUP, VERSION, KIND);
        apply::record_update(Some(before), &mut after, shape, manager, API_VERSION, "scale", self.now);
        Ok(after)
    }

    fn scale_of(&self, object: &Value) -> ApiResult<Value> {
        let scale = match &self.resource.custom {
            None => admission::read_scale(&self.resource.group, &self.resource.kind, object),
            Some(_) => custom_scale(&self.resource, object),
        };
        scale.ok_or_else(|| self.not_found())
    }

    /// For every version of the kind: the path of its replicas field, by which managed fields are converted.
    fn replicas_paths(&self) -> Vec<ReplicasPath> {
        let resource = &self.resource;
        if resource.custom.is_none() {
            let path = || Some(vec!["spec".to_string(), "replicas".to_string()]);
            return vec![ReplicasPath { api_version: resource.api_version(), path: path() }];
        }
        let versions = self
            .registry
            .all()
            .filter(|other| other.group == resource.group && other.plural == resource.plural);
        versions
            .map(|version| {
                let scale = version.custom.as_ref().and_then(|custom| custom.kind.scale_paths());
                ReplicasPath {
                    api_version: version.api_version(),
                    path: scale.map(|scale| steps(&scale.spec_replicas).map(str::to_string).collect()),
                }
            })
            .collect()
    }
}

fn unknown_fields(scale: &Value) -> Vec<String> {
    let paths = strict::unknown_fields(scale, GROUP, VERSION, KIND);
    paths.iter().map(|path| format!("unknown field \"{path}\"")).collect()
}

/// The segments of a path, such as `spec` and `replicas` for `.spec.replicas`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|part| !part.is_empty())
}

fn custom_scale(resource: &Resource, object: &Value) -> Option<Value> {
    let paths = resource.custom.as_ref()?.kind.scale_paths()?;
    let at = |path: &str| object.pointer(&path.replace('.', "/"));
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": KIND, "apiVersion": API_VERSION,
        "metadata": {"name": metadata["name"]},
        "spec": {}, "status": {"replicas": at(&paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)},
    });
    for field in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            scale["metadata"][field] = value.clone();
        }
    }
    if let Some(replicas) = at(&paths.spec_replicas).and_then(Value::as_i64).filter(|replicas| *replicas != 0)
    {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = paths.label_selector.as_deref().and_then(at).and_then(Value::as_str) {
        scale["status"]["selector"] = json!(selector);
    }
    Some(scale)
}

fn write_custom_scale(resource: &Resource, object: &mut Value, scale: &Value) {
    let Some(paths) = resource.custom.as_ref().and_then(|custom| custom.kind.scale_paths()) else {
        return;
    };
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let mut place = object;
    for part in steps(&paths.spec_replicas) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = json!(replicas);
}
