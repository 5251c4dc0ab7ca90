//! The embedded API server: a Kubernetes API server in memory, as a `tower::Service`. A `kube::Client` uses it without
//! a socket; kubectl uses the same service on a loopback port (`serve`).
//!
//! The server stores, validates, patches, lists and watches objects in the same way as kube-apiserver. It does not
//! depend on Karpenter and runs no controller: it does not schedule pods, collect garbage or finalize namespaces. The
//! caller passes the clock and the seed of identifiers, so the same requests in the same order give the same responses.

pub mod admission;
pub mod apply;
pub mod builtin;
pub mod clock;
pub mod convert;
pub mod crd;
pub mod discovery;
pub mod encode;
pub mod field;
pub mod ids;
pub mod openapi;
pub mod options;
pub mod patch;
pub mod persist;
pub mod protobuf;
pub mod registry;
pub mod request;
pub mod selector;
pub mod serve;
pub mod server;
pub mod shape;
pub mod status;
pub mod store;
pub mod strict;
pub mod table;
mod verbs;
mod watch;

pub use server::{ApiServer, Config};
