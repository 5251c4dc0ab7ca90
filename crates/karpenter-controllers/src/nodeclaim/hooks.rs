//! What others want to know or do while a claim goes its way. All of it may be absent.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::harness::Queue;
use karpenter_cluster::mirror::ObjectKey;

/// Why a claim was deleted by its own controllers: the `reason` label of `karpenter_nodeclaims_disrupted_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GiveUp {
    InsufficientCapacity,
    NodeClassNotReady,
    LaunchTimeout,
    RegistrationTimeout,
    GarbageCollected,
    Expired,
}

impl GiveUp {
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

/// Something that happened to a claim, for metrics, logs and the journal. Told once each.
#[derive(Debug, Clone, PartialEq)]
pub enum Milestone {
    Launched,
    LaunchFailed {
        message: String,
    },
    Registered,
    Initialized,
    GaveUp(GiveUp),
    /// The cloud says that the machine is gone.
    InstanceTerminated,
    /// The finalizer is off.
    Terminated,
    /// A machine without a claim was ended; the claim told about is made up and carries its provider id only.
    LeakedInstanceEnded,
}

type BeforeOpening = dyn Fn(Arc<NodeClaim>, Arc<Node>) -> BoxFuture<'static, ()> + Send + Sync;
type HoldClosed = dyn Fn(&NodeClaim, &Node) -> Option<Duration> + Send + Sync;
type Connect = dyn Fn(&Queue) + Send + Sync;
type PlannedPods = dyn Fn(&NodeClaim) -> Vec<ObjectKey> + Send + Sync;
type OnMilestone = dyn Fn(&NodeClaim, &Milestone) + Send + Sync;

/// Cheap to clone.
#[derive(Clone)]
pub struct Hooks {
    /// Asked before the unregistered taint is taken off: how much longer it should stay, `None` if it may go. Asked
    /// again whenever the node changes.
    pub hold_closed: Arc<HoldClosed>,
    /// Hears once where claims wait to be looked at, so that whoever holds nodes closed can let go of many at once.
    pub connect: Arc<Connect>,
    /// Runs when the last obstacle on a node is about to go: before the unregistered taint is taken off a node that is
    /// ready, or when a registered node has become ready and only the taint that says otherwise is left; and once more,
    /// a little late, when the node is finished. May run more than once for a claim.
    pub before_opening: Arc<BeforeOpening>,
    /// The pods a claim was made for, as far as they are known.
    pub planned_pods: Arc<PlannedPods>,
    pub on_milestone: Arc<OnMilestone>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            hold_closed: Arc::new(|_, _| None),
            connect: Arc::new(|_| ()),
            before_opening: Arc::new(|_, _| Box::pin(std::future::ready(()))),
            planned_pods: Arc::new(|_| Vec::new()),
            on_milestone: Arc::new(|_, _| ()),
        }
    }
}

impl Hooks {
    pub(crate) fn tell(&self, claim: &NodeClaim, milestone: Milestone) {
        (self.on_milestone)(claim, &milestone);
    }
}
