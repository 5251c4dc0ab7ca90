//! ARC zonal shifts of the cluster: the zones that AWS shifts traffic away from, and until when.
//!
//! Each response of ARC replaces the known shifts, so a shift that was cancelled ends with the next response. While ARC
//! does not respond, the shifts in its last response apply until they expire.
//!
//! Upstream: `pkg/providers/arczonalshift`

mod controller;
mod pools;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;

use crate::api::zonal_shift::Shift;

pub use controller::ZonalShiftController;
pub use source::ShiftSource;

/// For each zone id that traffic is shifted away from: when the shift ends; `None` if the end is unknown.
pub type ShiftedUntil = BTreeMap<String, Option<Timestamp>>;

/// The shifts in a response. If a zone has several shifts, the one that ends last is used. Shifts that AWS does not
/// apply are ignored.
pub fn shifted_until(shifts: &[Shift]) -> ShiftedUntil {
    let mut until = ShiftedUntil::new();
    for shift in shifts.iter().filter(|shift| shift.is_applied) {
        let entry = until.entry(shift.away_from_zone_id.clone()).or_insert(shift.expires_at);
        *entry = match (*entry, shift.expires_at) {
            (Some(one), Some(other)) => Some(one.max(other)),
            _ => None,
        };
    }
    until
}

/// The ids of zones that traffic is shifted away from at a given time.
pub fn shifted_at(until: &ShiftedUntil, now: Timestamp) -> BTreeSet<String> {
    until
        .iter()
        .filter(|(_, end)| end.is_none_or(|end| end > now))
        .map(|(zone_id, _)| zone_id.clone())
        .collect()
}

/// The known shifts, which all clones share. They are empty if the option is off.
#[derive(Debug, Clone, Default)]
pub struct ZonalShifts {
    until: Arc<RwLock<ShiftedUntil>>,
}

impl ZonalShifts {
    /// Replaces the known shifts by those in a response.
    pub fn replace(&self, shifts: &[Shift]) {
        *self.until.write().unwrap_or_else(PoisonError::into_inner) = shifted_until(shifts);
    }

    pub fn shifted_zone_ids(&self, now: Timestamp) -> BTreeSet<String> {
        shifted_at(&self.until.read().unwrap_or_else(PoisonError::into_inner), now)
    }

    pub fn is_shifted(&self, zone_id: &str, now: Timestamp) -> bool {
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        until.get(zone_id).is_some_and(|end| end.is_none_or(|end| end > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        format!("2026-01-01T{text}:00Z").parse().expect("a time")
    }

    fn shift(zone: &str, is_applied: bool, until: Option<&str>) -> Shift {
        Shift {
            away_from_zone_id: zone.to_owned(),
            is_applied,
            started_at: None,
            expires_at: until.map(time),
        }
    }

    fn zones(shifts: &[Shift], now: &str) -> Vec<String> {
        shifted_at(&shifted_until(shifts), time(now)).into_iter().collect()
    }

    #[test]
    fn applied_shifts_count_until_they_expire() {
        let shifts = [
            shift("use1-az1", true, Some("12:00")),
            shift("use1-az2", false, Some("12:00")),
            shift("use1-az3", true, None),
        ];
        assert_eq!(zones(&shifts, "11:59"), ["use1-az1", "use1-az3"]);
        assert_eq!(zones(&shifts, "12:00"), ["use1-az3"]);
    }

    #[test]
    fn longest_shift_of_a_zone_counts() {
        let short_then_long = [shift("a", true, Some("12:00")), shift("a", true, Some("13:00"))];
        let long_then_short = [shift("a", true, Some("13:00")), shift("a", true, Some("12:00"))];
        let with_lost = [shift("a", true, Some("12:00")), shift("a", false, Some("13:00"))];
        assert_eq!(zones(&short_then_long, "12:30"), ["a"]);
        assert_eq!(zones(&long_then_short, "12:30"), ["a"]);
        assert!(zones(&with_lost, "12:30").is_empty());
    }

    #[test]
    fn cancelled_shift_ends_independently_of_others() {
        let known = ZonalShifts::default();
        let shared = known.clone();
        known.replace(&[shift("a", true, Some("12:00")), shift("b", true, Some("12:00"))]);
        assert!(shared.is_shifted("a", time("11:00")));
        known.replace(&[shift("b", true, Some("12:00"))]);
        assert!(!shared.is_shifted("a", time("11:00")));
        assert_eq!(shared.shifted_zone_ids(time("11:00")), BTreeSet::from(["b".to_owned()]));
        known.replace(&[]);
        assert!(shared.shifted_zone_ids(time("11:00")).is_empty());
    }
}
