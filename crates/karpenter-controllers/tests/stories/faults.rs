//! Tests of all controllers on an embedded cluster on which requests to the API server fail (injected faults).

pub(crate) mod fault_injection;
mod stories;
mod world;
