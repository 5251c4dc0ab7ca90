//! The control plane around an API server, with those parts that a node autoscaler needs: a scheduler, the workload
//! controllers, and simulated kubelets.
//!
//! Everything uses the API server through `kube::Client`, so it runs with the embedded API server and with a real one.
//! It does not depend on Karpenter's kinds and never calls the planner.

pub mod clock;
pub mod cluster;
pub mod controllers;
pub mod kubelet;
pub mod proxy;
pub mod reconcile;
pub mod scheduler;
pub mod store;
pub mod stores;
