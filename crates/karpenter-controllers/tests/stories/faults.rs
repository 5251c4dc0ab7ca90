//! Tests of all controllers on an embedded cluster whose API server fails some of the requests (injected faults).

pub(crate) mod fault_injection;
mod stories;
mod world;
