//! The controllers on the embedded cluster: stories told by area, each with the world it plays in.
//!
//! One binary for all of them: linking the whole stack once costs less than eight times.

mod disruption;
mod embedded;
mod faults;
mod features;
mod heard;
mod legacy;
mod lifecycle;
mod lines;
mod logs;
mod provisioning;
mod repair;
mod rules;
mod static_capacity;
mod termination;
