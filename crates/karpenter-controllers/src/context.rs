//! What every controller is given: the API server, the mirrors, the cloud, the time, and where to tell about things.

use std::sync::Arc;

use karpenter_api::types::NodeClassReference;
use karpenter_cloud::CloudProvider;
use karpenter_cluster::clock::Clock;
use kube::Client;

use crate::claims::Doubts;
use crate::complaints::Complaints;
use crate::disruption::standings::Standings;
use crate::events::Recorder;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::mirrors::Mirrors;
use crate::node::repair::Repairs;
use crate::offers::OverlayStore;
use crate::operator::options::FeatureGates;
use crate::provisioning::SharedBackOff;
use crate::settings::Settings;
use crate::state::State;
use crate::static_capacity::NodeReservations;

/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub mirrors: Mirrors,
    pub cloud: Arc<dyn CloudProvider>,
    pub clock: Clock,
    pub recorder: Recorder,
    /// What no object says: plans, nominations, what is about to go.
    pub state: State,
    /// Claims that may or may not have been created.
    pub doubts: Doubts,
    pub journal: Journal,
    /// Why nodes are (not) being disrupted.
    pub standings: Standings,
    pub metrics: Metrics,
    /// Whether pods are told their planned node ahead of the scheduler.
    pub nominates_pods: bool,
    /// Features that are on.
    pub gates: FeatureGates,
    pub settings: Arc<Settings>,
    /// What is known about sick nodes beyond what they say.
    pub repairs: Repairs,
    /// Places under limits that are promised to nodes of pools of fixed size.
    pub node_reservations: NodeReservations,
    /// Pools whose launches keep failing.
    pub back_off: SharedBackOff,
    /// Errors that were logged lately.
    pub complaints: Complaints,
    /// What NodeOverlays come to; consulted only while their gate is on.
    pub overlays: OverlayStore,
}

impl Context {
    /// A context that has seen and decided nothing yet.
    pub fn new(client: Client, mirrors: Mirrors, cloud: Arc<dyn CloudProvider>, clock: Clock) -> Self {
        let recorder = Recorder::new(client.clone(), clock);
        let metrics = Metrics::of(&*cloud);
        Self {
            client,
            mirrors,
            cloud,
            clock,
            recorder,
            state: State::default(),
            doubts: Doubts::default(),
            journal: Journal::default(),
            standings: Standings::default(),
            metrics,
            nominates_pods: true,
            gates: FeatureGates::default(),
            settings: Arc::default(),
            repairs: Repairs::default(),
            node_reservations: NodeReservations::default(),
            back_off: SharedBackOff::default(),
            complaints: Complaints::default(),
            overlays: OverlayStore::default(),
        }
    }

    /// Whether a claim or pool belongs to this provider; all others are somebody else's business.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}
