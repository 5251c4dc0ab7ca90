//! Built-in catalogs of instance types: AWS from an embedded file, kwok by formula or from a JSON file.
//!
//! Pure functions from data to [`karpenter_model::instance_type::InstanceType`]. Callers read files and call cloud APIs.

pub mod aws;
mod intern;
pub mod kwok;
pub mod overlay;

/// Errors in catalog data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The embedded AWS file does not have the expected layout.
    #[error("the AWS catalog is damaged at byte {at}: {what}")]
    Damaged { at: usize, what: String },
    /// The embedded AWS file contains an invalid value.
    #[error("the AWS catalog is inconsistent: {what}")]
    Inconsistent { what: String },
    /// A column of the embedded AWS file is missing or has another type.
    #[error("the AWS catalog has no usable column {name}")]
    MissingColumn { name: String },
    /// An eviction threshold of a node class has neither form that the kubelet accepts.
    #[error(
        "eviction threshold {value:?} is neither a percentage from 0% to 100% nor a non-negative quantity"
    )]
    EvictionThreshold { value: String },
    /// The instance types file is not JSON of the expected structure.
    #[error("instance types: {message}")]
    Format { message: String },
    /// An entry of the instance types file has an invalid value.
    #[error("instance type {index} ({name:?}): {field}: {message}")]
    Entry { index: usize, name: String, field: String, message: String },
    /// Two entries of the instance types file have the same name.
    #[error("instance type {index} ({name:?}): the name is already used by instance type {first_index}")]
    DuplicateName { index: usize, first_index: usize, name: String },
}
