//! Implements the cloud provider interface for AWS: launches, reads and terminates the instances of NodeClaims, and
//! lists the instance types that a NodePool may launch.
//!
//! Decisions are made in [`crate::launch`], [`crate::types`] and [`crate::drift`]. A launch is cached by the
//! NodeClaim's uid for a while, so that a retry does not launch a second instance. [`crate::garbage_collection`]
//! handles instances whose launch a crashed process did not record.
//!
//! Upstream: `pkg/cloudprovider/cloudprovider.go`

mod describe;
mod kubelet;
mod partition;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use karpenter_api::labels::{self, LabelRules, Provider};
use karpenter_api::types::{EC2NodeClass, NodeClaim, NodePool};
use karpenter_catalog::aws::PlacementGroup;
use karpenter_cloud::{
    CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RegistrationHook, RepairAction,
    RepairPolicy,
};
use karpenter_controllers::events::{ObjectEvent, Recorder};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::is_deleting;
use karpenter_runtime::store::Store;

use crate::api::{AwsError, ErrorKind};
use crate::cache::Cache;
use crate::instance_calls::instance_id;
use crate::instances::{Freshness, Instances, ProviderInstance};
use crate::launch::Launcher;
use crate::node_class::hash::stamp;
use crate::node_class::readiness::{FAILED_RESOLVING, launchable};
use crate::node_class::{Lookup, NodeClasses};
use crate::placement_groups::facts;
use crate::single_flight::SingleFlight;
use crate::types::InstanceTypes;
pub use describe::{InstanceContext, instance};
pub use kubelet::ClassKubelet;
pub use partition::PartitionHook;

pub const NODE_CLASS_KIND: NodeClassKind =
    NodeClassKind { group: labels::AWS_GROUP, version: "v1", kind: "EC2NodeClass", plural: "ec2nodeclasses" };

/// How long a launch is cached: longer than it takes to write the result into the NodeClaim's status.
const LAUNCH_TTL: Duration = Duration::from_secs(60 * 60);

/// Gives the provider the NodePools and EC2NodeClasses of the cluster.
pub trait Objects: Send + Sync + 'static {
    fn class(&self, name: &str) -> Lookup;

    fn pool(&self, name: &str) -> Option<Arc<NodePool>>;
}

/// Reads NodePools and EC2NodeClasses from the operator's stores.
#[derive(Clone)]
pub struct WatchedObjects {
    pub classes: NodeClasses,
    pub pools: Store<NodePool>,
}

impl Objects for WatchedObjects {
    fn class(&self, name: &str) -> Lookup {
        self.classes.get(name)
    }

    fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.pools.get("", name)
    }
}

/// Decides whether NodeClaims are drifted.
pub trait DriftSource: Send + Sync + 'static {
    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>>;
}

/// Applies the NodeOverlays of a NodePool to its instance types.
pub trait OverlaySource: Send + Sync + 'static {
    fn apply(&self, pool_name: &str, types: Arc<Vec<InstanceType>>) -> Arc<Vec<InstanceType>>;
}

/// The modules and settings that the provider uses.
#[derive(Clone)]
pub struct ProviderParts {
    pub clock: Clock,
    pub objects: Arc<dyn Objects>,
    pub types: InstanceTypes,
    pub launcher: Launcher,
    pub instances: Instances,
    pub drift: Option<Arc<dyn DriftSource>>,
    pub overlays: Option<Arc<dyn OverlaySource>>,
    pub hooks: Vec<Arc<dyn RegistrationHook>>,
    pub recorder: Option<Recorder>,
    /// The CA certificates, in base64, with which nodes verify the API server. They are part of the node class's drift
    /// hash.
    pub ca_bundle: Option<String>,
    /// Whether the feature gate ReservedCapacity is on.
    pub reserved_capacity: bool,
}

/// The AWS provider. All clones share their state.
#[derive(Clone)]
pub struct AwsProvider {
    inner: Arc<Inner>,
}

struct Inner {
    parts: ProviderParts,
    well_known: BTreeSet<Arc<str>>,
    /// The instances launched recently, by the uid of their NodeClaim.
    launched: Cache<String, Instance>,
    launching: SingleFlight<String, Result<Instance, CloudError>>,
}

impl AwsProvider {
    pub fn new(parts: ProviderParts) -> Self {
        let well_known = LabelRules::for_provider(Provider::Aws).well_known().map(Arc::from).collect();
        let launched = Cache::new(parts.clock, LAUNCH_TTL);
        Self { inner: Arc::new(Inner { parts, well_known, launched, launching: SingleFlight::default() }) }
    }

    pub fn instances(&self) -> &Instances {
        &self.inner.parts.instances
    }

