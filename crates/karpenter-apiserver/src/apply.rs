//! Server-side apply, and the ownership of fields (`metadata.managedFields`).
//!
//! [`apply`] merges the configuration that a manager applies into the live object. If another manager owns a field with
//! another value, this is a conflict, unless the apply is forced. A field that the manager applied before and no longer
//! applies is removed, unless another manager owns it. [`record_update`] computes the ownership for all other writes.
//! Managed fields recorded for other versions of the kind are not converted.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6, k8s.io/apimachinery/pkg/util/managedfields/internal

mod create;
mod encoded;
mod managed;
mod path;
mod scale;
mod set;
#[cfg(test)]
mod tests;
mod typed;
mod updater;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::builtin;
use crate::clock::rfc3339_seconds;
use crate::patch::unexpected;
use crate::shape::Shape;
use crate::status::{ApiResult, Cause, Failure};
use managed::{ManagedFields, ManagerId};
use path::Path;
pub use scale::{ReplicasPath, copy_owners_to_object, copy_owners_to_scale};
use set::FieldSet;
use updater::Conflict;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The field manager of `kubectl apply --server-side`. Only for this manager, apply takes over fields that client-side
/// apply owns.
const KUBECTL: &str = "kubectl";
const MAX_UPDATE_MANAGERS: usize = 10;
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

pub struct ApplyRequest<'request> {
    /// The stored object; `None` if no object is stored.
    pub live: Option<&'request Value>,
    pub applied: &'request Value,
    pub shape: &'request Shape,
    pub manager: &'request str,
    pub api_version: &'request str,
    /// The subresource; empty if the request is for the object itself.
    pub subresource: &'request str,
    pub force: bool,
    pub now: Timestamp,
}

/// Applies a configuration; returns the resulting object with its new `managedFields`.
///
/// An object of a built-in kind is normalized as Go encodes it, but defaults are not applied. If neither fields nor
/// owners change, the result equals the live object, including the times of its managed fields.
pub fn apply(request: ApplyRequest<'_>) -> ApiResult<Value> {
    let version = request.applied.get("apiVersion").and_then(Value::as_str).unwrap_or("");
    if version != request.api_version {
        let message = format!("invalid object type: {}", group_version_kind(request.applied));
        return Err(Box::new(Failure::bad_request(message)));
    }
    if request.applied.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Box::new(Failure::bad_request("metadata.managedFields must be nil")));
    }
    let managed = ManagedFields::decode(request.live.and_then(managed_fields))
        .map_err(|why| unexpected(format!("failed to decode managed fields: {why}")))?;
    let empty = empty_object(request.applied);
    let mut live = request.live.cloned().unwrap_or_else(|| empty.clone());
    take_managed_fields(&mut live);
    check_applied(request.applied, request.shape)?;
    let reset = reset_fields(request.applied, request.shape, request.subresource);
    let write = Write { shape: request.shape, reset: &reset, now: rfc3339_seconds(request.now) };
    let managed = if managed.is_empty() {
        // The object has no managed fields yet, so its fields are assigned to the manager `before-first-apply`.
        let before = ManagerId::update("before-first-apply", request.api_version, request.subresource);
        write.update(&empty, &live, managed, &before)
    } else {
        managed
    };
    let manager = if request.manager.is_empty() { "unknown" } else { request.manager };
    let id = ManagerId::apply(manager, request.subresource);
    let outcome = match write.apply(&live, &request, managed.clone(), &id, request.force) {
        Err(conflicts) if request.manager == KUBECTL => {
            let remaining = without_last_applied(conflicts, &live, &request);
            if !remaining.is_empty() {
                return Err(conflict_failure(&remaining));
            }
            write.apply(&live, &request, managed, &id, true)
        }
        outcome => outcome,
    };
    let (mut object, managed) = outcome.map_err(|conflicts| conflict_failure(&conflicts))?;
    if request.manager == KUBECTL {
        refresh_last_applied(&mut object, request.applied);
    }
    drop_leftover_nulls(&mut object, &[Some(&live), Some(request.applied)]);
    normalise(&mut object);
    put_managed_fields(&mut object, managed.encode());
    match request.live {
        // A difference only in empty fields, which normalization omits, is not a change.
        Some(live) if equal_except_times(live, &object) => Ok(live.clone()),
        _ => Ok(object),
    }
}

