//! What happens to machines by itself, and what is left over of them.

mod garbage_collection;
mod interruption_log;
mod interruptions;
mod reserved;
mod shifts;
mod tags;
pub(crate) mod world;
