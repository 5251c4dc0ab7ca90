//! Built-in catalogs of instance types: for AWS from an embedded file, for kwok computed by formula or parsed from a
//! JSON file.
//!
//! The crate consists of pure functions from data to [`karpenter_model::instance_type::InstanceType`]. Callers read
//! files and call cloud APIs.

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
    /// The embedded AWS file lacks a column, or the column has another type.
    #[error("the AWS catalog has no usable column {name}")]
    MissingColumn { name: String },
    /// An eviction threshold of a node class is neither a percentage nor a quantity, the two forms that the kubelet
    /// accepts.
    #[error(
        "eviction threshold {value:?} is neither a percentage from 0% to 100% nor a non-negative quantity"
    )]
    EvictionThreshold { value: String },
    /// The file with instance types is not JSON with the expected structure.
    #[error("instance types: {message}")]
    Format { message: String },
    /// An entry of the file with instance types has an invalid value.
    #[error("instance type {index} ({name:?}): {field}: {message}")]
    Entry { index: usize, name: String, field: String, message: String },
    /// Two entries of the file with instance types have the same name.
    #[error("instance type {index} ({name:?}): the name is already used by instance type {first_index}")]
    DuplicateName { index: usize, first_index: usize, name: String },
}
