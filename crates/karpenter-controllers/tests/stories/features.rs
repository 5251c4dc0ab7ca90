//! Tests of features behind gates and settings, with all controllers on an embedded cluster and a simulated cloud.

mod buffers;
mod events;
mod legacy;
mod metrics;
mod min_values;
mod overlays;
mod permissions;
mod repeated_plans;
mod spreads;
mod world;
