//! AMIs.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects AMIs that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageQuery {
    /// AMI ids of which one must match; an empty list is no condition. For an unknown id, the result has no AMI.
    pub ids: Vec<String>,
    /// The AMI's name; `*` matches any text, `?` one character.
    pub name: Option<String>,
    /// Owners of which one must match: account ids, `self` or `amazon`. An empty list means every owner whose AMIs the
    /// account may use.
    pub owners: Vec<String>,
    pub tags: Vec<TagFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub name: String,
    /// `x86_64`, `arm64`, …
    pub architecture: String,
    pub owner_id: String,
    /// The alias of the AMI's owner, such as `amazon`.
    pub owner_alias: Option<String>,
    pub created_at: Option<Timestamp>,
    pub deprecated_at: Option<Timestamp>,
    /// `available`, `pending`, …
    pub state: String,
    pub root_device_name: Option<String>,
    pub tags: Tags,
}
