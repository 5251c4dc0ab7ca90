//! What happens to machines by itself, and what is left over of them.

mod interruption_log;
mod interruptions;
mod leftovers;
mod reserved;
mod shifts;
mod tags;
pub(crate) mod world;
