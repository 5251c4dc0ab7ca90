//! The controllers of NodeClaims: launch, registration, initialization, conditions, expiration, garbage collection,
//! termination.
//!
//! Each controller decides with a pure function. NodeClaims whose node class belongs to another provider are ignored.
//! Nodes are drained by [`crate::node`]. Provisioning and disruption decide which NodeClaims are created.
//!
//! Upstream: pkg/controllers/nodeclaim.

pub mod consistency;
pub mod disruption;
pub mod expiration;
pub mod garbage_collection;
pub mod hydration;
pub mod lifecycle;
pub mod pod_events;
pub mod reboot;
