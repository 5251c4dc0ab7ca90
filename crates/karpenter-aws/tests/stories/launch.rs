//! Launches and machines on the in-process cloud, from a claim to EC2's calls and back, without a cluster.

mod conformance;
mod launches;
mod lessons;
mod machines;
mod templates;
mod world;