/// Checks that all fields of an applied object are known and have the right types.
pub fn check_applied(applied: &Value, shape: &Shape) -> ApiResult<()> {
    let problems = typed::validate(applied, shape);
    if problems.is_empty() { Ok(()) } else { Err(untyped(applied, &typed::problems_text(&problems))) }
}

/// The error for an applied object that does not match the schema of its kind.
pub(crate) fn untyped(applied: &Value, why: &str) -> Box<Failure> {
    unexpected(format!("failed to create typed patch object ({}): {why}", object_description(applied)))
}

/// Records in `new` that `manager` owns the fields in which `new` differs from `old`. `old` is `None` for a create.
///
/// Objects of built-in kinds should be normalized (`builtin::round_trip`) before. Otherwise the ownership of empty
/// fields differs from kube-apiserver's.
pub fn record_update(
    old: Option<&Value>,
    new: &mut Value,
    shape: &Shape,
    manager: &str,
    api_version: &str,
    subresource: &str,
    now: Timestamp,
) {
    let sent = take_managed_fields(new);
    let stored = || ManagedFields::decode(old.and_then(managed_fields)).unwrap_or_default();
    let managed = match &sent {
        _ if !subresource.is_empty() => stored(),
        Some(sent) if is_reset(sent) => ManagedFields::default(),
        // A client that does not know `managedFields` sends none, so the stored ones are kept.
        sent => match ManagedFields::decode(sent.as_ref()) {
            Ok(managed) if !managed.is_empty() => managed,
            _ => stored(),
        },
    };
    let is_create = old.and_then(|old| old.pointer("/metadata/uid")?.as_str()).unwrap_or("").is_empty();
    if managed.is_empty() && !is_create {
        // The client has reset the managed fields. They are recorded again from the next apply on.
        return;
    }
    // `old` may have `managedFields` while `new` has none. This does not affect the comparison, because no manager owns
    // that field.
    let empty = if old.is_none() { empty_object(new) } else { Value::Null };
    let live = old.unwrap_or(&empty);
    let reset = reset_fields(new, shape, subresource);
    let write = Write { shape, reset: &reset, now: rfc3339_seconds(now) };
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let managed = write.update(live, new, managed, &ManagerId::update(manager, api_version, subresource));
    put_managed_fields(new, managed.encode());
}

/// Like [`record_update`], for a create. If it returns the JSON of `metadata.managedFields`, then `new` does not
/// contain them: decoding them is expensive, and admission and validation of a new object do not need them.
pub fn record_create(
    new: &mut Value,
    shape: &Shape,
    manager: &str,
    api_version: &str,
    now: Timestamp,
) -> Option<Vec<u8>> {
    if managed_fields(new).is_none_or(is_reset)
        && let Ok(fields) = create::fields(zero_value(new), new, shape, reset_paths(new, shape, ""))
    {
        take_managed_fields(new);
        let fields = fields?;
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let mut text = Vec::with_capacity(fields.len() + 160);
        for (before, value) in [
            ("[{\"apiVersion\":", api_version),
            (",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":", ""),
            (",\"manager\":", manager),
            (",\"operation\":\"Update\",\"time\":", &rfc3339_seconds(now)),
        ] {
            text.extend_from_slice(before.as_bytes());
            if value.is_empty() {
                text.extend_from_slice(&fields);
            } else {
                let _ = serde_json::to_writer(&mut text, value);
            }
        }
        text.extend_from_slice(b"}]");
        return Some(text);
    }
    record_update(None, new, shape, manager, api_version, "", now);
    None
}

/// What [`record_update_encoded`] returns.
#[derive(Debug, PartialEq)]
pub struct EncodedUpdate {
    /// The new JSON of the managed fields; `None` if it did not change.
    pub text: Option<Vec<u8>>,
    /// Whether something other than times changed.
    pub is_changed: bool,
}

/// Like [`record_update`], for built-in kinds and for clients that did not send `metadata.managedFields`. Neither `old`
/// nor `new` contains managed fields; the stored ones are passed, and the new ones returned, as JSON. Returns `None` if
/// the JSON does not have the expected form; then [`record_update`] must be used.
#[expect(clippy::too_many_arguments, reason = "the arguments of `record_update` and the text")]
pub fn record_update_encoded(
    stored: Option<&[u8]>,
    old: &Value,
    new: &Value,
    shape: &Shape,
    manager: &str,
    api_version: &str,
    subresource: &str,
    now: Timestamp,
) -> Option<EncodedUpdate> {
    // The client has reset the managed fields. They are recorded again from the next apply on.
    let Some(stored) = stored else { return Some(EncodedUpdate { text: None, is_changed: false }) };
    let comparison =
        typed::compare(old, new, shape).without(&FieldSet::of(reset_paths(new, shape, subresource)));
    let mut own = comparison.modified.union(&comparison.added);
    if own.is_empty() && comparison.removed.is_empty() {
        return Some(EncodedUpdate { text: None, is_changed: false });
    }
    own.remove_all(&STRIPPED);
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let id = ManagerId::update(manager, api_version, subresource);
    let mut entries = encoded::read(stored).ok()?;
    let is_changed = encoded::update(&mut entries, &comparison, &own, &id, &rfc3339_seconds(now)).ok()?;
    if entries.is_empty() || entries.iter().filter(|entry| entry.updates).count() > MAX_UPDATE_MANAGERS {
        return None;
    }
    // If only a time is new, this is not a change, unless it changes the order of entries.
    let is_changed = encoded::sort(&mut entries) || is_changed;
    Some(EncodedUpdate { text: Some(encoded::write(&entries)), is_changed })
}

/// The parameters that updates and applies share.
struct Write<'write> {
    shape: &'write Shape,
    reset: &'write FieldSet,
    now: String,
}

