//! EC2NodeClass: a class's status is kept up to date, its hash is stamped, and nothing of it is left when it goes.
//!
//! Every pass observes (EC2, IAM and the rest of the provider are asked at the same time), decides (one file per
//! concern says what an answer means for its condition) and acts (one write of the status). A concern that fails does
//! not keep the others from being told, and a class that fails does not keep other classes waiting: it is tried again
//! by itself, later each time. Classes are read one by one, so that one that cannot be read harms nobody else.

mod classes;
pub mod conditions;
mod controller;
mod decide;
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
mod telling;
pub mod validation;
mod writes;

pub use classes::{Lookup, NodeClasses, read};
pub use controller::{ClassParts, ClassSettings, NodeClassStatus};
pub use hash::NodeClassHash;
pub use image_of_type::image_of_type;
pub use live::LiveSources;
pub use sources::{ImagesError, KubeletProblem, NotYet, Sources, TemplateRequest};
