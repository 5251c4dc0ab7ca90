//! Creating objects.

use super::Call;
use crate::encode::Reply;
use crate::status::Answer;

impl Call<'_> {
    pub(crate) fn create(&self) -> Answer<Reply> {
        let object = self.body_object()?;
        let written = self.store_new(object, self.dry_run()?)?;
        Ok(self.reply_written(201, &written))
    }
}
