//! The API before v1 as people used it: Provisioners that launch nodes, and the rules of their time.

mod adoption;
mod dotted;
mod emptiness;
mod expiration;
mod manifests;
mod marks;
mod refusals;
mod three_pools;
mod world;
