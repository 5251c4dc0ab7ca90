//! Nodes go away, and pools say what they own, on the embedded cluster.

mod drain;
#[path = "../kit/embedded.rs"]
mod embedded;
mod emptiness;
mod ends;
mod pools;
mod world;
