//! Nodes go away, and pools say what they own, on the embedded cluster.

mod drain;
mod emptiness;
mod ends;
mod faults;
mod grace;
mod pools;
mod world;
