//! IAM: instance profiles, which give instances their role.

use jiff::Timestamp;

use super::{AwsFuture, Tags};

/// The IAM calls in use.
pub trait Iam: Send + Sync {
    /// `iam:GetInstanceProfile`.
    fn get_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, InstanceProfile>;

    /// `iam:CreateInstanceProfile`.
    fn create_instance_profile<'a>(
        &'a self,
        request: &'a CreateInstanceProfile,
    ) -> AwsFuture<'a, InstanceProfile>;

    /// `iam:DeleteInstanceProfile`. IAM rejects the call while the profile has a role.
    fn delete_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()>;

    /// `iam:AddRoleToInstanceProfile`. `role` is the role's name without a path.
    fn add_role_to_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()>;

    /// `iam:RemoveRoleFromInstanceProfile`.
    fn remove_role_from_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()>;

    /// `iam:ListInstanceProfiles` whose path begins with `path_prefix`, which begins and ends with a slash.
    fn list_instance_profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>>;
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateInstanceProfile {
    pub name: String,
    pub path: String,
    pub tags: Tags,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceProfile {
    pub name: String,
    pub id: String,
    pub arn: String,
    pub path: String,
    pub created_at: Option<Timestamp>,
    /// The names of the profile's roles; a profile has at most one.
    pub roles: Vec<String>,
    pub tags: Tags,
}
