//! Explains decisions: stable names of reasons, and hints that state which change would remove a reason.
//!
//! Pure functions of the values of the planner and of disruption. No I/O and no clock.

pub mod hints;
pub mod verdict_names;
