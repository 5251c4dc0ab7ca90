//! Sick nodes on an embedded cluster in virtual time: restarted in place, replaced, or ended as before 1.15.

#[path = "../kit/embedded.rs"]
mod embedded;
mod legacy;
mod reboots;
mod repairs;
mod world;
