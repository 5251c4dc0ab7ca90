//! What an administrator set for all controllers, apart from the gates.
//!
//! Values only, read once at start; where they come from (flags, variables) is the operator's business.

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::problem;

/// How the controllers work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How plans are made, in provisioning and where disruption asks what would happen.
    pub planner: problem::Options,
    /// A batch of pods ends when this long nothing new came.
    pub batch_idle: Duration,
    /// A batch of pods ends after this long, whatever comes.
    pub batch_max: Duration,
    /// Spread constraints of pods that have none.
    pub scheduler_config: Arc<SchedulerConfig>,
    /// Sick nodes are ended by force, as before 1.15.
    pub is_node_repair_legacy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            planner: problem::Options::default(),
            batch_idle: Duration::from_secs(1),
            batch_max: Duration::from_secs(10),
            scheduler_config: Arc::default(),
            is_node_repair_legacy: false,
        }
    }
}
