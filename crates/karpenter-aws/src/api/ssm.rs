//! SSM: public parameters that hold AMI ids.

use super::AwsFuture;

/// The SSM calls in use.
pub trait Ssm: Send + Sync {
    /// `ssm:GetParameter` by name or ARN; returns the parameter's value. If the parameter does not exist, the result is
    /// an error of kind `NotFound`.
    fn get_parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String>;
}
