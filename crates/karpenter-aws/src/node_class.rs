//! The controllers of EC2NodeClasses: they write status, conditions and hash annotations, and clean up deleted node
//! classes.
//!
//! Each reconcile first observes (calls EC2, IAM and the rest of the provider concurrently), then decides (one file per
//! condition), then acts (one status patch). If the check of one condition fails, the other conditions are updated
//! nevertheless. A node class whose reconcile fails is retried with back-off and does not delay other node classes.
//! Classes are parsed one by one, so a node class that cannot be parsed does not affect others.
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
