//! Everything that the operator gives to controllers: the API server, the stores, the cloud provider, the clock, the
//! recorders, and state that several controllers share. Each controller gets only the parts that it needs.

use std::sync::Arc;

use karpenter_api::types::NodeClassReference;
use karpenter_cloud::CloudProvider;
use karpenter_runtime::clock::Clock;
use kube::Client;

use crate::claims::ClaimCreator;
use crate::decision_journal::DecisionJournal;
use crate::events::Recorder;
use crate::inputs::{Reads, Writes};
use crate::log_throttle::LogThrottle;
use crate::metrics::Metrics;
use crate::node_health::NodeHealth;
use crate::nominations::Nominator;
use crate::offerings::OverlayStore;
use crate::planner_input::PlannerReader;
use crate::settings::{FeatureGates, Settings};
use crate::state::ClusterState;
use crate::state::launch_backoff::SharedLaunchBackoff;
use crate::state::node_limit_grants::NodeLimitGrants;
use crate::state::repairs::Repairs;
use crate::state::unconfirmed_creates::UnconfirmedCreates;
use crate::state::verdicts::Verdicts;
use crate::stores::Stores;
use crate::{disruption, provisioning};

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
    /// Nodes that are reserved under the node limits of static NodePools for NodeClaims that are being created.
    pub node_limit_grants: NodeLimitGrants,
    /// Back-off of NodePools whose launches fail.
    pub launch_backoff: SharedLaunchBackoff,
    /// Limits how often the same error is logged.
    pub log_throttle: LogThrottle,
    /// The result of evaluating NodeOverlays; used only if their feature gate is enabled.
    pub overlays: OverlayStore,
}

impl Context {
    /// A context whose shared state is empty.
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

    /// The parts that every controller reads.
    pub fn reads(&self) -> Reads {
        Reads {
            stores: self.stores.clone(),
            state: self.state.clone(),
            clock: self.clock,
            node_class_kinds: self.cloud.node_class_kinds().into(),
        }
    }

    /// The parts that controllers write and report with.
    pub fn writes(&self) -> Writes {
        Writes {
            client: self.client.clone(),
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
            log_throttle: self.log_throttle.clone(),
        }
    }

    /// The object through which all controllers create NodeClaims.
    pub fn claim_creator(&self) -> ClaimCreator {
        ClaimCreator {
            reads: self.reads(),
            client: self.client.clone(),
            log_throttle: self.log_throttle.clone(),
            unconfirmed_creates: self.unconfirmed_creates.clone(),
            launch_backoff: self.launch_backoff.clone(),
            overlays: self.overlays.clone(),
        }
    }

    /// The object that matches nodes with repair policies.
    pub fn node_health(&self) -> NodeHealth {
        NodeHealth {
            reads: self.reads(),
            cloud: self.cloud.clone(),
            repairs: self.repairs.clone(),
            is_enabled: self.gates.node_repair && !self.settings.is_node_repair_legacy,
        }
    }

    /// The object that reads the input of the planner.
    pub fn planner_reader(&self) -> PlannerReader {
        PlannerReader {
            reads: self.reads(),
            cloud: self.cloud.clone(),
            settings: self.settings.clone(),
            gates: self.gates,
            launch_backoff: self.launch_backoff.clone(),
            log_throttle: self.log_throttle.clone(),
            node_health: self.node_health(),
        }
    }

    /// The parts that the provisioner uses.
    pub fn provisioning_inputs(&self) -> provisioning::Inputs {
        provisioning::Inputs {
            reads: self.reads(),
            writes: self.writes(),
            reader: self.planner_reader(),
            creator: self.claim_creator(),
            nominator: self.nominator(),
            journal: self.journal.clone(),
        }
    }

    /// The parts that disruption uses.
    pub fn disruption_inputs(&self) -> disruption::Inputs {
        disruption::Inputs {
            reads: self.reads(),
            writes: self.writes(),
            reader: self.planner_reader(),
            creator: self.claim_creator(),
            node_limit_grants: self.node_limit_grants.clone(),
            journal: self.journal.clone(),
            verdicts: self.verdicts.clone(),
        }
    }

    /// The object that writes nominations of pods.
    pub fn nominator(&self) -> Nominator {
        Nominator { reads: self.reads(), client: self.client.clone(), is_enabled: self.nominates_pods }
    }

    /// Whether the NodeClaim or NodePool belongs to this provider. Controllers ignore all others.
    pub fn is_managed(&self, reference: &NodeClassReference) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| kind.group == reference.group && kind.kind == reference.kind)
    }
}
