//! The API that Karpenter had before v1, and what becomes of its objects.
//!
//! Holds the old kinds as types (Provisioner and AWSNodeTemplate, and the v1beta1 kinds), the rules by which they were
//! admitted, and [`convert`], which turns them into v1 objects. Whatever the new API cannot say is a [`Finding`] with a
//! code, a field and what to do about it; nothing is dropped in silence.
//!
//! Pure: objects come in as JSON values and go out as JSON values. Whether a v1 object would be admitted is not decided
//! here: the schemas live in `karpenter-api`, and callers hold the result against them.

mod beta;
mod class;
mod convert;
mod defaults;
mod derive;
mod finding;
mod labels;
mod metadata;
mod names;
mod options;
mod pool;
mod quantities;
mod read;
mod rules;
mod selectors;
mod settings;
pub mod types;
mod workloads;

pub use convert::{Converted, ConvertedObject, convert, is_legacy};
pub use derive::{Derived, Foreign, Refusal, derive, derived_name, provisioner_status, template_status};
pub use finding::{Code, Finding, Severity};
pub use labels::{PROVISIONER_NAME, normalize};
pub use options::{
    Expiration, MixedSelectors, Options, ROLE_PLACEHOLDER, SECURITY_GROUP_IDS_ANNOTATION,
    SUBNET_IDS_ANNOTATION, TTL_UNTIL_EXPIRED_ANNOTATION,
};
pub use settings::{GLOBAL_SETTINGS, GlobalSettings};