    pub fn types(&self) -> &InstanceTypes {
        &self.inner.parts.types
    }

    pub fn launcher(&self) -> &Launcher {
        &self.inner.parts.launcher
    }
}

impl Inner {
    async fn create(self: Arc<Self>, claim: Arc<NodeClaim>) -> Result<Instance, CloudError> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if uid.is_empty() {
            return self.launch(&claim).await;
        }
        let this = Arc::clone(&self);
        let key = uid.clone();
        let launch = move || async move {
            if let Some(launched) = this.launched.get(&uid) {
                return Ok(launched);
            }
            let instance = this.launch(&claim).await?;
            this.launched.insert(uid, instance.clone());
            Ok(instance)
        };
        self.launching.run(key, launch).await
    }

    async fn launch(&self, claim: &NodeClaim) -> Result<Instance, CloudError> {
        let parts = &self.parts;
        let name = &claim.spec.node_class_ref.name;
        let lookup = parts.objects.class(name);
        let is_gone = match &lookup {
            Lookup::Missing => true,
            Lookup::Found(class) => is_deleting(&**class),
            Lookup::Unreadable { .. } => false,
        };
        if is_gone {
            self.publish_unresolved(claim, claim.metadata.uid.as_deref()).await;
        }
        let class = launchable(lookup, name)?;
        let types = parts.types.list(&class).await.map_err(|error| {
            tracing::warn!(nodeclass = name, %error, "failed to resolve instance types");
            CloudError::CreateRefused {
                reason: "InstanceTypeResolutionFailed".to_owned(),
                message: "Error resolving instance types".to_owned(),
            }
        })?;
        let pool = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODEPOOL));
        let types = match (&parts.overlays, pool) {
            (Some(overlays), Some(pool)) => overlays.apply(pool, types),
            _ => types,
        };
        let machine = parts.launcher.launch(&class, claim, &types).await?;
        let group = self.group(&class).await;
        let related = InstanceContext {
            instance_type: find(&types, &machine.instance_type),
            class: Some(&class),
            group: group.as_ref(),
        };
        let mut instances = instance(&machine, related);
        let stamp = stamp(&class, parts.ca_bundle.as_deref());
        let profile =
            class.status.as_ref().and_then(|status| status.instance_profile.clone()).unwrap_or_default();
        instances.annotations.extend([
            (labels::AWS_ANNOTATION_NODE_CLASS_HASH.to_owned(), stamp.hash),
            (labels::AWS_ANNOTATION_NODE_CLASS_HASH_VERSION.to_owned(), stamp.version.to_owned()),
            (labels::AWS_ANNOTATION_INSTANCE_PROFILE_NAME.to_owned(), profile),
        ]);
        Ok(instances)
    }

    async fn end(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let known = claim.status.as_ref().and_then(|status| status.provider_id.clone());
        // If a NodeClaim is deleted before its launch was recorded in its status, the cached launch gives the instance
        // id.
        let known = known.filter(|id| !id.is_empty()).or_else(|| Some(self.launched.get(&uid)?.provider_id));
        let Some(id) = known.as_deref().and_then(instance_id) else {
            return Err(CloudError::NotFound { message: "the nodeclaim has no instance".to_owned() });
        };
        let answer = self.parts.instances.terminate(id).await.map_err(cloud_error);
        if answer.as_ref().is_err_and(CloudError::is_not_found) {
            self.launched.remove(&uid);
            let labels = claim.metadata.labels.as_ref();
            let reservation = labels.and_then(|labels| labels.get(labels::AWS_CAPACITY_RESERVATION_ID));
            if let Some(id) = reservation.filter(|id| !id.is_empty()) {
                self.parts.types.reservations().counts().terminated(id);
            }
        }
        answer
    }

    async fn find(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let Some(id) = instance_id(provider_id) else {
            return Err(CloudError::NotFound {
                message: format!("{provider_id:?} is not the provider id of an EC2 instance"),
            });
        };
        let found = self.parts.instances.get(id, Freshness::Fresh).await.map_err(cloud_error)?;
        Ok(self.describe(&ProviderInstance::from_ec2(&found, self.parts.reserved_capacity)).await)
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let found = self.parts.instances.list().await.map_err(cloud_error)?;
        let mut instances = Vec::with_capacity(found.len());
        for instance in found {
            instances.push(
                self.describe(&ProviderInstance::from_ec2(&instance, self.parts.reserved_capacity)).await,
            );
        }
        Ok(instances)
    }

    /// Describes an instance that was launched earlier. Its NodePool or node class may no longer exist.
    async fn describe(&self, machine: &ProviderInstance) -> Instance {
        let pool = machine.tags.get(labels::NODEPOOL).and_then(|name| self.parts.objects.pool(name));
        let of_pool = pool.map(|pool| pool.spec.template.spec.node_class_ref.name.clone());
        let types = match of_pool.and_then(|name| self.class(&name)) {
            Some(class) => self.parts.types.list(&class).await.ok(),
            None => None,
        };
        let class = machine.tags.get(labels::AWS_NODE_CLASS).and_then(|name| self.class(name));
        let group = match &class {
            Some(class) => self.group(class).await,
            None => None,
        };
        let related = InstanceContext {
            instance_type: types.as_ref().and_then(|types| find(types, &machine.instance_type)),
            class: class.as_deref(),
            group: group.as_ref(),
        };
        instance(machine, related)
    }

    async fn types_of(&self, pool: &NodePool) -> Result<Arc<Vec<InstanceType>>, CloudError> {
        let name = &pool.spec.template.spec.node_class_ref.name;
        let Some(class) = self.class(name) else {
            self.publish_unresolved(pool, pool.metadata.uid.as_deref()).await;
            return Ok(Arc::default());
        };
        self.parts
            .types
            .list(&class)
            .await
            .map_err(|error| CloudError::Transient { message: error.to_string() })
    }

    /// The node class with this name; `None` if it does not exist or is terminating.
    fn class(&self, name: &str) -> Option<Arc<EC2NodeClass>> {
        match self.parts.objects.class(name) {
            Lookup::Found(class) if !is_deleting(&*class) => Some(class),
            _ => None,
        }
    }

    async fn group(&self, class: &EC2NodeClass) -> Option<PlacementGroup> {
        let selector = class.spec.placement_group_selector.as_ref()?;
        self.parts.types.placement_groups().find_or_last_known(selector).await.as_ref().and_then(facts)
    }

    async fn publish_unresolved<K: kube::Resource<DynamicType = ()>>(&self, about: &K, uid: Option<&str>) {
        if let Some(recorder) = &self.parts.recorder {
            let notice = ObjectEvent::warning(about, "FailedResolvingNodeClass", FAILED_RESOLVING);
            recorder.publish(notice.dedupe_by(uid.unwrap_or_default())).await;
        }
    }
}

