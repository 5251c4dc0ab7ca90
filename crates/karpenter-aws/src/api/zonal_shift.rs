//! ARC zonal shift: zones that the cluster's traffic is being moved away from.

use jiff::Timestamp;

use super::AwsFuture;

/// What is asked of ARC.
pub trait ZonalShift: Send + Sync {
    /// `arc-zonal-shift:GetManagedResource` of a cluster's ARN; its shifts, those in force and those over.
    fn get_managed_resource<'a>(&'a self, resource_arn: &'a str) -> AwsFuture<'a, Vec<Shift>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shift {
    /// The zone's id, such as `use1-az1`.
    pub away_from_zone_id: String,
    /// Whether AWS applies it; a shift that lost against another is not.
    pub is_applied: bool,
    pub started_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}
