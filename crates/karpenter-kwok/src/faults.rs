//! Faults of the simulated cloud, which tests and simulations inject. By default, there are no faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use karpenter_cloud::CloudError;
use karpenter_model::instance_type::Offering;

/// The offerings to which a fault applies. An absent field matches every value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfferingPattern {
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub capacity_type: Option<String>,
}

impl OfferingPattern {
    /// Matches every offering.
    pub fn any() -> Self {
        Self::default()
    }

    pub fn matches(&self, instance_type: &str, offering: &Offering) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| value == Some(wanted))
        };
        is(&self.instance_type, Some(instance_type))
            && is(&self.zone, offering.zone().map(AsRef::as_ref))
            && is(&self.capacity_type, offering.capacity_type().map(AsRef::as_ref))
    }
}

/// How the nodes of new instances register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Registration {
    /// The node appears after the registration delay that its node class states.
    #[default]
    Normal,
    /// The instance exists, but its node never appears.
    Never,
    /// The node appears later than the registration delay, by this duration.
    Slower(Duration),
}

/// The active faults. Each call fails with the first error of its list, which is removed from the list.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Offerings without capacity. A launch of one fails, and the offering is unavailable for
    /// [`crate::UNAVAILABLE_FOR`].
    pub without_capacity: Vec<OfferingPattern>,
    pub registration: Registration,
    pub create_errors: VecDeque<CloudError>,
    pub delete_errors: VecDeque<CloudError>,
    pub get_errors: VecDeque<CloudError>,
    pub list_errors: VecDeque<CloudError>,
    pub reboot_errors: VecDeque<CloudError>,
    /// The provider ids of instances whose reboot is accepted, but never happens.
    pub stuck_reboots: BTreeSet<String>,
    /// The provider ids of instances that the cloud terminated without a request. Their nodes may still exist.
    pub terminated_externally: BTreeSet<String>,
    /// The drift reasons that the provider reports, by provider id.
    pub drifted: BTreeMap<String, String>,
}

impl Faults {
    pub fn lacks_capacity(&self, instance_type: &str, offering: &Offering) -> bool {
        self.without_capacity.iter().any(|pattern| pattern.matches(instance_type, offering))
    }
}
