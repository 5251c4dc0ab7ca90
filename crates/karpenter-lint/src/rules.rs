//! The rules, grouped by subject.

pub(crate) mod disruption;
pub(crate) mod pools;
pub(crate) mod unmanaged_nodes;
pub(crate) mod workloads;
