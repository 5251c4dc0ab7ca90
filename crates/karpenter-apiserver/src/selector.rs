//! The label and field selectors of list and watch requests.

pub mod field;
pub mod label;

use crate::status::{ApiResult, Failure};
use crate::store::Entry;

pub use field::{FieldSelector, SelectableField, SelectableFields};
pub use label::LabelSelector;

/// The label selector and the field selector of a request.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selector {
    pub fn parse(labels: &str, fields: &str, selectable: &SelectableFields) -> ApiResult<Self> {
        let labels = LabelSelector::parse(labels).map_err(Failure::bad_request)?;
        let fields = FieldSelector::parse(fields, selectable).map_err(Failure::bad_request)?;
        Ok(Self { labels, fields })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, entry: &Entry) -> bool {
        self.labels.matches(|key| entry.label(key)) && self.fields.matches(entry)
    }
}
