//! State of node repair: the compiled policies of the provider, and recent reboots.

use std::sync::{Arc, OnceLock};

use karpenter_cloud::{CloudProvider, RepairPolicies};

use super::reboot_history::RebootHistory;

/// Compiled policies and recent reboots. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Repairs {
    policies: Arc<OnceLock<Option<RepairPolicies>>>,
    pub history: RebootHistory,
}

impl Repairs {
    /// The policies of the provider, compiled once; `None` if they are invalid.
    pub(crate) fn policies(&self, cloud: &dyn CloudProvider) -> Option<&RepairPolicies> {
        self.policies.get_or_init(|| RepairPolicies::new(cloud.repair_policies()).ok()).as_ref()
    }
}
