//! SSM: published parameters, of which we read image ids.

use super::AwsFuture;

/// What is asked of SSM.
pub trait Ssm: Send + Sync {
    /// `ssm:GetParameter` of a name or an ARN; the parameter's value. Not found is an error of that kind.
    fn get_parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String>;
}
