//! What Karpenter asks of a cloud, and how a cloud may answer.
//!
//! A provider launches, finds and ends instances, and says what can be bought. It does not know pods, plans or nodes:
//! a node is something that appears in the cluster later, by itself. Controllers know providers only by this trait.

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

/// An answer that takes a while.
pub type CloudFuture<'a, T> = BoxFuture<'a, Result<T, CloudError>>;

/// The kind of a provider's launch settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeClassKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// One machine as the cloud sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instance {
    /// What `spec.providerID` of its node says.
    pub provider_id: String,
    pub image_id: Option<String>,
    /// Labels the node will carry, instance type, zone and capacity type among them.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub capacity: Quantities,
    pub allocatable: Quantities,
    /// On its way out; asking for its end again does nothing.
    pub is_terminating: bool,
}

/// A cloud. Every call may be repeated; none of them waits for a machine to be ready.
pub trait CloudProvider: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Kinds of launch settings this provider understands, the default one first.
    fn node_class_kinds(&self) -> Vec<NodeClassKind>;

    /// Label keys that pools may leave undefined because this provider sets them.
    fn well_known_labels(&self) -> BTreeSet<Arc<str>>;

    /// Launches a machine for a claim. Asked twice for one claim (same uid), the second answer is the first machine.
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance>;

    /// Asks for the end of a claim's machine: `Ok` while it is under way, [`CloudError::NotFound`] once it is gone.
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()>;

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance>;

    /// Every machine that this cluster's Karpenter owns.
    fn list(&self) -> CloudFuture<'_, Vec<Instance>>;

    /// Everything a pool could buy, what is not available right now included.
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>>;

    /// Why a claim's machine no longer is what its node class asks for, if so: a stable word for the condition.
    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>>;

    /// Restarts a claim's machine in place. `Ok` means accepted: that it came up again shows in the node's boot id.
    /// One operation may be asked for many times under one id and happens once. [`CloudError::RebootNotImplemented`]
    /// and [`CloudError::RebootFailed`] are final; anything else is tried again.
    fn reboot<'a>(&'a self, _claim: &'a NodeClaim, _operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(std::future::ready(Err(CloudError::RebootNotImplemented)))
    }

    /// Which conditions of nodes mean a sick machine, and what to do about it. Always the same set;
    /// [`RepairPolicies::new`] says whether it makes sense.
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    /// What has to agree before a node is opened to pods.
    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        Vec::new()
    }
}
