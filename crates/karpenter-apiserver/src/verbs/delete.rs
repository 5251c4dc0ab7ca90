//! The verb `delete`: preconditions, grace periods, finalizers and the propagation policy. Dependents are deleted by
//! the garbage collector.
//!
//! Upstream: k8s.io/apiserver/pkg/registry/rest/delete.go, k8s.io/apiserver/pkg/registry/generic/registry/store.go

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Call;
use super::decode::parse_json;
use super::pipeline::{StoreLookup, Written};
use crate::admission::{self, Verb};
use crate::clock::rfc3339_seconds;
use crate::encode::Reply;
use crate::options::DeleteOptions;
use crate::status::{ApiResult, Failure};
use crate::store::{Entry, WriteRefused};

const JOB_KEEPS_PODS: &str = "child pods are preserved by default when jobs are deleted; set \
                              propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                              this warning";
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
                           propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                           this warning";
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that a CRD has while there are objects of its kind.
pub(crate) const CUSTOM_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The result of a delete request.
pub(crate) struct Deletion {
    /// The object as it is now, or, if it was removed, its last state.
    pub(crate) written: Written,
    pub(crate) gone: bool,
}

impl Call<'_> {
    pub(crate) fn delete(&self) -> ApiResult<Reply> {
        let options = self.delete_options()?;
        let deletion = self.delete_object(&self.key(), self.name(), &options)?;
        let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
        let warnings = if silent && self.resource.is("batch", "Job") {
            vec![JOB_WARNING.to_string()]
        } else {
            Vec::new()
        };
        let code = if !deletion.gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
        if deletion.gone && !self.returns_deleted_object() {
            return Ok(
                Reply::json(code, &self.deleted_status(&deletion.written.value())).with_warnings(warnings)
            );
        }
        let mut warnings = Vec::new();
        let policy_given = options.propagation_policy.is_some() || options.orphan_dependents.is_some();
        if self.resource.is("batch", "Job") && !policy_given {
            warnings.push(JOB_KEEPS_PODS.to_owned());
        }
        Ok(self.reply_written(code, &deletion.written).with_warnings(warnings))
    }

    pub(crate) fn delete_options(&self) -> ApiResult<DeleteOptions> {
        if self.incoming.body.is_empty() {
            return DeleteOptions::from_query(&self.incoming.query);
        }
        let body = match self.incoming.content_type().as_str() {
            "application/vnd.kubernetes.protobuf" | "application/yaml" => self.body_value()?,
            _ => parse_json(&self.incoming.body)?,
        };
        DeleteOptions::from_object(&body)
    }

    /// Whether the response to a delete request is the object; for most kinds, it is a `Status`.
    fn returns_deleted_object(&self) -> bool {
        match self.resource.group.as_str() {
            "" => matches!(
                self.resource.kind.as_str(),
                "Pod"
                    | "Namespace"
                    | "Service"
                    | "ServiceAccount"
                    | "PersistentVolume"
                    | "PersistentVolumeClaim"
                    | "ResourceQuota"
                    | "PodTemplate"
            ),
            "storage.k8s.io" => self.resource.kind != "CSIStorageCapacity",
            "resource.k8s.io" => true,
            _ => false,
        }
    }

    pub(crate) fn delete_object(
        &self,
        key: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> ApiResult<Deletion> {
        let missing = || Box::new(Failure::not_found(&self.resource.group, &self.resource.plural, name));
        loop {
            let entry = self.core.store.get(&self.resource.storage, key).ok_or_else(missing)?;
            let old = self.load(&entry);
            self.check_preconditions(name, &old, options)?;
            let mut nothing = Value::Null;
            let operation = self.operation(Verb::Delete, name, Some(&old));
            admission::admit(&operation, &mut nothing, &StoreLookup(self.core))?;
            match self.try_delete(&entry, old, options) {
                Ok(deletion) => {
                    if deletion.gone && !options.dry_run {
                        self.after_removal(&deletion.written.value());
                    } else if self.resource.is_definition() && !options.dry_run {
                        self.remove_instances(name);
                    }
                    return Ok(deletion);
                }
                Err(WriteRefused::Changed(_)) => {}
                Err(WriteRefused::Missing | WriteRefused::Exists) => return Err(missing()),
            }
        }
    }

    fn check_preconditions(&self, name: &str, old: &Value, options: &DeleteOptions) -> ApiResult<()> {
        let (group, kind) = (&self.resource.group, &self.resource.kind);
        let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
        let revision = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let why = match (&options.uid, &options.resource_version) {
            (Some(expected), _) if expected != uid => format!(
                "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The object might \
                 have been deleted and then recreated"
            ),
            (_, Some(expected)) if expected != revision => format!(
                "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record \
                 ({revision}). The object might have been modified"
            ),
            _ => return Ok(()),
        };
        Err(Box::new(Failure::conflict(group, kind, name, &why)))
    }

    fn try_delete(
        &self,
        entry: &Arc<Entry>,
        old: Value,
        options: &DeleteOptions,
    ) -> Result<Deletion, WriteRefused> {
        let mut object = old.clone();
        if self.resource.is("", "Namespace") {
            if !is_deleting(&object) {
                object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(self.now));
                object["status"]["phase"] = json!("Terminating");
                set_finalizers(&mut object, &dependents_finalizers(&old, options, false));
                return self.store_terminating(entry, &old, object, options);
            }
            if object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
                return self.store_terminating(entry, &old, object, options);
            }
        }
        if self.resource.is("apiextensions.k8s.io", "CustomResourceDefinition") && !is_deleting(&object) {
            self.mark_definition_terminating(&mut object);
            return self.store_terminating(entry, &old, object, options);
        }
        let grace = match self.begin_grace(&mut object, options) {
            Grace::Pending => return self.store_terminating(entry, &old, old.clone(), options),
            Grace::None => None,
            Grace::Seconds(seconds) => Some(seconds),
        };
        if !self.resource.is("", "Event") {
            // By default, deleting a Job or ReplicationController orphans its dependents.
            let orphans = self.resource.is("batch", "Job") || self.resource.is("", "ReplicationController");
            set_finalizers(&mut object, &dependents_finalizers(&old, options, orphans));
        }
        let waits = finalizers(&object).next().is_some();
        match grace {
            None if waits => {
                self.mark_as_deleting(&mut object);
                self.store_terminating(entry, &old, object, options)
            }
            Some(seconds) if waits || seconds > 0 => self.store_terminating(entry, &old, object, options),
            Some(_) if !options.dry_run => {
                // The object is first stored with its deletion timestamp, because the `DELETED` event must contain it.
                let marked = self.store_terminating(entry, &old, object, options)?;
                match marked.written {
                    Written::Stored(entry) => self.remove(&entry, &self.load(&entry), options),
                    written => Ok(Deletion { written, gone: true }),
                }
            }
            _ => self.remove(entry, &object, options),
        }
    }

    /// Stores the object with its deletion timestamp, unless the stored object has it.
    fn store_terminating(
        &self,
        entry: &Arc<Entry>,
        old: &Value,
        object: Value,
        options: &DeleteOptions,
    ) -> Result<Deletion, WriteRefused> {
        let written = if object == *old {
            Written::Stored(entry.clone())
        } else if options.dry_run {
            Written::ResponseOnly(object)
        } else {
            let draft = self.draft(&object);
            Written::Stored(self.core.store.update(&self.resource.storage, entry.revision(), draft)?)
        };
        Ok(Deletion { written, gone: false })
    }

    fn remove(
        &self,
        entry: &Arc<Entry>,
        last: &Value,
        options: &DeleteOptions,
    ) -> Result<Deletion, WriteRefused> {
        let written = if options.dry_run {
            Written::ResponseOnly(last.clone())
        } else {
            let draft = self.draft(last);
            Written::Deleted(self.core.store.delete(&self.resource.storage, entry.revision(), draft)?)
        };
        Ok(Deletion { written, gone: true })
    }

    /// Sets the deletion timestamp and the grace period of a pod. A further delete request can only shorten the grace
    /// period.
    fn begin_grace(&self, object: &mut Value, options: &DeleteOptions) -> Grace {
        if !self.resource.is("", "Pod") {
            return Grace::None;
        }
        if is_deleting(object) {
            let left = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let Some(wanted) = options.grace_period_seconds else {
                return if left == 0 { Grace::None } else { Grace::Pending };
            };
            if left == 0 {
                return Grace::None;
            }
            if wanted >= left {
                return Grace::Pending;
            }
            let deadline: Option<Timestamp> =
                object["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
            let mut seconds = wanted;
            let mut moved = deadline.map_or(self.now, |deadline| add_seconds(deadline, wanted - left));
            if moved < self.now {
                moved = self.now;
                if wanted != 0 {
                    seconds = 1;
                }
            }
            object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(moved));
            object["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
            return Grace::Seconds(seconds);
        }
        let wanted = options
            .grace_period_seconds
            .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64())
            .unwrap_or(0);
        let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let finished = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        let seconds = match wanted {
            _ if unscheduled || finished => 0,
            negative if negative < 0 => 1,
            seconds => seconds,
        };
        object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(add_seconds(self.now, seconds)));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        count_generation(object);
        Grace::Seconds(seconds)
    }

    fn mark_as_deleting(&self, object: &mut Value) {
        if !is_deleting(object) {
            count_generation(object);
        }
        let deadline: Option<Timestamp> =
            object["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
        if deadline.is_none_or(|deadline| deadline > self.now) {
            object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(self.now));
        }
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }

    fn mark_definition_terminating(&self, object: &mut Value) {
        object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(self.now));
        let mut names: Vec<String> = finalizers(object).map(str::to_string).collect();
        if !names.iter().any(|name| name == CUSTOM_CLEANUP) {
            names.push(CUSTOM_CLEANUP.into());
        }
        set_finalizers(object, &names);
        let condition = json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            "lastTransitionTime": rfc3339_seconds(self.now),
        });
        if !object["status"].is_object() {
            object["status"] = json!({});
        }
        match object["status"]["conditions"].as_array_mut() {
            Some(conditions) => {
                conditions.retain(|condition| condition["type"] != "Terminating");
                conditions.push(condition);
            }
            None => object["status"]["conditions"] = json!([condition]),
        }
    }

    pub(crate) fn deleted_status(&self, object: &Value) -> Value {
        let mut details = json!({
            "name": object["metadata"]["name"], "kind": self.resource.plural, "uid": object["metadata"]["uid"],
        });
        if !self.resource.group.is_empty() {
            details["group"] = json!(self.resource.group);
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

enum Grace {
    /// The object is removed at once, because its kind has no grace period or the grace period is over.
    None,
    /// The object is terminating, and the request does not shorten its grace period.
    Pending,
    Seconds(i64),
}

fn add_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn count_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn set_finalizers(object: &mut Value, names: &[String]) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if names.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(names));
    }
}

/// The finalizers that the object must have, including `orphan` or `foregroundDeletion` if the propagation policy
/// requires them.
fn dependents_finalizers(object: &Value, options: &DeleteOptions, orphans_by_default: bool) -> Vec<String> {
    let had = |name: &str| finalizers(object).any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) => {
            (had(ORPHAN) || (orphans_by_default && !had(FOREGROUND)), had(FOREGROUND) && !had(ORPHAN))
        }
    };
    if (orphan, foreground) == (had(ORPHAN), had(FOREGROUND)) {
        return finalizers(object).map(str::to_string).collect();
    }
    let mut names: Vec<String> = finalizers(object)
        .filter(|name| *name != ORPHAN && *name != FOREGROUND)
        .map(str::to_string)
        .collect();
    if orphan {
        names.push(ORPHAN.into());
    }
    if foreground {
        names.push(FOREGROUND.into());
    }
    names
}
