//! What is left in the cloud of things that nobody knows any more: machines of lost launches, profiles of classes that
//! changed their role, and launch templates that have served their purpose.

mod controllers;
pub mod instances;
mod launch_templates;
pub mod profiles;

pub use controllers::{InstanceCollector, ProfileCollector, Profiles};
pub use launch_templates::LaunchTemplateCollector;
