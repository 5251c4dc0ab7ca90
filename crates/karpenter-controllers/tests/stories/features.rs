//! What gates and settings switch on, on an embedded cluster with all of Karpenter and a simulated cloud.

mod buffers;
mod legacy;
mod metrics;
mod min_values;
mod overlays;
mod permissions;
mod settled;
mod spreads;
mod told;
mod world;
