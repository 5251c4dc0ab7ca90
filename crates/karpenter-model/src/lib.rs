//! (see ARCHITECTURE.md)
pub mod cron;
pub mod duration;
pub mod quantity;
