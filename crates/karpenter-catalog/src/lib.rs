//! Built-in catalogs of instance types: AWS from embedded facts, kwok by formula or from a file.
//!
//! Pure functions from data to [`karpenter_model::instance_type::InstanceType`]; reading files and
//! talking to a cloud are done elsewhere.

pub mod aws;
mod intern;
pub mod kwok;
pub mod overlay;

/// What can be wrong with catalog data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The embedded AWS file does not have the layout its reader expects.
    #[error("the AWS catalog is damaged at byte {at}: {what}")]
    Damaged { at: usize, what: String },
    /// The embedded AWS file can be read but holds a value that makes no sense.
    #[error("the AWS catalog is inconsistent: {what}")]
    Inconsistent { what: String },
    /// The embedded AWS file lacks a fact, or holds it in another shape.
    #[error("the AWS catalog has no usable column {name}")]
    MissingColumn { name: String },
    /// An eviction threshold of a node class is neither form the kubelet takes.
    #[error(
        "eviction threshold {value:?} is neither a percentage from 0% to 100% nor a non-negative quantity"
    )]
    EvictionThreshold { value: String },
    /// The text of an instance-types file is not JSON of the expected shape.
    #[error("instance types: {message}")]
    Format { message: String },
    /// One entry of an instance-types file has a value that cannot be used.
    #[error("instance type {index} ({name:?}): {field}: {message}")]
    Entry { index: usize, name: String, field: String, message: String },
    /// Two entries of an instance-types file have the same name.
    #[error("instance type {index} ({name:?}): the name is already used by instance type {first_index}")]
    DuplicateName { index: usize, first_index: usize, name: String },
}
