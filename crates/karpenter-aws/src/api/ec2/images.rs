//! AMIs.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects AMIs; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageQuery {
    /// Matches any of these ids; empty means no condition. An unknown id is missing from the result.
    pub ids: Vec<String>,
    /// The AMI's name; `*` matches any text, `?` one character.
    pub name: Option<String>,
    /// Account ids, `self`, `amazon`; empty means every owner whose AMIs the account may use.
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
    /// An alias of the owner, such as `amazon`.
    pub owner_alias: Option<String>,
    pub created_at: Option<Timestamp>,
    pub deprecated_at: Option<Timestamp>,
    /// `available`, `pending`, …
    pub state: String,
    pub root_device_name: Option<String>,
    pub tags: Tags,
}
