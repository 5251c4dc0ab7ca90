//! Tests of the controllers that handle running instances: interruptions, reservations, zonal shifts, tags and garbage
//! collection.

mod garbage_collection;
mod interruption_log;
mod interruptions;
mod reserved;
mod shifts;
mod tags;
pub(crate) mod world;
