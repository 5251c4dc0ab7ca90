//! The control plane around an API server, as far as a node autoscaler lives on it: a scheduler, the workload
//! controllers, and kubelets for nodes that exist only as objects.
//!
//! Everything here speaks to the API server through `kube::Client`, so it runs on the embedded server and on a real
//! one alike. It knows nothing about Karpenter's kinds and never calls its solver.

pub mod clock;
pub mod cluster;
pub mod controllers;
pub mod harness;
pub mod kubelet;
pub mod mirror;
pub mod mirrors;
pub mod proxy;
pub mod scheduler;
