//! Settings of all controllers, apart from the feature gates.
//!
//! Settings are read once at start; [`crate::operator::options`] reads them from flags and environment variables.

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::problem;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Options of the planner, for provisioning and for the simulations of disruption.
    pub planner: problem::Options,
    /// The share of the lowest price of a NodePool's pods that moving all of them has to save; NodePools may override it.
    pub saving_ratio: f64,
    /// A batch closes if no pod was added for this long.
    pub batch_idle: Duration,
    /// A batch closes at the latest after this long.
    pub batch_max: Duration,
    /// The scheduler's defaults, such as spread constraints of pods that have none.
    pub scheduler_config: Arc<SchedulerConfig>,
    /// Node repair deletes unhealthy nodes forcefully, as upstream did before 1.15.
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
