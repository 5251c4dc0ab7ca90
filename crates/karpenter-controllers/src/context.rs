//! What every controller is given: the API server, the stores, the cloud, the time, and where to tell about things.

use std::sync::Arc;

use karpenter_api::types::NodeClassReference;
use karpenter_cloud::CloudProvider;
use karpenter_cluster::clock::Clock;
use kube::Client;

use crate::claims::UnconfirmedCreates;
use crate::decision_journal::DecisionJournal;
use crate::disruption::standings::Standings;
use crate::events::Recorder;
use crate::log_throttle::LogThrottle;
use crate::metrics::Metrics;
use crate::node::repair::Repairs;
use crate::offerings::OverlayStore;
use crate::operator::options::FeatureGates;
use crate::provisioning::SharedLaunchBackoff;
use crate::settings::Settings;
use crate::state::ClusterState;
use crate::static_capacity::NodeLimitGrants;
use crate::stores::Stores;

/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub stores: Stores,
    pub cloud: Arc<dyn CloudProvider>,
    pub clock: Clock,
    pub recorder: Recorder,
    /// What no object says: plans, nominations, what is about to go.
    pub state: ClusterState,
    /// Claims that may or may not have been created.
    pub unconfirmed_creates: UnconfirmedCreates,
    pub journal: DecisionJournal,
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
    pub node_limit_grants: NodeLimitGrants,
    /// Pools whose launches keep failing.
    pub launch_backoff: SharedLaunchBackoff,
    /// Errors that were logged lately.
    pub log_throttle: LogThrottle,
    /// What NodeOverlays come to; consulted only while their gate is on.
    pub overlays: OverlayStore,
}

impl Context {
    /// A context that has seen and decided nothing yet.
    pub fn new(client: Client, stores: Stores, cloud: Arc<dyn CloudProvider>, clock: Clock) -> Self {
        let recorder = Recorder::new(client.clone(), clock);
        let metrics = Metrics::of(&*cloud);
        Self {
            client,
            stores,
            cloud,
            clock,
            recorder,
            state: ClusterState::default(),
            unconfirmed_creates: UnconfirmedCreates::default(),
            journal: DecisionJournal::default(),
            standings: Standings::default(),
            metrics,
            nominates_pods: true,
            gates: FeatureGates::default(),
            settings: Arc::default(),
            repairs: Repairs::default(),
            node_limit_grants: NodeLimitGrants::default(),
            launch_backoff: SharedLaunchBackoff::default(),
            log_throttle: LogThrottle::default(),
            overlays: OverlayStore::default(),
        }
    }

    /// Whether a claim or pool belongs to this provider; all others are somebody else's business.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}
