//! The interface between the controllers and a cloud provider.
//!
//! A provider launches, finds and terminates instances, and lists instance types with their offerings. It does not know
//! pods, plans or nodes: a Node appears in the cluster later, when the instance's kubelet registers. Controllers use a
//! provider only through the trait [`CloudProvider`].
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

/// The group, version and kind of a node class that a provider supports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeClassKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// An instance, as the provider describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instance {
    /// The provider id, which equals `spec.providerID` of the instance's Node.
    pub provider_id: String,
    pub image_id: Option<String>,
    /// The labels that the Node will have, including instance type, zone and capacity type.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub capacity: Quantities,
    pub allocatable: Quantities,
    /// Whether the instance is terminating, so that deleting it again has no effect.
    pub is_terminating: bool,
}

/// A cloud provider. Every call may be repeated, and no call waits until an instance is ready.
pub trait CloudProvider: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// The kinds of node classes that this provider supports; the first one is the default.
    fn node_class_kinds(&self) -> Vec<NodeClassKind>;

    /// The label keys that NodePools need not define, because this provider sets them.
    fn well_known_labels(&self) -> BTreeSet<Arc<str>>;

    /// Launches an instance for a NodeClaim. If the call is repeated for the same uid, it returns the first instance.
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance>;

    /// Terminates the instance of a NodeClaim. The result is `Ok` while the instance is terminating, and
    /// [`CloudError::NotFound`] when it is gone.
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()>;

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance>;

    /// Lists all instances that belong to this cluster's Karpenter.
    fn list(&self) -> CloudFuture<'_, Vec<Instance>>;

    /// All instance types that a NodePool can launch, including those that are unavailable at present.
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>>;

    /// Why the instance of a NodeClaim differs from its node class: a fixed word, which becomes the reason of the
    /// condition. `None` if it does not differ.
    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>>;

    /// Reboots the instance of a NodeClaim in place. `Ok` means that the provider accepted the request; when the
    /// instance has rebooted, the node's boot id changes. Calls with the same operation id cause one reboot. After
    /// [`CloudError::RebootNotImplemented`] or [`CloudError::RebootFailed`] the call is not retried; after other errors
    /// it is.
    fn reboot<'a>(&'a self, _claim: &'a NodeClaim, _operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(std::future::ready(Err(CloudError::RebootNotImplemented)))
    }

    /// The node conditions by which a node counts as unhealthy, with the action for each. The set must not change;
    /// [`RepairPolicies::new`] validates it.
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    /// The hooks by which the provider can delay the registration of a node.
    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        Vec::new()
    }
}
