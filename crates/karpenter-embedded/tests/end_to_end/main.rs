//! The control plane on the embedded API server with a paused clock, tested through the API as a user sees it.

mod ends;
mod nodes;
mod storage;
mod workloads;
mod world;
