//! Carry out what the collectors decide.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use karpenter_api::labels;
use karpenter_cluster::controllers::context::{annotation, name_of};
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use karpenter_controllers::nodeclaim::provider_id;
use karpenter_controllers::stores::BY_PROVIDER_ID;
use karpenter_controllers::{Context, writes};

use super::instances::{Machine, leaked, period};
use super::profiles::{self, InUse, cluster_path, unused};
use crate::api::iam::InstanceProfile;
use crate::api::{AwsError, AwsFuture};
use crate::machines::{self, Machines, instance_id};

const AT_ONCE: usize = 100;
/// A cloud that did not answer is asked again after this long.
const RETRY: Duration = Duration::from_secs(10);
const PROFILES_RETRY: Duration = Duration::from_secs(60);

/// Ends machines that no claim knows.
pub struct InstanceCollector {
    context: Context,
    machines: Arc<dyn Machines>,
    looks: AtomicU64,
}

impl InstanceCollector {
    pub fn new(context: Context, machines: Arc<dyn Machines>) -> Self {
        Self { context, machines, looks: AtomicU64::new(0) }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    async fn end(&self, machine: &Machine) -> Result<(), AwsError> {
        let Some(id) = instance_id(&machine.provider_id) else { return Ok(()) };
        match self.machines.terminate(id).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        tracing::info!(provider_id = machine.provider_id, "garbage collected cloudprovider instance");
        let Context { client, stores, .. } = &self.context;
        // Its pods are planned anew sooner without the node.
        for node in stores.nodes.by(BY_PROVIDER_ID, &machine.provider_id) {
            if let Err(error) = writes::delete(client, &stores.nodes, &*node).await {
                tracing::error!(%error, "failed deleting node of garbage collected instance");
            } else {
                let provider_id = &machine.provider_id;
                tracing::debug!(provider_id, node = name_of(&*node), "garbage collected node");
            }
        }
        Ok(())
    }
}

impl Reconcile for InstanceCollector {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        // Machines first: a claim that is made meanwhile is then one too many, not one too few.
        let instances = match self.machines.list().await {
            Ok(instances) => instances,
            Err(error) => {
                tracing::error!(%error, "instances could not be listed");
                return Ok(After::Again(RETRY));
            }
        };
        let machines: Vec<Machine> = instances
            .iter()
            .map(|instance| Machine {
                provider_id: machines::provider_id(instance),
                launched_at: instance.launched_at,
                is_ending: instance.state.is_ending(),
            })
            .collect();
        let claims = self.context.stores.node_claims.list();
        let claimed: BTreeSet<String> =
            claims.iter().filter_map(|claim| provider_id(claim)).map(str::to_owned).collect();
        let mut endings = Vec::new();
        for machine in leaked(&machines, &claimed, self.context.clock.now()) {
            endings.push(self.end(machine));
        }
        let outcomes: Vec<Result<(), AwsError>> = stream::iter(endings).buffered(AT_ONCE).collect().await;
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            tracing::error!(%error, "instances that no nodeclaim knows could not all be ended");
            return Ok(After::Again(RETRY));
        }
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(After::Again(period(looks)))
    }
}

/// What the collector of profiles asks of whoever makes them.
pub trait Profiles: Send + Sync + 'static {
    fn list<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>>;

    /// Takes its role away, then the profile; one that is gone counts as deleted.
    fn delete<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()>;

    /// Names of profiles that somebody may be about to use.
    fn protected(&self) -> BTreeSet<String>;
}

/// Deletes profiles that nobody uses.
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
        let classes = stores.node_classes.iter().flat_map(|(_, mirror)| mirror.list());
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
        // Profiles first: one that is made meanwhile is then not in the list.
        let profiles = self.profiles.list(&self.path).await?;
        let in_use = self.in_use();
        let names = profiles.iter().map(|profile| (profile.name.as_str(), profile.path.as_str()));
        let mut outcome = Ok(());
        for name in unused(names, &self.path, &in_use) {
            match self.profiles.delete(name).await {
                Ok(()) => tracing::debug!(instance_profile = name, "deleted instance profile"),
                // Profiles are limited: one that cannot go must not keep all others.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

impl Reconcile for ProfileCollector {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        match self.collect().await {
            Ok(()) => Ok(After::Again(profiles::PERIOD)),
            Err(error) => {
                tracing::error!(%error, "instance profiles could not be cleaned up");
                Ok(After::Again(PROFILES_RETRY))
            }
        }
    }
}
