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
pub mod crd;
pub mod field;
pub mod patch;
pub mod shape;
pub mod status;
pub mod table;
