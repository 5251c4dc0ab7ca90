//! Launches and machines on the in-process cloud, from a claim to EC2's calls and back, without a cluster: there is an
//! API server only for what is told about objects.

mod conformance;
mod events;
mod fleet_errors;
mod instances;
mod launches;
mod templates;
mod world;
