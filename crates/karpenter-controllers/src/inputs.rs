//! The inputs of controllers: [`Reads`] is what every controller reads, and [`Writes`] is what it writes and reports
//! with. Controllers that need the cloud provider or state that several controllers share get these separately.

use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodeClassReference};
use karpenter_cloud::NodeClassKind;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use kube::Client;

use crate::events::Recorder;
use crate::log_throttle::LogThrottle;
use crate::metrics::Metrics;
use crate::state::ClusterState;
use crate::stores::Stores;

/// What every controller reads. Clones share the stores.
#[derive(Clone)]
pub struct Reads {
    pub stores: Stores,
    /// State that is not in any API object: reservations, nominations, marks for deletion.
    pub state: ClusterState,
    pub clock: Clock,
    /// The kinds of the provider's node classes.
    pub node_class_kinds: Arc<[NodeClassKind]>,
}

impl Reads {
    /// The claim with this key, if it exists and belongs to this provider.
    pub fn managed_claim(&self, key: &ObjectKey) -> Option<Arc<NodeClaim>> {
        let claim = self.stores.node_claims.get_key(key)?;
        self.is_managed(&claim.spec.node_class_ref).then_some(claim)
    }

    /// Whether the NodeClaim or NodePool belongs to this provider. Controllers ignore all others.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        self.node_class_kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}

/// What controllers write and report with. Clones share all state.
#[derive(Clone)]
pub struct Writes {
    pub client: Client,
    pub recorder: Recorder,
    pub metrics: Metrics,
    /// Limits how often the same error is logged.
    pub log_throttle: LogThrottle,
}
