//! The verb `deletecollection`: deletes all objects that match a selector.

use serde_json::{Map, json};

use super::Call;
use crate::encode::Reply;
use crate::options::ListOptions;
use crate::status::ApiResult;
use crate::store::Entry;

impl Call<'_> {
    pub(crate) fn delete_collection(&self) -> ApiResult<Reply> {
        ListOptions::parse(&self.incoming.query, false)?;
        let options = self.delete_options()?;
        let selector = self.selector()?;
        let snapshot = self.core.store.list(&self.resource.storage, &self.range(&selector));
        let chosen = |entry: &&std::sync::Arc<Entry>| selector.matches(entry);
        let mut deleted = Vec::new();
        for entry in snapshot.entries.iter().filter(chosen) {
            match self.delete_object(entry.key(), entry.name(), &options) {
                Ok(_) => deleted.push(entry.clone()),
                // If another request deleted the object first, this is not an error.
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), json!(snapshot.revision.to_string()));
        Ok(self.reply_list(metadata, deleted))
    }
}
