//! A Kubernetes API server in memory, as a `tower::Service`: kube-rs clients run on it without a socket, kubectl on
//! the same service behind a loopback port.
//!
//! It stores, validates, patches, lists and watches objects as a real server does. It knows nothing about Karpenter,
//! and it runs no controller: nothing here schedules pods, collects garbage or finishes a namespace. Time and
//! identifiers come from outside, so equal requests in equal order give equal answers.

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
