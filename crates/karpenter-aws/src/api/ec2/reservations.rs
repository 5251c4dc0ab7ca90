//! Capacity reservations.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects capacity reservations that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationQuery {
    /// Reservation ids of which one must match; an empty list is no condition. If one id is unknown, the whole call
    /// fails.
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
    /// The kind of reservation: `default` or `capacity-block`.
    pub reservation_type: String,
    /// Whether EC2 may reclaim instances that run in the reservation.
    pub is_interruptible: bool,
    /// `active`, …
    pub state: String,
    pub tenancy: Option<String>,
    pub starts_at: Option<Timestamp>,
    /// When the reservation ends; absent if it has no end.
    pub ends_at: Option<Timestamp>,
    pub total_count: i64,
    pub available_count: i64,
    pub tags: Tags,
}
