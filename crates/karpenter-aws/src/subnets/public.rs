//! Tracks which subnets give instances a public IPv4 address, which AWS bills in addition to the instance.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::api::ec2::Subnet;

/// The ids of subnets with `mapPublicIpOnLaunch`, according to EC2's last response. All clones share them.
#[derive(Debug, Clone, Default)]
pub struct PublicSubnets {
    ids: Arc<RwLock<Arc<BTreeSet<String>>>>,
}

impl PublicSubnets {
    pub fn current(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.ids.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records the subnets in a response; for other subnets nothing changes.
    pub(super) fn learn(&self, subnets: &[Subnet]) {
        let mut current = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        if subnets.iter().all(|subnet| current.contains(&subnet.id) == subnet.maps_public_ip_on_launch) {
            return;
        }
        let mut ids = (**current).clone();
        for subnet in subnets {
            match subnet.maps_public_ip_on_launch {
                true => ids.insert(subnet.id.clone()),
                false => ids.remove(&subnet.id),
            };
        }
        *current = Arc::new(ids);
    }
}
