//! Tests of node repair on the embedded cluster: reboot, replacement, and `--legacy-node-repair`.

mod legacy;
mod reboots;
mod repairs;
pub(crate) mod world;
