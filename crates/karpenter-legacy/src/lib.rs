//! The v1alpha5 and v1beta1 APIs, and their conversion to v1.
//!
//! The crate has the types of Provisioner (`karpenter.sh/v1alpha5`), AWSNodeTemplate (`karpenter.k8s.aws/v1alpha1`) and
//! the v1beta1 kinds, their validation rules, and [`convert`], which turns objects of these kinds into v1 objects.
//! Every setting that v1 cannot express is reported as a [`Finding`] with a code, a field and a fix.
//!
//! The crate is pure: its input and output are JSON values. It does not validate the resulting v1 objects; callers do
//! this with the schemas of `karpenter-api`.

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
