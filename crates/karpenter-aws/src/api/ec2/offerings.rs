//! Instance types, the zones that offer them, and spot prices.

use jiff::Timestamp;
/// One instance type as returned by `DescribeInstanceTypes`.
pub use karpenter_catalog::aws::TypeInfo;

/// States that one zone offers one instance type.
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
    /// The time since when the price is valid.
    pub at: Option<Timestamp>,
}
