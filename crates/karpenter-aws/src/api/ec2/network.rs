//! Subnets, security groups and placement groups: where machines may stand.

use crate::api::{TagFilter, Tags};

/// Which subnets; every condition given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnetQuery {
    /// Any of these; none given asks nothing. An id that is not there just is not in the answer.
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

/// Which security groups; every condition given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityGroupQuery {
    pub ids: Vec<String>,
    /// EC2's own group names, not the tag `Name`.
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

/// Which placement group: by one of the two.
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
    /// Of the strategy `partition`; 0 otherwise.
    pub partition_count: i32,
    /// Of the strategy `spread`: `rack` or `host`.
    pub spread_level: Option<String>,
    /// `available`, `pending`, `deleting`, `deleted`.
    pub state: String,
    pub tags: Tags,
}
