//! What every controller is built on: the clock, the work queue and its worker, stores and the watches that fill them,
//! decoding of protobuf, and small functions for Kubernetes' own types.
//!
//! This crate has no code for particular kinds of Karpenter, uses the API server through `kube::Client` only, and
//! prints and logs nothing.

pub mod clock;
pub mod object;
pub mod protobuf;
pub mod proxy;
pub mod queue;
pub mod store;
pub mod taints;
pub mod watch;
pub mod worker;
pub mod write;
