//! Patching objects.

use serde_json::Value;

use super::Call;
use super::decode::parse_json;
use crate::encode::Reply;
use crate::status::{Answer, Failure};

impl Call<'_> {
    pub(crate) fn patch(&self) -> Answer<Reply> {
        let dry_run = self.dry_run()?;
        let patch = parse_json(&self.incoming.body)?;
        let kind = self.incoming.content_type();
        loop {
            let entry = self.stored()?;
            let old = entry.value();
            let mut new = patched(&kind, &old, &patch)?;
            self.check_kind(&mut new)?;
            self.check_revision(&new, &old)?;
            match self.store_changed(&entry, &old, new, dry_run) {
                Ok(written) => return Ok(self.reply_written(200, &written)),
                Err(Some(failure)) => return Err(failure),
                Err(None) => {}
            }
        }
    }
}

fn patched(kind: &str, old: &Value, patch: &Value) -> Answer<Value> {
    match kind {
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            let mut new = old.clone();
            json_patch::merge(&mut new, patch);
            Ok(new)
        }
        _ => Err(Box::new(Failure::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json, application/apply-patch+yaml",
        ))),
    }
}
