//! Tests of the v1alpha5 API: Provisioners launch nodes, and these nodes follow the disruption rules of v1alpha5.

mod adoption;
mod dotted;
mod emptiness;
mod expiration;
mod manifests;
mod marks;
mod refusals;
mod three_pools;
mod world;
