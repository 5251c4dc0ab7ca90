//! ARC zonal shift: AWS shifts the traffic of a cluster away from impaired zones.

use jiff::Timestamp;

use super::AwsFuture;

/// The ARC calls in use.
pub trait ZonalShift: Send + Sync {
    /// `arc-zonal-shift:GetManagedResource` for the ARN of a cluster; returns the cluster's shifts, active and expired.
    fn get_managed_resource<'a>(&'a self, resource_arn: &'a str) -> AwsFuture<'a, Vec<Shift>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shift {
    /// The id of the zone that traffic is shifted away from, such as `use1-az1`.
    pub away_from_zone_id: String,
    /// Whether AWS applies the shift. A shift that another shift overrides is not applied.
    pub is_applied: bool,
    pub started_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}
