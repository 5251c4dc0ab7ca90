//! The verb `patch`: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/patch.go

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Call;
use super::decode::{bad, clear_namespace, go_syntax_error, parse_yaml};
use super::pipeline::{Ownership, UpdateError};
use crate::apply::{self, ApplyRequest};
use crate::convert;
use crate::encode::Reply;
use crate::field::FieldError;
use crate::options::WriteOptions;
use crate::patch;
use crate::shape::Shape;
use crate::status::{ApiResult, Failure};
use crate::strict;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Call<'_> {
    pub(crate) fn patch(&self) -> ApiResult<Reply> {
        let kind = self.patch_kind()?;
        let options = WriteOptions::parse(&self.incoming.query, "PatchOptions", kind == PatchKind::Apply)?;
        let manager = self.incoming.field_manager();
        if kind == PatchKind::Apply {
            return self.server_side_apply(&options, &manager);
        }
        let body = &self.incoming.body;
        let patch = serde_json::from_slice(body)
            .map_err(|error| bad(format!("error decoding patch: {}", go_syntax_error(&error, body))))?;
        // Most patches do not touch `managedFields`. For these, the stored managed fields are not decoded.
        let mut skips_managed_fields = self.resource.custom.is_none()
            && self.presents_as_stored()
            && matches!(kind, PatchKind::Merge | PatchKind::Strategic)
            && !contains(body, b"managedFields");
        loop {
            let entry = self.stored()?;
            let (old, ownership) = if skips_managed_fields {
                (entry.value_without_managed_fields(), Ownership::ManagerEncoded(&manager))
            } else {
                (self.load(&entry), Ownership::Manager(&manager))
            };
            let (new, warnings) = match self.patched(kind, &old, &patch, &options) {
                Ok(patched) => patched,
                // Error messages quote the whole object, so the patch is applied again with the managed fields decoded.
                Err(_) if skips_managed_fields => {
                    skips_managed_fields = false;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.check_identity(&new, &old)?;
            self.check_revision(&new, &old)?;
            match self.store_changed(&entry, &old, new, ownership, options.dry_run) {
                Ok(written) => return Ok(self.reply_written(200, &written).with_warnings(warnings)),
                Err(UpdateError::Rejected(failure)) => return Err(failure),
                Err(UpdateError::Conflict) => {}
            }
        }
    }

    /// Checks that the patch does not change the identity of the object.
    fn check_identity(&self, new: &Value, old: &Value) -> ApiResult<()> {
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let name = text(new, "name");
        if name != self.name() {
            return Err(bad(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.name()
            )));
        }
        let mut errors: Vec<FieldError> = ["uid", "deletionTimestamp"]
            .into_iter()
            .filter(|field| !text(new, field).is_empty() && text(new, field) != text(old, field))
            .map(|field| {
                FieldError::invalid(
                    format!("metadata.{field}"),
                    json!(text(new, field)),
                    "field is immutable",
                )
            })
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        if self.resource.custom.is_none() {
            // For built-in kinds kube-apiserver reports these errors twice: in the generic validation and in that of
            // the kind.
            errors.extend_from_within(..);
        }
        Err(Box::new(Failure::invalid(&self.resource.group, &self.resource.kind, self.name(), &errors)))
    }

    pub(crate) fn patch_kind(&self) -> ApiResult<PatchKind> {
        let custom = self.resource.custom.is_some();
        match self.incoming.content_type().as_str() {
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
            "application/apply-patch+yaml" => Ok(PatchKind::Apply),
            _ if custom => Err(Box::new(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ))),
            _ => {
                let failure = Failure::unsupported_media_type("415: Unsupported Media Type");
                Err(Box::new(failure.with_empty_details()))
            }
        }
    }

    /// Applies the patch to the object in its served version. Returns the resulting object in the storage version, and
    /// warnings.
    fn patched(
        &self,
        kind: PatchKind,
        old: &Value,
        patch: &Value,
        options: &WriteOptions,
    ) -> ApiResult<(Value, Vec<String>)> {
        let before = if self.presents_as_stored() {
            Cow::Borrowed(old)
        } else {
            Cow::Owned(convert::from_stored(&self.served, old.clone()))
        };
        let mut after = apply_patch(kind, &before, patch, self.served_shape())?;
        if kind == PatchKind::Strategic {
            // A strategic merge patch cannot change `apiVersion` and `kind`.
            after["apiVersion"] = before["apiVersion"].clone();
            after["kind"] = before["kind"].clone();
        }
        if !self.resource.namespaced {
            clear_namespace(&mut after);
        }
        self.check_patched_kind(&mut after)?;
        let warnings = self.check_patched(&mut after, options.field_validation)?;
        let after = convert::to_stored(&self.served, after, &self.resource.api_version());
        Ok((after, warnings))
    }

    pub(crate) fn served_shape(&self) -> &Shape {
        if self.presents_as_stored() || self.resource.custom.is_some() {
            return self.shape();
        }
        crate::builtin::shape(&self.served.group, &self.served.version, &self.served.kind)
            .unwrap_or(&Shape::Deduced)
    }

    fn server_side_apply(&self, options: &WriteOptions, manager: &str) -> ApiResult<Reply> {
        let mut applied = parse_yaml(&self.incoming.body)?;
        self.check_applied(&mut applied)?;
        self.check_applied_fields(&applied)?;
        let api_version = self.served.api_version();
        loop {
            let entry = self.core.store.get(&self.resource.storage, &self.key());
            let live = entry.as_ref().map(|entry| self.load(entry));
            if live.is_none() && !self.subresource().is_empty() {
                return Err(self.not_found());
            }
            if live.is_none() && applied["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    applied["metadata"]["uid"].as_str().unwrap_or_default()
                );
                let (group, plural) = (&self.resource.group, &self.resource.plural);
                return Err(Box::new(Failure::conflict(group, plural, self.name(), &why)));
            }
            let shown = match &live {
                Some(live) if self.is_converted() => Some(convert::from_stored(&self.served, live.clone())),
                _ => None,
            };
            let merged = apply::apply(ApplyRequest {
                live: shown.as_ref().or(live.as_ref()),
                applied: &applied,
                shape: self.served_shape(),
                manager,
                api_version: &api_version,
                subresource: self.subresource(),
                force: options.force.unwrap_or(false),
                now: self.now,
            })?;
            let mut merged = convert::to_stored(&self.served, merged, &self.resource.api_version());
            if self.resource.namespaced {
                merged["metadata"]["namespace"] = json!(self.path.namespace);
            } else {
                clear_namespace(&mut merged);
            }
            let (Some(entry), Some(live)) = (entry, live) else {
                match self.store_new(merged, Ownership::AsGiven, options.dry_run) {
                    Ok(written) => return Ok(self.reply_written(201, &written)),
                    // Another request has created the object in the meantime, so the configuration is applied to that
                    // object.
                    Err(failure) if failure.reason == "AlreadyExists" && !options.dry_run => continue,
                    Err(failure) => return Err(failure),
                }
            };
            self.check_revision(&applied, &live)?;
            match self.store_changed(&entry, &live, merged, Ownership::AsGiven, options.dry_run) {
                Ok(written) => return Ok(self.reply_written(200, &written)),
                Err(UpdateError::Rejected(failure)) => return Err(failure),
                Err(UpdateError::Conflict) => {}
            }
        }
    }

    /// Checks the fields and types of an applied object. Unknown fields are errors, whatever `fieldValidation` says.
    fn check_applied_fields(&self, applied: &Value) -> ApiResult<()> {
        apply::check_applied(applied, self.served_shape())?;
        if self.resource.custom.is_some() {
            return Ok(());
        }
        let served = &self.served;
        match strict::decode_error(applied, &served.group, &served.version, &served.kind) {
            Some(why) => Err(apply::untyped(applied, &why)),
            None => Ok(()),
        }
    }

    /// Checks that an applied object states its kind, and that its name and namespace agree with the path.
    fn check_applied(&self, applied: &mut Value) -> ApiResult<()> {
        if !applied.is_object() {
            return Err(bad("error decoding YAML: the body is not an object"));
        }
        let text = |field: &str| applied[field].as_str().unwrap_or_default();
        let (given, kind) = (text("apiVersion"), text("kind"));
        if self.resource.custom.is_none() && (given != self.served.api_version() || kind != self.served.kind)
        {
            let (group, version) = given.split_once('/').unwrap_or(("", given));
            return Err(bad(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        self.check_kind(applied)?;
        let name = applied["metadata"]["name"].as_str().unwrap_or_default();
        if !name.is_empty() && name != self.name() {
            return Err(bad(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.name()
            )));
        }
        applied["metadata"]["name"] = json!(self.name());
        if self.resource.namespaced {
            let namespace = applied["metadata"]["namespace"].as_str().unwrap_or_default();
            if !namespace.is_empty() && namespace != self.path.namespace {
                return Err(bad(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        Ok(())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Applies a patch whose result depends only on the object. `PatchKind::Apply` is handled by `server_side_apply`
/// instead.
pub(crate) fn apply_patch(
    kind: PatchKind,
    current: &Value,
    patch: &Value,
    shape: &Shape,
) -> ApiResult<Value> {
    match kind {
        PatchKind::Json => patch::json_patch(current, patch),
        PatchKind::Merge | PatchKind::Apply => patch::checked_merge_patch(current, patch),
        PatchKind::Strategic => patch::strategic_merge(current, patch, shape),
    }
}
