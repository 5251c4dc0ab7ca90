//! Settings of all controllers, and the feature gates.
//!
//! They are fixed when the process starts; [`crate::operator::options`] reads them from flags and environment
//! variables.

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::problem;
use karpenter_state::DeletionCosts;

/// The shortest time for which a node is protected from disruption after pods were planned onto it.
const NOMINATION_TTL_MIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Options of the planner, for provisioning and for the simulations of disruption.
    pub planner: problem::Options,
    /// The share of the lowest price of a NodePool's pods that moving all of them has to save; NodePools may override it.
    pub saving_ratio: f64,
    /// A batch closes if no pod was added for this long.
    pub batch_idle: Duration,
    /// A batch closes at the latest this long after it was opened.
    pub batch_max: Duration,
    /// The kube-scheduler configuration with its default spread constraints, which apply to pods that have none.
    pub scheduler_config: Arc<SchedulerConfig>,
    /// Whether node repair deletes unhealthy nodes forcefully, as upstream did before 1.15.
    pub is_node_repair_legacy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            planner: problem::Options::default(),
            saving_ratio: 0.08,
            batch_idle: Duration::from_secs(1),
            batch_max: Duration::from_secs(10),
            scheduler_config: Arc::default(),
            is_node_repair_legacy: false,
        }
    }
}

/// How long a reservation is kept after pods can be bound to its node. It is twice the maximum duration of a batch, as
/// upstream's nomination window.
pub(crate) fn nomination_ttl(batch_max: Duration) -> Duration {
    batch_max.saturating_mul(2).max(NOMINATION_TTL_MIN)
}

/// The enabled feature gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    pub node_repair: bool,
    pub reserved_capacity: bool,
    pub spot_to_spot_consolidation: bool,
    pub node_overlay: bool,
    pub static_capacity: bool,
    pub capacity_buffer: bool,
    pub terminate_first_drift: bool,
    pub terminate_first_repair: bool,
    pub pod_deletion_cost_management: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            pod_deletion_cost_management: false,
        }
    }
}

impl FeatureGates {
    /// Who sets the deletion costs of pods in this cluster: the users, or this process.
    pub fn deletion_costs(&self) -> DeletionCosts {
        match self.pod_deletion_cost_management {
            true => DeletionCosts::Managed,
            false => DeletionCosts::SetByUsers,
        }
    }
}
