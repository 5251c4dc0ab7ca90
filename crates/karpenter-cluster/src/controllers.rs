//! The controllers of kube-controller-manager that a node autoscaler meets.
//!
//! Each looks at the mirrors, decides in a pure function, and writes through the client; [`crate::harness`] drives
//! it. None calls another: they meet in the API server only.

pub mod context;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod events;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod garbage;
pub mod hash;
pub mod job;
pub mod kinds;
pub mod namespaces;
pub mod nodes;
pub mod owners;
pub mod placement;
pub mod pod_gc;
pub mod pods;
pub mod replicaset;
pub mod revisions;
pub mod selector;
pub mod service_accounts;
pub mod statefulset;
pub mod volumes;