impl Write<'_> {
    fn update(&self, live: &Value, new: &Value, mut managed: ManagedFields, id: &ManagerId) -> ManagedFields {
        let mut own = updater::update(live, new, self.shape, self.reset, &mut managed);
        own.remove_all(&STRIPPED);
        if !own.is_empty() {
            managed.add(id, own, &id.api_version);
            managed.set_time(id, &self.now);
        }
        managed.cap_updates(MAX_UPDATE_MANAGERS);
        managed
    }

    fn apply(
        &self,
        live: &Value,
        request: &ApplyRequest<'_>,
        mut managed: ManagedFields,
        id: &ManagerId,
        force: bool,
    ) -> Result<(Value, ManagedFields), Vec<Conflict>> {
        let new = updater::apply(
            live,
            request.applied,
            self.shape,
            self.reset,
            &mut managed,
            (id, request.api_version),
            force,
        )?;
        managed.strip(id, &STRIPPED);
        if request.live.is_none() || !path::equal(live, &new) {
            managed.set_time(id, &self.now);
        }
        Ok((new, managed))
    }
}

/// Fields that no manager owns, on any object.
static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// The fields that requests to this subresource cannot change, and therefore cannot own.
fn reset_paths(object: &Value, shape: &Shape, subresource: &str) -> &'static [&'static [&'static str]] {
    if matches!(shape, Shape::Struct(fields) if fields.status_is_plain) {
        return &[];
    }
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
    match (subresource, kind) {
        ("", "CertificateSigningRequest") => &[&["spec"], &["status"]],
        ("" | "finalize", _) => &[&["status"]],
        ("status", "Pod") => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        ("status", "Deployment") => &[&["spec"], &["metadata", "labels"]],
        ("status", "CertificateSigningRequest") => &[&["spec"], &["status", "conditions"]],
        (
            "status",
            "CustomResourceDefinition"
            | "FlowSchema"
            | "PriorityLevelConfiguration"
            | "ResourceClaim"
            | "VolumeAttachment",
        ) => &[&["metadata"], &["spec"]],
        ("status", _) => &[&["spec"]],
        ("approval", _) => &[&["spec"], &["status", "certificate"]],
        _ => &[],
    }
}

fn reset_fields(object: &Value, shape: &Shape, subresource: &str) -> FieldSet {
    FieldSet::of(reset_paths(object, shape, subresource))
}

/// What an object is before its creation: for a built-in kind, the zero value of its Go type, which contains all
/// embedded structs.
fn empty_object(of: &Value) -> Value {
    let mut empty = json!({"apiVersion": of.get("apiVersion"), "kind": of.get("kind")});
    normalise(&mut empty);
    empty
}

