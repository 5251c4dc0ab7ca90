//! Capacity reservations.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects capacity reservations; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationQuery {
    /// Matches any of these ids; empty means no condition. One unknown id fails the whole call.
    pub ids: Vec<String>,
    pub owner_id: Option<String>,
    /// `open` or `targeted`.
    pub instance_match_criteria: Option<String>,
    pub tags: Vec<TagFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityReservation {
    pub id: String,
    pub owner_id: String,
    pub instance_type: String,
    pub zone: String,
    pub zone_id: Option<String>,
    /// `open` or `targeted`.
    pub instance_match_criteria: String,
    /// `default` or `capacity-block`.
    pub reservation_type: String,
    /// Whether EC2 may reclaim the instances.
    pub is_interruptible: bool,
    /// `active`, …
    pub state: String,
    pub tenancy: Option<String>,
    pub starts_at: Option<Timestamp>,
    /// Absent for a reservation without an end.
    pub ends_at: Option<Timestamp>,
    pub total_count: i64,
    pub available_count: i64,
    pub tags: Tags,
}
