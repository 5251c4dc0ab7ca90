//! Instance types, the zones that offer them, and spot prices.

use jiff::Timestamp;
/// One instance type as returned by `DescribeInstanceTypes`.
pub use karpenter_catalog::aws::TypeInfo;

/// States that a zone offers an instance type.
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
    /// The time from which the price is valid.
    pub at: Option<Timestamp>,
}
