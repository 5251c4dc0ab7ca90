//! Nodes go away, and pools say what they own, on the embedded cluster.

mod drain;
mod ends;
mod pools;
mod world;
