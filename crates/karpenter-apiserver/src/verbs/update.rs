//! Replacing objects.

use serde_json::Value;

use super::Call;
use crate::encode::Reply;
use crate::status::{Answer, Failure};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Call<'_> {
    pub(crate) fn update(&self) -> Answer<Reply> {
        let object = self.body_object()?;
        let dry_run = self.dry_run()?;
        let expected = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
        loop {
            let entry = self.stored()?;
            let old = entry.value();
            self.check_revision(&object, &old)?;
            match self.store_changed(&entry, &old, object.clone(), dry_run) {
                Ok(written) => return Ok(self.reply_written(200, &written)),
                Err(Some(failure)) => return Err(failure),
                Err(None) if !expected.is_empty() => return Err(self.modified()),
                Err(None) => {}
            }
        }
    }

    pub(crate) fn modified(&self) -> Box<Failure> {
        Box::new(Failure::conflict(&self.resource.group, &self.resource.plural, self.name(), MODIFIED))
    }

    /// The client may say which revision and which object (uid) it looked at.
    pub(crate) fn check_revision(&self, new: &Value, old: &Value) -> Answer<()> {
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_string();
        let uid = text(new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                text(old, "uid")
            );
            return Err(Box::new(Failure::conflict(
                &self.resource.group,
                &self.resource.plural,
                self.name(),
                &why,
            )));
        }
        let revision = text(new, "resourceVersion");
        if !revision.is_empty() && revision != text(old, "resourceVersion") {
            return Err(self.modified());
        }
        Ok(())
    }
}
