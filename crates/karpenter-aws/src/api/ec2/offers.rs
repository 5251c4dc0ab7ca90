//! What EC2 sells: instance types, where they are, and what spot machines cost.

use jiff::Timestamp;
/// What `DescribeInstanceTypes` says about one type.
pub use karpenter_catalog::aws::TypeInfo;

/// A type exists in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeOffering {
    pub instance_type: String,
    pub zone: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpotPrice {
    pub instance_type: String,
    pub zone: String,
    pub price_per_hour: f64,
    /// Since when it holds.
    pub at: Option<Timestamp>,
}
