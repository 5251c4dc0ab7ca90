//! The rules, by what they look at.

pub(crate) mod disruption;
pub(crate) mod neighbours;
pub(crate) mod pools;
pub(crate) mod workloads;
