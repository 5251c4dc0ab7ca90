//! `update`.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/update.go

use serde_json::Value;

use super::Call;
use super::pipeline::{Ownership, UpdateError};
use crate::encode::Reply;
use crate::options::WriteOptions;
use crate::status::{ApiResult, Cause, Failure};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Call<'_> {
    pub(crate) fn update(&self) -> ApiResult<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "UpdateOptions", false)?;
        let (object, warnings) = self.body_object(options.field_validation)?;
        let manager = self.incoming.field_manager();
        let unconditional = revision(&object).is_empty();
        loop {
            let Some(entry) = self.core.store.get(&self.resource.storage, &self.key()) else {
                if !self.creates_on_update() || !self.subresource().is_empty() {
                    return Err(self.not_found());
                }
                let mut object = object.clone();
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                let written = self.store_new(object, Ownership::Manager(&manager), options.dry_run)?;
                return Ok(self.reply_written(201, &written).with_warnings(warnings));
            };
            let old = self.load(&entry);
            if unconditional && !self.allows_unconditional_update() {
                return Err(self.revision_required());
            }
            self.check_revision(&object, &old)?;
            let mut object = object.clone();
            if unconditional {
                // An update without a resource version replaces the current object.
                object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            }
            let ownership = Ownership::Manager(&manager);
            match self.store_changed(&entry, &old, object, ownership, options.dry_run) {
                Ok(written) => return Ok(self.reply_written(200, &written).with_warnings(warnings)),
                Err(UpdateError::Rejected(failure)) => return Err(failure),
                Err(UpdateError::Conflict) if !unconditional => return Err(self.modified()),
                Err(UpdateError::Conflict) => {}
            }
        }
    }

    pub(crate) fn modified(&self) -> Box<Failure> {
        Box::new(Failure::conflict(&self.resource.group, &self.resource.plural, self.name(), MODIFIED))
    }

    fn revision_required(&self) -> Box<Failure> {
        let body = "Invalid value: 0: must be specified for an update";
        let mut failure = Failure::invalid(&self.resource.group, &self.resource.plural, self.name(), &[]);
        failure.message = format!(
            "{} \"{}\" is invalid: metadata.resourceVersion: {body}",
            self.resource.qualified_plural(),
            self.name()
        );
        failure.causes = vec![Cause {
            reason: "FieldValueInvalid".into(),
            message: body.into(),
            field: Some("metadata.resourceVersion".into()),
        }];
        Box::new(failure)
    }

    /// Checks the preconditions that the object states: resource version and uid.
    pub(crate) fn check_revision(&self, new: &Value, old: &Value) -> ApiResult<()> {
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        let expected = uid(new);
        if !expected.is_empty() && expected != uid(old) {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {expected}, UID in object meta: {}",
                self.etcd_prefix(),
                self.key(),
                uid(old)
            );
            let failure = Failure::conflict(&self.resource.group, &self.resource.plural, self.name(), &why);
            return Err(Box::new(failure));
        }
        if !revision(new).is_empty() && revision(new) != revision(old) {
            return Err(self.modified());
        }
        Ok(())
    }

    /// The prefix of the kind's keys in kube-apiserver's etcd, which error messages contain.
    fn etcd_prefix(&self) -> String {
        match &self.resource.custom {
            Some(_) => format!("{}/{}", self.resource.group, self.resource.plural),
            None => self.resource.plural.clone(),
        }
    }

    /// Whether an update of an object that does not exist creates it.
    fn creates_on_update(&self) -> bool {
        let kind = self.resource.kind.as_str();
        match self.resource.group.as_str() {
            "" => matches!(kind, "LimitRange" | "Event" | "Service" | "Endpoints"),
            "rbac.authorization.k8s.io" => true,
            "coordination.k8s.io" => true,
            "node.k8s.io" => kind == "RuntimeClass",
            _ => false,
        }
    }

    /// Whether an update may omit the resource version.
    fn allows_unconditional_update(&self) -> bool {
        let kind = self.resource.kind.as_str();
        if self.resource.custom.is_some() {
            return false;
        }
        match self.resource.group.as_str() {
            "node.k8s.io" | "coordination.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io" => {
                false
            }
            "admissionregistration.k8s.io" => false,
            "policy" => kind != "PodDisruptionBudget",
            "storage.k8s.io" => {
                !matches!(kind, "CSIDriver" | "CSIStorageCapacity" | "VolumeAttachment" | "CSINode")
            }
            _ => true,
        }
    }
}

fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}
