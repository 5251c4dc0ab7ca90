//! What every controller is given: the API server, the mirrors, the cloud, the time, and where to tell about things.

use std::sync::Arc;

use karpenter_api::types::NodeClassReference;
use karpenter_cloud::CloudProvider;
use karpenter_cluster::clock::Clock;
use kube::Client;

use crate::events::Recorder;
use crate::mirrors::Mirrors;

/// Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub mirrors: Mirrors,
    pub cloud: Arc<dyn CloudProvider>,
    pub clock: Clock,
    pub recorder: Recorder,
}

impl Context {
    /// Whether a claim or pool belongs to this provider; all others are somebody else's business.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}
