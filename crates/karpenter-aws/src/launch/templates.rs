//! Launch templates in EC2: made when needed, named by what they say, and deleted when nobody used them for a while.
//!
//! The name is a hash of everything a template says, so that equal launches share one and no template is ever changed.
//! A template is kept for a minute after its last use; templates of an earlier process are found once and age likewise.
//! Each template is looked for and made once, however many launches want it at the same time; different ones do not
//! wait for each other, unless there are so many that their calls would need a connection each.

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::hash::text_hash;
use karpenter_api::labels;
use karpenter_cluster::clock::Clock;
use tokio::sync::Semaphore;

use crate::api::ec2::{CreateLaunchTemplate, LaunchTemplate, LaunchTemplateData, LaunchTemplateQuery};
use crate::api::{AwsError, Ec2, TagFilter, Tags};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

/// A template that was not used for this long is deleted.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// So many templates are looked for or made at once; EC2 takes a burst of as many.
const MADE_AT_ONCE_MAX: usize = 50;
pub const NAME_PREFIX: &str = "karpenter.k8s.aws";
pub const CLUSTER_TAG: &str = "eks:eks-cluster-name";

/// A template's name: what it says, in a number.
pub fn template_name(data: &LaunchTemplateData, tags: &Tags) -> String {
    format!("{NAME_PREFIX}/{}", text_hash(&format!("{data:?}{tags:?}")))
}

/// Clones share everything.
#[derive(Clone)]
pub struct LaunchTemplates {
    ec2: Arc<dyn Ec2>,
    cluster_name: String,
    known: Arc<Cache<String, LaunchTemplate>>,
    under_way: SingleFlight<String, Result<LaunchTemplate, AwsError>>,
    turns: Arc<Semaphore>,
}

impl LaunchTemplates {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock, cluster_name: &str) -> Self {
        Self {
            ec2,
            cluster_name: cluster_name.to_owned(),
            known: Arc::new(Cache::new(clock, KEPT_FOR).keeping_expired()),
            under_way: SingleFlight::default(),
            turns: Arc::new(Semaphore::new(MADE_AT_ONCE_MAX)),
        }
    }

    /// The template that says this; made if there is none.
    pub async fn ensure(&self, data: LaunchTemplateData, tags: &Tags) -> Result<LaunchTemplate, AwsError> {
        let name = template_name(&data, tags);
        if let Some(known) = self.known.get_and_renew(&name) {
            return Ok(known);
        }
        let request = CreateLaunchTemplate { name: name.clone(), data, tags: tags.clone() };
        let (ec2, known) = (Arc::clone(&self.ec2), Arc::clone(&self.known));
        let turns = Arc::clone(&self.turns);
        let make = move || async move {
            // Never closed, so this only waits.
            let _turn = turns.acquire().await;
            let template = find_or_create(&*ec2, &request).await?;
            known.insert(request.name.clone(), template.clone());
            Ok(template)
        };
        self.under_way.run(name, make).await
    }

    /// EC2 does not know the template any more.
    pub fn forget(&self, name: &str) {
        self.known.remove(&name.to_owned());
    }

    /// Finds what an earlier process left behind, so that it ages like everything else. To be called once, by the leader.
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

    /// Deletes what nobody used for a while; to be called about once a minute. What cannot be deleted is tried again.
    pub async fn sweep(&self) -> usize {
        let mut deleted = 0;
        for (name, template) in self.known.take_expired() {
            // A launch may have brought it back meanwhile.
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

    /// Deletes all templates of a class.
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
        // Another process was faster; what has the name says the same.
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
