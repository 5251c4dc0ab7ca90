//! Faults of the simulated cloud, which tests and simulations inject. There are none by default.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use karpenter_cloud::CloudError;
use karpenter_model::instance_type::Offering;

/// The offerings that a fault applies to; an absent field matches all.
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
    /// The node appears after the registration delay of its node class.
    #[default]
    Normal,
    /// The node never appears, although the instance exists.
    Never,
    /// The node appears this much later than the registration delay.
    Slower(Duration),
}

/// Active faults. Each call takes one error from the front of its list.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Offerings without capacity: a launch fails, and the offering is unavailable for [`crate::UNAVAILABLE_FOR`].
    pub without_capacity: Vec<OfferingPattern>,
    pub registration: Registration,
    pub create_errors: VecDeque<CloudError>,
    pub delete_errors: VecDeque<CloudError>,
    pub get_errors: VecDeque<CloudError>,
    pub list_errors: VecDeque<CloudError>,
    pub reboot_errors: VecDeque<CloudError>,
    /// Provider ids of instances whose reboot is accepted and never happens.
    pub stuck_reboots: BTreeSet<String>,
    /// Provider ids of instances that the cloud terminated on its own; their nodes may still exist.
    pub terminated_externally: BTreeSet<String>,
    /// Drift reasons that the provider reports, by provider id.
    pub drifted: BTreeMap<String, String>,
}

impl Faults {
    pub fn lacks_capacity(&self, instance_type: &str, offering: &Offering) -> bool {
        self.without_capacity.iter().any(|pattern| pattern.matches(instance_type, offering))
    }
}
