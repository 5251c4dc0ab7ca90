//! The launch templates in EC2: each is created when it is needed, named by a hash of its content, and deleted when it
//! is no longer used.
//!
//! Because the name is a hash of the content, equal launches share a template, and templates are never modified. A
//! template that was not used for one minute is deleted. Templates of an earlier process are loaded once and then
//! treated the same way. Concurrent launches that need the same template share one lookup and one create call.
//! Different templates are created at the same time, up to a maximum number of connections.
//!
//! Upstream: `pkg/providers/launchtemplate`

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::hash::text_hash;
use karpenter_api::labels;
use karpenter_runtime::clock::Clock;
use tokio::sync::Semaphore;

use crate::api::ec2::{CreateLaunchTemplate, LaunchTemplate, LaunchTemplateData, LaunchTemplateQuery};
use crate::api::{AwsError, Ec2, TagFilter, Tags};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

/// A launch template that was not used for this long is deleted.
const UNUSED_TTL: Duration = Duration::from_secs(60);
/// How many launch templates are looked up or created at the same time; EC2 allows a burst of as many calls.
const CONCURRENT_CREATES_MAX: usize = 50;
pub const NAME_PREFIX: &str = "karpenter.k8s.aws";
pub const CLUSTER_TAG: &str = "eks:eks-cluster-name";

/// The name of a launch template: a prefix and a hash of its content.
pub fn template_name(data: &LaunchTemplateData, tags: &Tags) -> String {
    format!("{NAME_PREFIX}/{}", text_hash(&format!("{data:?}{tags:?}")))
}

/// Creates and deletes launch templates. All clones share their state.
#[derive(Clone)]
pub struct LaunchTemplates {
    ec2: Arc<dyn Ec2>,
    cluster_name: String,
    known: Arc<Cache<String, LaunchTemplate>>,
    in_flight: SingleFlight<String, Result<LaunchTemplate, AwsError>>,
    create_permits: Arc<Semaphore>,
}

impl LaunchTemplates {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock, cluster_name: &str) -> Self {
        Self {
            ec2,
            cluster_name: cluster_name.to_owned(),
            known: Arc::new(Cache::new(clock, UNUSED_TTL).keeping_expired()),
            in_flight: SingleFlight::default(),
            create_permits: Arc::new(Semaphore::new(CONCURRENT_CREATES_MAX)),
        }
    }

    /// Returns the launch template with this content; if it does not exist, creates it.
    pub async fn ensure(&self, data: LaunchTemplateData, tags: &Tags) -> Result<LaunchTemplate, AwsError> {
        let name = template_name(&data, tags);
        if let Some(known) = self.known.get_and_renew(&name) {
            return Ok(known);
        }
        let request = CreateLaunchTemplate { name: name.clone(), data, tags: tags.clone() };
        let (ec2, known) = (Arc::clone(&self.ec2), Arc::clone(&self.known));
        let create_permits = Arc::clone(&self.create_permits);
        let make = move || async move {
            // This cannot fail, because the semaphore is never closed.
            let _permit = create_permits.acquire().await;
            let template = find_or_create(&*ec2, &request).await?;
            known.insert(request.name.clone(), template.clone());
            Ok(template)
        };
        self.in_flight.run(name, make).await
    }

    /// Removes a launch template from the cache, after EC2 reported that it does not exist.
    pub fn forget(&self, name: &str) {
        self.known.remove(&name.to_owned());
    }

    /// Loads the launch templates of an earlier process, so that they are deleted when they are no longer used. Only
    /// the leader calls this, and only once.
    pub async fn hydrate(&self) -> Result<usize, AwsError> {
        let tags = vec![TagFilter::is(CLUSTER_TAG, &self.cluster_name)];
        let found =
            self.ec2.describe_launch_templates(&LaunchTemplateQuery { names: Vec::new(), tags }).await?;
        let count = found.len();
        for template in found {
            if self.known.get(&template.name).is_none() {
                self.known.insert(template.name.clone(), template);
            }
        }
        tracing::debug!(count, "hydrated launch template cache");
        Ok(count)
    }

    /// Deletes launch templates that were not used for a minute; called about once a minute. If a deletion fails, the
    /// next call retries it.
    pub async fn sweep(&self) -> usize {
        let mut deleted = 0;
        for (name, template) in self.known.take_expired() {
            // A launch may have used the launch template again in the meantime.
            if self.known.contains(&name) {
                continue;
            }
            match self.delete(&template).await {
                Ok(()) => deleted += 1,
                Err(error) => {
                    tracing::error!(launch_template = name, %error, "failed to delete launch template");
                    self.known.insert_for(name, template, Duration::ZERO);
                }
            }
        }
        deleted
    }

    /// Deletes all launch templates of a node class.
    pub async fn delete_all(&self, class_name: &str) -> Result<(), AwsError> {
        let tags = vec![
            TagFilter::is(CLUSTER_TAG, &self.cluster_name),
            TagFilter::is(labels::AWS_NODE_CLASS, class_name),
        ];
        let found =
            self.ec2.describe_launch_templates(&LaunchTemplateQuery { names: Vec::new(), tags }).await?;
        let mut failure = Ok(());
        for template in found {
            match self.delete(&template).await {
                Ok(()) => self.forget(&template.name),
                Err(error) => failure = Err(error),
            }
        }
        failure
    }

    async fn delete(&self, template: &LaunchTemplate) -> Result<(), AwsError> {
        match self.ec2.delete_launch_template(&template.id).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                tracing::debug!(
                    id = template.id,
                    launch_template_name = template.name,
                    "deleted launch template"
                );
                Ok(())
            }
        }
    }
}

async fn find_or_create(ec2: &dyn Ec2, request: &CreateLaunchTemplate) -> Result<LaunchTemplate, AwsError> {
    let by_name = LaunchTemplateQuery { names: vec![request.name.clone()], tags: Vec::new() };
    match ec2.describe_launch_templates(&by_name).await {
        Ok(found) => {
            if let Some(template) = found.into_iter().next() {
                return Ok(template);
            }
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    match ec2.create_launch_template(request).await {
        // Another process created the launch template. Templates with the same name have the same content, so it can be
        // used.
        Err(error) if error.is_already_exists() => {
            let found = ec2.describe_launch_templates(&by_name).await?;
            found.into_iter().next().ok_or(error)
        }
        answer => {
            if let Ok(template) = &answer {
                tracing::debug!(
                    id = template.id,
                    launch_template_name = template.name,
                    "created launch template"
                );
            }
            answer
        }
    }
}

#[cfg(test)]
mod tests;
