//! The commands `karpenter install`, `uninstall` and `doctor`.
//!
//! Each command reads the cluster; a pure function decides what to do; then objects are written. This crate does not
//! print, and reads no files: it reports progress through a [`Progress`] and returns results as values. It does not
//! depend on the controllers.

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

/// Receives the progress of a command, one line at a time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The field manager of all writes, which is also the value of the label `app.kubernetes.io/managed-by` on our objects.
pub const MANAGER: &str = "karpenter-install";
