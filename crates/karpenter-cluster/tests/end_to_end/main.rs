//! The control plane on the embedded API server with a paused clock, as a user sees it through the API.

mod ends;
mod nodes;
mod storage;
mod workloads;
mod world;
