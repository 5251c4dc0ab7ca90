//! The controllers that delete what [`super::instances`] and [`super::profiles`] select.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use karpenter_api::labels;
use karpenter_controllers::stores::BY_PROVIDER_ID;
use karpenter_controllers::{Context, writes};
use karpenter_runtime::object::{ObjectKey, annotation, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::provider_id;

use super::instances::{ListedInstance, leaked, period};
use super::profiles::{self, InUse, cluster_path, unused};
use crate::api::iam::InstanceProfile;
use crate::api::{AwsError, AwsFuture};
use crate::instance_calls::{self, InstanceCalls, instance_id};

const CONCURRENT_TERMINATIONS_MAX: usize = 100;
/// The delay before the next attempt after an AWS call failed.
const RETRY: Duration = Duration::from_secs(10);
const PROFILES_RETRY: Duration = Duration::from_secs(60);

/// Terminates instances without a NodeClaim.
pub struct InstanceCollector {
    context: Context,
    calls: Arc<dyn InstanceCalls>,
    runs: AtomicU64,
}

impl InstanceCollector {
    pub fn new(context: Context, calls: Arc<dyn InstanceCalls>) -> Self {
        Self { context, calls, runs: AtomicU64::new(0) }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    async fn terminate(&self, instance: &ListedInstance) -> Result<(), AwsError> {
        let Some(id) = instance_id(&instance.provider_id) else { return Ok(()) };
        match self.calls.terminate(id).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        tracing::info!(provider_id = instance.provider_id, "garbage collected cloudprovider instance");
        let Context { client, stores, .. } = &self.context;
        // The Node is deleted as well, so that its pods are rescheduled sooner.
        for node in stores.nodes.by(BY_PROVIDER_ID, &instance.provider_id) {
            if let Err(error) = writes::delete(client, &stores.nodes, &*node).await {
                tracing::error!(%error, "failed deleting node of garbage collected instance");
            } else {
                let provider_id = &instance.provider_id;
                tracing::debug!(provider_id, node = name_of(&*node), "garbage collected node");
            }
        }
        Ok(())
    }
}

impl Reconcile for InstanceCollector {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        // Instances are listed before NodeClaims. So a NodeClaim that is created between the two lists protects its
        // instance.
        let instances = match self.calls.list().await {
            Ok(instances) => instances,
            Err(error) => {
                tracing::error!(%error, "failed to list instances");
                return Ok(Requeue::After(RETRY));
            }
        };
        let listed: Vec<ListedInstance> = instances
            .iter()
            .map(|instance| ListedInstance {
                provider_id: instance_calls::provider_id(instance),
                launched_at: instance.launched_at,
                is_terminating: instance.state.is_terminating(),
            })
            .collect();
        let claims = self.context.stores.node_claims.list();
        let claimed: BTreeSet<String> =
            claims.iter().filter_map(|claim| provider_id(claim)).map(str::to_owned).collect();
        let mut terminations = Vec::new();
        for instance in leaked(&listed, &claimed, self.context.clock.now()) {
            terminations.push(self.terminate(instance));
        }
        let outcomes: Vec<Result<(), AwsError>> =
            stream::iter(terminations).buffered(CONCURRENT_TERMINATIONS_MAX).collect().await;
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            tracing::error!(%error, "failed to terminate instances without nodeclaim");
            return Ok(Requeue::After(RETRY));
        }
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Requeue::After(period(runs)))
    }
}

/// The calls on instance profiles that garbage collection makes.
pub trait Profiles: Send + Sync + 'static {
    fn list<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>>;

    /// Removes the role from the profile, then deletes the profile. If the profile does not exist, it counts as
    /// deleted.
    fn delete<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()>;

    /// The names of profiles that were created or used recently, so that an object using them may not be visible yet.
    fn protected(&self) -> BTreeSet<String>;
}

/// Deletes instance profiles that are no longer used.
pub struct ProfileCollector {
    context: Context,
    profiles: Arc<dyn Profiles>,
    path: String,
}

impl ProfileCollector {
    pub fn new(context: Context, profiles: Arc<dyn Profiles>, region: &str, cluster: &str) -> Self {
        Self { context, profiles, path: cluster_path(region, cluster) }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    fn in_use(&self) -> InUse {
        let stores = &self.context.stores;
        let of_class = |class: &kube::api::DynamicObject| {
            let name = class.data.pointer("/status/instanceProfile")?.as_str()?;
            Some(name.to_owned()).filter(|name| !name.is_empty())
        };
        let classes = stores.node_classes.iter().flat_map(|(_, store)| store.list());
        let claims = stores.node_claims.list();
        let of_claims = claims
            .iter()
            .filter_map(|claim| annotation(&**claim, labels::AWS_ANNOTATION_INSTANCE_PROFILE_NAME))
            .map(str::to_owned);
        InUse {
            by_classes: classes.filter_map(|class| of_class(&class)).collect(),
            by_claims: of_claims.collect(),
            protected: self.profiles.protected(),
        }
    }

    async fn collect(&self) -> Result<(), AwsError> {
        // Profiles are listed before node classes and NodeClaims. So a profile that is created between the two lists is
        // not deleted.
        let profiles = self.profiles.list(&self.path).await?;
        let in_use = self.in_use();
        let names = profiles.iter().map(|profile| (profile.name.as_str(), profile.path.as_str()));
        let mut outcome = Ok(());
        for name in unused(names, &self.path, &in_use) {
            match self.profiles.delete(name).await {
                Ok(()) => tracing::debug!(instance_profile = name, "deleted instance profile"),
                // AWS limits the number of profiles per account, so a profile that cannot be deleted must not prevent
                // the deletion of others.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

impl Reconcile for ProfileCollector {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        match self.collect().await {
            Ok(()) => Ok(Requeue::After(profiles::PERIOD)),
            Err(error) => {
                tracing::error!(%error, "failed to garbage collect instance profiles");
                Ok(Requeue::After(PROFILES_RETRY))
            }
        }
    }
}
