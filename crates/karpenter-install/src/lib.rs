//! `karpenter install`, `uninstall` and `doctor`: Karpenter onto a cluster, off it again, and what is wrong with it.
//!
//! Each observes the cluster first, then a pure function decides, then things are written. Nothing here prints or reads
//! files: progress goes to a [`Tell`], answers are values. What the controllers do once they run is not known here.

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

/// Who hears what is being done, line by line.
pub type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The field manager of everything that is written, and the value of the label that marks our objects.
pub const MANAGER: &str = "karpenter-install";
