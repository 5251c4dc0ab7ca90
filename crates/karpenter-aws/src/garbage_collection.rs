//! Garbage collection of AWS resources: instances without a NodeClaim, and instance profiles and launch templates that
//! are no longer used.
//!
//! Upstream: `pkg/controllers/nodeclaim/garbagecollection`, `pkg/controllers/nodeclass/garbagecollection`

mod controllers;
pub mod instances;
mod launch_templates;
pub mod profiles;

pub use controllers::{InstanceCollector, ProfileCollector, Profiles};
pub use launch_templates::LaunchTemplateCollector;
