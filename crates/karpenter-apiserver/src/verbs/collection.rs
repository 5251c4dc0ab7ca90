//! Deleting all objects that a selector names.

use super::Call;
use crate::encode::Reply;
use crate::status::{Answer, Failure};

impl Call<'_> {
    pub(crate) fn delete_collection(&self) -> Answer<Reply> {
        Err(Box::new(Failure::method_not_allowed()))
    }
}
