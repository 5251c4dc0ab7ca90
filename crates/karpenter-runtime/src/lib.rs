//! What every controller stands on: the clock, the work queue and its worker, stores and the watches that fill them,
//! reading protobuf, and small readings of Kubernetes' own types.
//!
//! It knows no kind of Karpenter's, uses the API server through `kube::Client` only, and prints and logs nothing.

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
