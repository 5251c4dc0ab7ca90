//! Instance profiles, which give instances the role of their node class. They are created for node classes with
//! `spec.role`, kept up to date, and deleted with the node class.
//!
//! The name of a profile is derived from node class and role. So creation can be repeated after a lost response, a
//! conflict or a crash without creating a second profile. Another role gets another profile, because running instances
//! keep theirs. [`crate::garbage_collection`] deletes unused profiles; this module protects those that are too new to
//! be deleted.
//!
//! Upstream: `pkg/providers/instanceprofile/instanceprofile.go`

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use karpenter_api::hash::text_hash;
use karpenter_api::labels;
use karpenter_api::types::EC2NodeClass;
use karpenter_runtime::clock::Clock;

use crate::api::iam::{CreateInstanceProfile, InstanceProfile};
use crate::api::{AwsError, AwsFuture, Iam, Tags};
use crate::cache::Cache;
use crate::garbage_collection;

const PROFILE_TTL: Duration = Duration::from_secs(15 * 60);
const MISSING_ROLE_TTL: Duration = Duration::from_secs(60);
const PROTECTED_FOR: Duration = Duration::from_secs(60 * 60);
/// IAM's limit.
const NAME_LENGTH_MAX: usize = 128;

/// The name of a role without its path, as IAM compares it.
pub fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// The IAM path of all profiles of a node class. It contains the node class's uid, because a new node class may have
/// the name of a deleted one.
pub fn class_path(region: &str, cluster: &str, class_uid: &str) -> String {
    format!("/karpenter/{region}/{cluster}/{class_uid}/")
}

/// The name of the instance profile for a node class and role.
pub fn profile_name(cluster: &str, region: &str, class: &EC2NodeClass, role: &str) -> String {
    let meta = &class.metadata;
    let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
    format!("{cluster}_{}", text_hash(&format!("{region}{name}{uid}{}", role_name(role))))
}

/// The name of the only profile that a node class has in upstream releases without profile paths; `None` if the name
/// would be longer than IAM allows.
pub fn legacy_profile_name(cluster: &str, region: &str, class_name: &str) -> Option<String> {
    let name = format!("{cluster}_{}", text_hash(&format!("{region}{class_name}")));
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "_+=,.@-".contains(character);
    (name.len() <= NAME_LENGTH_MAX && name.chars().all(is_allowed)).then_some(name)
}

/// The tags of the instance profiles of a node class.
pub fn profile_tags(class: &EC2NodeClass, cluster: &str, region: &str) -> Tags {
    let mut tags = class.spec.tags.clone().unwrap_or_default();
    let name = class.metadata.name.as_deref().unwrap_or_default();
    tags.extend([
        (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        ("eks:eks-cluster-name".to_owned(), cluster.to_owned()),
        (labels::AWS_NODE_CLASS.to_owned(), name.to_owned()),
        (labels::REGION.to_owned(), region.to_owned()),
    ]);
    tags
}

/// The next step until the profile exists and has the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Create,
    /// The profile has this other role, which must be removed first.
    RemoveRole(String),
    AddRole,
    Done,
}

/// The next step, given the profile's current state.
pub fn next_step(profile: Option<&InstanceProfile>, role: &str) -> Step {
    let Some(profile) = profile else { return Step::Create };
    match profile.roles.first() {
        None => Step::AddRole,
        Some(present) if role_name(present) == role_name(role) => Step::Done,
        Some(other) => Step::RemoveRole(other.clone()),
    }
}

/// Why a node class has no usable instance profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("role {role} does not exist: {error}")]
    RoleNotFound { role: String, error: AwsError },
    #[error("{call}: {error}")]
    Aws { call: &'static str, error: AwsError },
}

/// Whether the error says that the role is missing. IAM returns `NoSuchEntity` for a missing profile as well; only the
/// message distinguishes them.
fn is_role_not_found(error: &AwsError) -> bool {
    let message = error.message.to_ascii_lowercase();
    error.is_not_found() && message.contains("role") && !message.starts_with("instance profile")
}

/// Creates, finds and deletes instance profiles.
pub struct Profiles {
    iam: Arc<dyn Iam>,
    cluster: String,
    region: String,
    known: Cache<String, InstanceProfile>,
    missing_roles: Cache<String, AwsError>,
    protected: Cache<String, ()>,
}

impl Profiles {
    pub fn new(iam: Arc<dyn Iam>, clock: Clock, cluster: &str, region: &str) -> Self {
        Self {
            iam,
            cluster: cluster.to_owned(),
            region: region.to_owned(),
            known: Cache::new(clock, PROFILE_TTL),
            missing_roles: Cache::new(clock, MISSING_ROLE_TTL),
            protected: Cache::new(clock, PROTECTED_FOR),
        }
    }

    /// Returns the name of a profile that has the node class's role: the profile in the status if it still has the
    /// role, otherwise a new one.
    pub async fn ensure(&self, class: &EC2NodeClass, role: &str) -> Result<String, ProfileError> {
        let in_status = class.status.as_ref().and_then(|status| status.instance_profile.as_deref());
        let in_status = in_status.filter(|name| !name.is_empty());
        if let Some(name) = in_status
            && next_step(self.find(name).await?.as_ref(), role) == Step::Done
        {
            return Ok(name.to_owned());
        }
        let name = profile_name(&self.cluster, &self.region, class, role);
        // Garbage collection may run at any time, so the profile is protected before it is created.
        self.protect(&name);
        self.make(class, &name, role).await?;
        if let Some(old) = in_status.filter(|old| *old != name) {
            self.protect(old);
        }
        Ok(name)
    }

