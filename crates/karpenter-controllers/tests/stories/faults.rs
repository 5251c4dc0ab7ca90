//! All controllers on an embedded cluster; only their requests to the API server fail.

pub(crate) mod fault_injection;
mod stories;
mod world;
