//! ARC zonal shift: zones that a cluster's traffic is shifted away from.

use jiff::Timestamp;

use super::AwsFuture;

/// The ARC calls in use.
pub trait ZonalShift: Send + Sync {
    /// `arc-zonal-shift:GetManagedResource` of a cluster's ARN; returns its shifts, active and expired.
    fn get_managed_resource<'a>(&'a self, resource_arn: &'a str) -> AwsFuture<'a, Vec<Shift>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shift {
    /// The zone's id, such as `use1-az1`.
    pub away_from_zone_id: String,
    /// Whether AWS applies the shift; a shift that another one overrides is not applied.
    pub is_applied: bool,
    pub started_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}
