//! Deleting one object.

use serde_json::{Value, json};

use super::Call;
use super::pipeline::Written;
use crate::clock::rfc3339_seconds;
use crate::encode::Reply;
use crate::status::Answer;
use crate::store::{Draft, WriteRefused};

impl Call<'_> {
    pub(crate) fn delete(&self) -> Answer<Reply> {
        loop {
            let entry = self.stored()?;
            let mut object = entry.value();
            let waits = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            let storage = &self.resource.storage;
            if waits {
                if object["metadata"]["deletionTimestamp"].is_null() {
                    object["metadata"]["deletionTimestamp"] = json!(rfc3339_seconds(self.now));
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                }
                let draft = Draft::new(&object, &self.resource.selectable);
                match self.core.store.update(storage, entry.revision(), draft) {
                    Ok(entry) => return Ok(self.reply_written(200, &Written::Stored(entry))),
                    Err(WriteRefused::Changed(_)) => continue,
                    Err(_) => return Err(self.not_found()),
                }
            }
            let draft = Draft::new(&object, &self.resource.selectable);
            match self.core.store.delete(storage, entry.revision(), draft) {
                Ok(_) => return Ok(Reply::json(200, &self.deleted_status(&object))),
                Err(WriteRefused::Changed(_)) => {}
                Err(_) => return Err(self.not_found()),
            }
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
