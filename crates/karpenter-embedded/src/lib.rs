//! The control plane around an API server, with those parts that a node autoscaler needs: a scheduler, the workload
//! controllers, and simulated kubelets.
//!
//! Everything uses the API server through `kube::Client`, so it runs with the embedded API server and with a real one.
//! It does not depend on Karpenter's kinds and never calls the planner.

pub mod control_plane;
pub mod controllers;
pub mod kubelet;
pub mod scheduler;
pub mod stores;
