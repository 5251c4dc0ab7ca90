//! All of Karpenter on an embedded cluster whose API server misbehaves towards Karpenter alone.

mod stories;
pub(crate) mod weather;
mod world;
