//! Scenario tests: the controllers run on the embedded cluster with a simulated clock. Each area has its own module.
//!
//! All areas are in one test binary, because linking takes most of the build time.

mod captured_log;
mod clients;
mod disruption;
mod embedded;
mod faults;
mod features;
mod legacy;
mod lifecycle;
mod logs;
mod provisioning;
mod repair;
mod rules;
mod static_capacity;
mod termination;
