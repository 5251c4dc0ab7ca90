//! Sick nodes on an embedded cluster in virtual time: restarted in place, replaced, or ended as before 1.15.

mod legacy;
mod reboots;
mod repairs;
pub(crate) mod world;
