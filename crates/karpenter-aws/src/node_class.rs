//! The EC2NodeClass controllers: status and conditions, hash annotations, and cleanup on deletion.
//!
//! Each reconcile observes (calls EC2, IAM and the rest of the provider concurrently), decides (one file per condition)
//! and acts (one status patch). A failure of one condition does not prevent the others from being updated. A class that
//! fails is retried with back-off and does not delay other classes. Classes are parsed one by one, so that a class that
//! cannot be parsed does not affect others.
//!
//! Upstream: `pkg/controllers/nodeclass`

mod classes;
pub mod conditions;
mod controller;
mod decide;
mod failure_log;
mod finalize;
pub mod hash;
mod image_of_type;
mod images;
mod instance_profile;
mod live;
mod placement_group;
pub mod readiness;
mod remedy;
mod reservations;
mod security_groups;
mod sources;
mod subnets;
pub mod tags;
pub mod validation;
mod writes;

pub use classes::{Lookup, NodeClasses, read};
pub use controller::{ClassParts, ClassSettings, NodeClassStatus};
pub use hash::NodeClassHash;
pub use image_of_type::image_of_type;
pub use live::LiveSources;
pub use sources::{ImagesError, KubeletProblem, Sources, TemplateRequest, TypesNotDiscovered};