/// Finds an instance type by name; `types` must be sorted by name.
fn find<'a>(types: &'a [InstanceType], name: &str) -> Option<&'a InstanceType> {
    types.binary_search_by(|listed| (*listed.name).cmp(name)).ok().and_then(|position| types.get(position))
}

pub(crate) fn cloud_error(error: AwsError) -> CloudError {
    let message = error.to_string();
    match error.kind {
        ErrorKind::NotFound | ErrorKind::LaunchTemplateNotFound => CloudError::NotFound { message },
        ErrorKind::Throttled => CloudError::Throttled { message },
        ErrorKind::Unauthorized | ErrorKind::BadCredentials | ErrorKind::SpotRoleMissing => {
            CloudError::Unauthorized { message }
        }
        ErrorKind::Unfulfillable => CloudError::InsufficientCapacity { message },
        ErrorKind::AlreadyExists | ErrorKind::DryRunOk | ErrorKind::Transient | ErrorKind::Other => {
            CloudError::Transient { message }
        }
    }
}

impl CloudProvider for AwsProvider {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        vec![NODE_CLASS_KIND]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        self.inner.well_known.clone()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        Box::pin(Arc::clone(&self.inner).create(Arc::new(claim.clone())))
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(self.inner.end(claim))
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(self.inner.find(provider_id))
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(self.inner.list())
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        Box::pin(self.inner.types_of(pool))
    }

    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        match &self.inner.parts.drift {
            Some(drift) => drift.drift_reason(claim),
            None => Box::pin(std::future::ready(Ok(None))),
        }
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        // The policy without an expression applies to reasons that no other policy matches.
        let policy = |kind: &str, status: &str, reason: &str, minutes: u64| RepairPolicy {
            condition_type: kind.to_owned(),
            condition_status: status.to_owned(),
            reason_regex: reason.to_owned(),
            toleration_secs: minutes * 60,
            termination_grace_period_secs: Some(0),
            priority: 0,
            action: RepairAction::Replace,
        };
        let mut policies = vec![
            policy("Ready", "False", "", 30),
            policy("Ready", "Unknown", ".*", 30),
            policy("AcceleratedHardwareReady", "False", ".*", 10),
        ];
        let parts = ["StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady"];
        policies.extend(parts.map(|kind| policy(kind, "False", ".*", 30)));
        policies
    }

    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        self.inner.parts.hooks.clone()
    }
}
