//! Images to boot from.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Which images; every condition given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageQuery {
    /// Any of these; none given asks nothing. An id that is not there just is not in the answer.
    pub ids: Vec<String>,
    /// The image's name; `*` and `?` stand for text and for one letter.
    pub name: Option<String>,
    /// Account numbers, `self`, `amazon`; empty means anybody who lets us see.
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
    /// Who it belongs to by its common name, such as `amazon`.
    pub owner_alias: Option<String>,
    pub created_at: Option<Timestamp>,
    pub deprecated_at: Option<Timestamp>,
    /// `available`, `pending`, …
    pub state: String,
    pub root_device_name: Option<String>,
    pub tags: Tags,
}
