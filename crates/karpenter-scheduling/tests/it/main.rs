//! All integration tests of this crate, in one binary: linking is a large part of the time of a test run.

mod daemon_claims;
mod differential;
mod fewer_nodes;
mod min_values;
mod overrides;
mod properties;
mod regressions;
mod reservations;
mod reservations_properties;
mod reserved_slots;
mod shared_hosts;
mod simulate;
mod simulate_properties;
mod simulate_speed;
mod spread_filters;
mod spread_share;
mod support;
mod validate_faults;
mod validate_topology;
mod validated;
