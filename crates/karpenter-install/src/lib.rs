//! `karpenter install`, `uninstall` and `doctor`.
//!
//! Each command observes the cluster, a pure function decides, then objects are written. This crate does not print or
//! read files: progress goes to a [`Progress`], results are values. It does not depend on the controllers.

pub mod controllers;
pub mod doctor;
mod error;
pub mod install;
mod kinds;
pub mod leases;
pub mod manifests;
pub mod owner;
mod quantity;
pub mod settings;
pub mod uninstall;

pub use error::Error;
pub use kinds::title;

/// Receives progress, line by line.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The field manager of all writes, and the value of the label `app.kubernetes.io/managed-by` of our objects.
pub const MANAGER: &str = "karpenter-install";
