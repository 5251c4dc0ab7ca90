//! What is left in the cloud of things that nobody knows any more: machines of lost launches, and profiles of classes
//! that changed their role. Launch templates are the launch's own business.

mod controllers;
pub mod instances;
pub mod profiles;

pub use controllers::{InstanceCollector, ProfileCollector, Profiles};
