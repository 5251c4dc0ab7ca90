//! The controllers of NodeClaims: launch, registration, initialization, conditions, expiration, garbage collection,
//! termination.
//!
//! Each controller has its decision as a pure function. NodeClaims whose node class is of another provider are ignored.
//! Draining is in [`crate::node`]; which NodeClaims are created is decided by provisioning and disruption.
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
