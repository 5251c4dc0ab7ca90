//! Tests of node repair on the embedded cluster: reboots, replacements, and the old rules of `--legacy-node-repair`.

mod legacy;
mod reboots;
mod repairs;
pub(crate) mod world;
