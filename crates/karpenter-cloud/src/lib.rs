//! The interface between the controllers and a cloud provider.
//!
//! A provider launches, finds and terminates instances, and lists instance types with their offerings. It does not know
//! pods, plans or nodes: a Node appears in the cluster later, when the instance's kubelet registers. Controllers use
//! providers through this trait only.
//!
//! Upstream: pkg/cloudprovider/types.go

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod hooks;
pub mod repair;

use std::sync::Arc;

use futures::future::BoxFuture;
use karpenter_api::types::{NodeClaim, NodePool, Quantities};
use karpenter_model::instance_type::InstanceType;
use std::collections::{BTreeMap, BTreeSet};

pub use error::CloudError;
pub use hooks::{HookAnswer, RegistrationHook};
pub use repair::{RepairAction, RepairPolicies, RepairPolicy};

/// The result of a call to a provider.
pub type CloudFuture<'a, T> = BoxFuture<'a, Result<T, CloudError>>;

/// The group, version and kind of a provider's node class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeClassKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// One instance as the provider reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instance {
    /// Equal to `spec.providerID` of its Node.
    pub provider_id: String,
    pub image_id: Option<String>,
    /// Labels that the Node will have, among them instance type, zone and capacity type.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub capacity: Quantities,
    pub allocatable: Quantities,
    /// Whether it is terminating; another delete has no effect.
    pub is_terminating: bool,
}

/// A cloud provider. Every call may be repeated; no call waits until an instance is ready.
pub trait CloudProvider: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Kinds of node classes that this provider supports, the default first.
    fn node_class_kinds(&self) -> Vec<NodeClassKind>;

    /// Label keys that NodePools need not define because this provider sets them.
    fn well_known_labels(&self) -> BTreeSet<Arc<str>>;

    /// Launches an instance for a NodeClaim. A repeated call for the same uid returns the first instance.
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance>;

    /// Terminates a NodeClaim's instance: `Ok` while it is terminating, [`CloudError::NotFound`] once it is gone.
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()>;

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance>;

    /// All instances that the Karpenter of this cluster owns.
    fn list(&self) -> CloudFuture<'_, Vec<Instance>>;

    /// All instance types that a NodePool can launch, including those that are unavailable now.
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>>;

    /// Why a NodeClaim's instance differs from its node class, if it does: a stable word for the condition's reason.
    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>>;

    /// Reboots a NodeClaim's instance in place. `Ok` means that the provider accepted the request; the node's boot id
    /// changes when it has rebooted. Calls with the same operation id reboot once. [`CloudError::RebootNotImplemented`]
    /// and [`CloudError::RebootFailed`] are final; other errors are retried.
    fn reboot<'a>(&'a self, _claim: &'a NodeClaim, _operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(std::future::ready(Err(CloudError::RebootNotImplemented)))
    }

    /// Node conditions that mean an unhealthy node, and the action for each. The set is constant;
    /// [`RepairPolicies::new`] validates it.
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    /// Hooks that must agree before a node is registered.
    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        Vec::new()
    }
}
