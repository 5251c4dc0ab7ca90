//! The dependencies of all controllers: the API server, the stores, the cloud provider, the clock, and the recorders
//! of events, metrics and decisions.

use std::sync::Arc;

use karpenter_api::types::NodeClassReference;
use karpenter_cloud::CloudProvider;
use karpenter_runtime::clock::Clock;
use kube::Client;

use crate::claims::UnconfirmedCreates;
use crate::decision_journal::DecisionJournal;
use crate::disruption::verdicts::Verdicts;
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

/// Clones share all state.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub stores: Stores,
    pub cloud: Arc<dyn CloudProvider>,
    pub clock: Clock,
    pub recorder: Recorder,
    /// State that is not in any API object: reservations, nominations, marks for deletion.
    pub state: ClusterState,
    /// NodeClaims whose create request failed without a clear answer.
    pub unconfirmed_creates: UnconfirmedCreates,
    pub journal: DecisionJournal,
    /// Why each node is or is not disrupted.
    pub verdicts: Verdicts,
    pub metrics: Metrics,
    /// Whether to write the planned node to `status.nominatedNodeName` of pending pods.
    pub nominates_pods: bool,
    /// The enabled feature gates.
    pub gates: FeatureGates,
    pub settings: Arc<Settings>,
    /// State of node repair that is not in any API object.
    pub repairs: Repairs,
    /// Node limits of static NodePools that are granted to NodeClaims being created.
    pub node_limit_grants: NodeLimitGrants,
    /// Back-off of NodePools whose launches fail.
    pub launch_backoff: SharedLaunchBackoff,
    /// Limits how often the same error is logged.
    pub log_throttle: LogThrottle,
    /// The evaluated NodeOverlays; used only if their feature gate is on.
    pub overlays: OverlayStore,
}

impl Context {
    /// A context with empty state.
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
            verdicts: Verdicts::default(),
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

    /// Whether the NodeClaim or NodePool belongs to this provider. Controllers ignore all others.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}
