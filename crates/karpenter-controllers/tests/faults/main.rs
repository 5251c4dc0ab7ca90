//! All of Karpenter on an embedded cluster whose API server misbehaves towards Karpenter alone.

#[path = "../kit/embedded.rs"]
mod embedded;
mod stories;
mod weather;
mod world;