/// Like [`empty_object`], but without kind and version.
fn zero_value(of: &Value) -> &'static Value {
    let text = |name: &str| of.get(name).and_then(Value::as_str).unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    builtin::zero_value(group, version, text("kind")).unwrap_or(&Value::Null)
}

fn normalise(object: &mut Value) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("").to_string();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    builtin::round_trip(object, group, version, &kind);
}

/// Drops nulls that are left where all children of a field were removed. A null that the live or the applied object has
/// is kept.
fn drop_leftover_nulls(object: &mut Value, sources: &[Option<&Value>]) {
    match object {
        Value::Object(fields) => fields.retain(|name, value| {
            let below: Vec<Option<&Value>> =
                sources.iter().map(|source| source.and_then(|source| source.get(name))).collect();
            if value.is_null() {
                return below.iter().flatten().any(|source| source.is_null());
            }
            drop_leftover_nulls(value, &below);
            true
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| drop_leftover_nulls(item, &[])),
        _ => {}
    }
}

fn group_version_kind(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("");
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", text("kind"))
}

fn object_description(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("");
    format!("{}/{}; {}", text("/metadata/namespace"), text("/metadata/name"), group_version_kind(object))
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed_fields(object: &mut Value, entries: Vec<Value>) {
    if entries.is_empty() {
        return;
    }
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_string(), Value::Array(entries));
    }
}

/// Whether two objects are equal, ignoring the times in `managedFields`.
fn equal_except_times(left: &Value, right: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        let mut entries = take_managed_fields(&mut object).unwrap_or_default();
        for entry in entries.as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        (object, entries)
    };
    timeless(left) == timeless(right)
}

/// Whether a client resets the managed fields, by sending an empty list or a list with one empty entry.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Drops conflicts about fields for which the last-applied annotation has the live value, because client-side apply of
/// kubectl set them.
fn without_last_applied(conflicts: Vec<Conflict>, live: &Value, request: &ApplyRequest<'_>) -> Vec<Conflict> {
    let owned = || {
        let text = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
        let last: Value = serde_json::from_str(text).ok()?;
        if last.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
            return None;
        }
        let set = typed::field_set(&last, request.shape);
        let difference = typed::compare(&last, live, request.shape);
        Some(
            set.difference(&difference.modified)
                .difference(&difference.added)
                .difference(&difference.removed),
        )
    };
    let Some(owned) = owned() else { return conflicts };
    conflicts.into_iter().filter(|conflict| !owned.has(&conflict.path)).collect()
}

/// If the object has the last-applied annotation of client-side apply, updates it.
fn refresh_last_applied(object: &mut Value, applied: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let has_one = annotations.get(LAST_APPLIED).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !has_one {
        return;
    }
    let mut applied = applied.clone();
    if let Some(sent) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        sent.remove(LAST_APPLIED);
        if sent.is_empty()
            && let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    annotations.insert(LAST_APPLIED.to_string(), json!(format!("{applied}\n")));
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATION_BYTES {
        annotations.remove(LAST_APPLIED);
    }
}

fn conflict_failure(conflicts: &[Conflict]) -> Box<Failure> {
    let show = |path: &Path| path.iter().map(ToString::to_string).collect::<String>();
    let message = match conflicts {
        [only] => format!("1 conflict: conflict with {}: {}", only.manager, show(&only.path)),
        _ => {
            let mut lines = Vec::new();
            let mut previous = None;
            for conflict in conflicts {
                if previous != Some(&conflict.manager) {
                    lines.push(format!("conflicts with {}:", conflict.manager));
                    previous = Some(&conflict.manager);
                }
                lines.push(format!("- {}", show(&conflict.path)));
            }
            format!("{} conflicts: {}", conflicts.len(), lines.join("\n"))
        }
    };
    let mut failure = Failure::new(409, "Conflict", format!("Apply failed with {message}"));
    failure.causes = conflicts
        .iter()
        .map(|conflict| Cause {
            reason: "FieldManagerConflict".to_string(),
            message: format!("conflict with {}", conflict.manager),
            field: Some(show(&conflict.path)),
        })
        .collect();
    Box::new(failure)
}
