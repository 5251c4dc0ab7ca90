//! Creating objects.

use super::Call;
use super::pipeline::Ownership;
use crate::encode::Reply;
use crate::options::WriteOptions;
use crate::status::Answer;

impl Call<'_> {
    pub(crate) fn create(&self) -> Answer<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        if let Some(reply) = self.review()? {
            return Ok(reply);
        }
        if self.resource.is("", "Binding") {
            return self.bind_by_collection(&options);
        }
        let (object, warnings) = self.body_object(options.field_validation)?;
        let manager = self.incoming.field_manager();
        let written = self.store_new(object, Ownership::Manager(&manager), options.dry_run)?;
        Ok(self.reply_written(201, &written).with_warnings(warnings))
    }
}
