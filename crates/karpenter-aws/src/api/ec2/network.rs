//! Subnets, security groups and placement groups.

use crate::api::{TagFilter, Tags};

/// Selects subnets; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnetQuery {
    /// Matches any of these ids; empty means no condition. An unknown id is missing from the result.
    pub ids: Vec<String>,
    pub tags: Vec<TagFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnet {
    pub id: String,
    pub vpc_id: String,
    pub zone: String,
    pub zone_id: Option<String>,
    pub available_ip_count: i64,
    pub maps_public_ip_on_launch: bool,
    pub tags: Tags,
}

/// Selects security groups; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityGroupQuery {
    pub ids: Vec<String>,
    /// Values of the attribute `group-name`, not of the tag `Name`.
    pub names: Vec<String>,
    pub tags: Vec<TagFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub vpc_id: Option<String>,
    pub tags: Tags,
}

/// Selects a placement group by id or name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementGroupQuery {
    Id(String),
    Name(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// Set for the strategy `partition`; otherwise 0.
    pub partition_count: i32,
    /// Set for the strategy `spread`: `rack` or `host`.
    pub spread_level: Option<String>,
    /// `available`, `pending`, `deleting`, `deleted`.
    pub state: String,
    pub tags: Tags,
}
