//! Callbacks of the NodeClaim lifecycle: provisioning, nomination and metrics register functions that the lifecycle
//! controller calls. By default, every callback does nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;

/// Why a NodeClaim controller deleted a claim: the label `reason` of `karpenter_nodeclaims_disrupted_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletionCause {
    InsufficientCapacity,
    NodeClassNotReady,
    LaunchTimeout,
    RegistrationTimeout,
    GarbageCollected,
    Expired,
}

impl DeletionCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::NodeClassNotReady => "nodeclass_not_ready",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
            Self::GarbageCollected => "garbage_collected",
            Self::Expired => "expired",
        }
    }
}

/// A transition of a claim, reported once, for metrics, logs and the decision journal.
#[derive(Debug, Clone, PartialEq)]
pub enum LifecycleOutcome {
    Launched,
    LaunchFailed {
        message: String,
    },
    Registered,
    Initialized,
    Deleted(DeletionCause),
    /// The provider no longer has the instance.
    InstanceTerminated,
    /// The finalizer of the NodeClaim was removed.
    Terminated,
    /// An instance without a NodeClaim was terminated. This outcome is reported with a NodeClaim that contains only the
    /// provider id.
    LeakedInstanceTerminated,
}

type BeforeSchedulable = dyn Fn(Arc<NodeClaim>, Arc<Node>) -> BoxFuture<'static, ()> + Send + Sync;
type HoldRegistration = dyn Fn(&NodeClaim, &Node) -> Option<Duration> + Send + Sync;
type SetQueue = dyn Fn(&Queue) + Send + Sync;
type PlannedPods = dyn Fn(&NodeClaim) -> Vec<ObjectKey> + Send + Sync;
type OnOutcome = dyn Fn(&NodeClaim, &LifecycleOutcome) + Send + Sync;

/// The callbacks of the lifecycle controller. Clones share the functions.
#[derive(Clone)]
pub struct Hooks {
    /// Called before the unregistered taint is removed, and again after each change of the node: returns how much
    /// longer the taint must stay, or `None` if it may be removed.
    pub hold_registration: Arc<HoldRegistration>,
    /// Receives the queue of the lifecycle controller once. The registration gate uses it to reconcile the claims whose
    /// nodes it held.
    pub set_queue: Arc<SetQueue>,
    /// Called shortly before pods can be scheduled to a node: before the unregistered taint is removed from a ready
    /// node, and when a registered node has become ready and `not-ready` is its only ephemeral taint. Called again when
    /// the node is initialized. The hook may be called more than once for a claim.
    pub before_schedulable: Arc<BeforeSchedulable>,
    /// Returns the pods that are nominated to a claim, as far as this process knows them.
    pub planned_pods: Arc<PlannedPods>,
    pub on_outcome: Arc<OnOutcome>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            hold_registration: Arc::new(|_, _| None),
            set_queue: Arc::new(|_| ()),
            before_schedulable: Arc::new(|_, _| Box::pin(std::future::ready(()))),
            planned_pods: Arc::new(|_| Vec::new()),
            on_outcome: Arc::new(|_, _| ()),
        }
    }
}

impl Hooks {
    pub(crate) fn report(&self, claim: &NodeClaim, outcome: LifecycleOutcome) {
        (self.on_outcome)(claim, &outcome);
    }
}
