//! The controllers of kube-controller-manager that affect a node autoscaler.
//!
//! Each controller reads the stores, decides in a pure function, and writes through the client. A
//! [`karpenter_runtime::worker`] runs the controller. Controllers do not call each other; they communicate through the
//! API server only.
//!
//! Upstream: k8s.io/kubernetes/pkg/controller

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
