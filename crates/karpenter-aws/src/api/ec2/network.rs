//! Subnets, security groups and placement groups.

use crate::api::{TagFilter, Tags};

/// Selects subnets that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnetQuery {
    /// Subnet ids of which one must match; an empty list is no condition. For an unknown id, the result has no subnet.
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

/// Selects security groups that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityGroupQuery {
    pub ids: Vec<String>,
    /// Group names of which one must match. This is the attribute `group-name`, not the tag `Name`.
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

/// Selects a placement group, either by id or by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementGroupQuery {
    Id(String),
    Name(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// The group's strategy: `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// The number of partitions; 0 unless the strategy is `partition`.
    pub partition_count: i32,
    /// `rack` or `host` for the strategy `spread`; otherwise absent.
    pub spread_level: Option<String>,
    /// The group's state: `available`, `pending`, `deleting` or `deleted`.
    pub state: String,
    pub tags: Tags,
}
