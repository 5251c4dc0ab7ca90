//! What goes wrong with the simulated cloud. Nothing does unless a test or a simulation says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use karpenter_cloud::CloudError;
use karpenter_model::instance_type::Offering;

/// Which offerings a fault is about; what is not given matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfferingPattern {
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub capacity_type: Option<String>,
}

impl OfferingPattern {
    /// Every offering there is.
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

/// What becomes of the nodes of new machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Registration {
    /// They appear after the delay of their node class.
    #[default]
    Normal,
    /// They never appear, although the machine is there.
    Never,
    /// They appear this much later than they should.
    Slower(Duration),
}

/// Faults that are in force. Lists of errors are used up from the front, one per call.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Offerings that are sold out: a launch is refused there, and the offering is unavailable for a while.
    pub sold_out: Vec<OfferingPattern>,
    pub registration: Registration,
    pub create_errors: VecDeque<CloudError>,
    pub delete_errors: VecDeque<CloudError>,
    pub get_errors: VecDeque<CloudError>,
    pub list_errors: VecDeque<CloudError>,
    pub reboot_errors: VecDeque<CloudError>,
    /// Provider ids of machines whose restart is accepted and never happens.
    pub stuck_reboots: BTreeSet<String>,
    /// Provider ids of machines that ended without being asked to; their nodes may still be there.
    pub vanished: BTreeSet<String>,
    /// Reasons for which machines are said to have drifted, by provider id.
    pub drifted: BTreeMap<String, String>,
}

impl Faults {
    pub fn is_sold_out(&self, instance_type: &str, offering: &Offering) -> bool {
        self.sold_out.iter().any(|pattern| pattern.matches(instance_type, offering))
    }
}