    /// Protects a profile from garbage collection for a while, because a NodeClaim that uses the profile may not be
    /// visible yet.
    pub fn protect(&self, name: &str) {
        self.protected.insert(name.to_owned(), ());
    }

    async fn make(&self, class: &EC2NodeClass, name: &str, role: &str) -> Result<(), ProfileError> {
        if let Some(error) = self.missing_roles.get(&role_name(role).to_owned()) {
            return Err(ProfileError::RoleNotFound { role: role.to_owned(), error });
        }
        let mut profile = self.find(name).await?;
        let mut is_ours = false;
        loop {
            match next_step(profile.as_ref(), role) {
                Step::Done => break,
                Step::Create => {
                    profile = Some(self.create(class, name).await?);
                    is_ours = true;
                }
                Step::RemoveRole(other) => {
                    let removed = self.iam.remove_role_from_instance_profile(name, &other).await;
                    removed.map_err(|error| aws("iam:RemoveRoleFromInstanceProfile", error))?;
                    profile.get_or_insert_default().roles.clear();
                }
                Step::AddRole => {
                    if let Err(error) = self.add_role(name, role).await {
                        if is_ours {
                            // It does not matter if this deletion fails: the profile is unusable, and the next attempt
                            // creates it again.
                            let _ = self.delete(name).await;
                        }
                        return Err(error);
                    }
                    profile.get_or_insert_default().roles = vec![role_name(role).to_owned()];
                }
            }
        }
        if let Some(profile) = profile {
            self.known.insert(name.to_owned(), profile);
        }
        Ok(())
    }

    async fn create(&self, class: &EC2NodeClass, name: &str) -> Result<InstanceProfile, ProfileError> {
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        let request = CreateInstanceProfile {
            name: name.to_owned(),
            path: class_path(&self.region, &self.cluster, uid),
            tags: profile_tags(class, &self.cluster, &self.region),
        };
        match self.iam.create_instance_profile(&request).await {
            Ok(profile) => Ok(profile),
            // An earlier attempt created the profile, but its response was lost, and the profile is not visible yet.
            Err(error) if error.is_already_exists() => {
                let found = self.iam.get_instance_profile(name).await;
                found.map_err(|error| aws("iam:GetInstanceProfile", error))
            }
            Err(error) => Err(aws("iam:CreateInstanceProfile", error)),
        }
    }

    async fn add_role(&self, name: &str, role: &str) -> Result<(), ProfileError> {
        let role_alone = role_name(role);
        match self.iam.add_role_to_instance_profile(name, role_alone).await {
            Ok(()) => Ok(()),
            Err(error) if is_role_not_found(&error) => {
                self.missing_roles.insert(role_alone.to_owned(), error.clone());
                Err(ProfileError::RoleNotFound { role: role.to_owned(), error })
            }
            Err(error) => Err(aws("iam:AddRoleToInstanceProfile", error)),
        }
    }

    async fn find(&self, name: &str) -> Result<Option<InstanceProfile>, ProfileError> {
        if let Some(known) = self.known.get(&name.to_owned()) {
            return Ok(Some(known));
        }
        match self.iam.get_instance_profile(name).await {
            Ok(profile) => {
                self.known.insert(name.to_owned(), profile.clone());
                Ok(Some(profile))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(aws("iam:GetInstanceProfile", error)),
        }
    }

    /// Deletes all instance profiles of a node class.
    pub async fn delete_all(&self, class: &EC2NodeClass) -> Result<(), ProfileError> {
        let meta = &class.metadata;
        let path = class_path(&self.region, &self.cluster, meta.uid.as_deref().unwrap_or_default());
        let listed = self.iam.list_instance_profiles(&path).await;
        let listed = listed.map_err(|error| aws("iam:ListInstanceProfiles", error))?;
        // The path is checked again here, so that profiles of others are not deleted even if IAM ignores the path
        // prefix.
        for profile in listed.iter().filter(|profile| profile.path == path) {
            self.delete(&profile.name).await.map_err(|error| aws("iam:DeleteInstanceProfile", error))?;
        }
        let legacy =
            legacy_profile_name(&self.cluster, &self.region, meta.name.as_deref().unwrap_or_default());
        if let Some(name) = legacy {
            self.delete(&name).await.map_err(|error| aws("iam:DeleteInstanceProfile", error))?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), AwsError> {
        let profile = match self.iam.get_instance_profile(name).await {
            Ok(profile) => profile,
            Err(error) if error.is_not_found() => {
                self.forget(name);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for role in &profile.roles {
            match self.iam.remove_role_from_instance_profile(name, role).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        match self.iam.delete_instance_profile(name).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        self.forget(name);
        Ok(())
    }

    fn forget(&self, name: &str) {
        self.known.remove(&name.to_owned());
        self.protected.remove(&name.to_owned());
    }
}

fn aws(call: &'static str, error: AwsError) -> ProfileError {
    ProfileError::Aws { call, error }
}

impl garbage_collection::Profiles for Profiles {
    fn list<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>> {
        self.iam.list_instance_profiles(path_prefix)
    }

    fn delete<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        Profiles::delete(self, name).boxed()
    }

    fn protected(&self) -> BTreeSet<String> {
        self.protected.entries().into_iter().map(|(name, ())| name).collect()
    }
}
