//! The control plane on the embedded API server, on paused time: what a user sees through the API.

mod ends;
mod nodes;
mod storage;
mod workloads;
mod world;
