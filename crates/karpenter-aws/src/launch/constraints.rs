//! The requirements and resource requests of a NodeClaim, parsed for its launch.

use std::sync::Arc;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::ResourceList;

/// What a NodeClaim requires of its instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchConstraints {
    pub requirements: Requirements,
    pub requests: ResourceList,
}

impl LaunchConstraints {
    /// Parses a NodeClaim. Requirements with an unknown operator are skipped; the API server rejects them.
    pub fn of(claim: &NodeClaim) -> Self {
        let requirements = claim.spec.requirements.iter().filter_map(|written| {
            let operator = Operator::parse(&written.operator)?;
            let values = written.values.iter().map(|value| Arc::from(value.as_str()));
            let values: Vec<Arc<str>> = values.collect();
            let key = karpenter_model::labels::normalize(&written.key);
            let min_values = written.min_values.and_then(|count| u32::try_from(count).ok());
            Some(Requirement::new(key, operator, values).with_min_values(min_values))
        });
        let requested = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let requested = requested.into_iter().flatten().map(|(name, quantity)| (name.as_str(), quantity));
        Self { requirements: requirements.collect(), requests: ResourceList::from_requests(requested) }
    }

    /// Whether the NodeClaim allows this value of a label. If it has no requirement on the label, it allows any value.
    pub fn allows(&self, key: &str, value: &str) -> bool {
        self.requirements.get(key).is_none_or(|requirement| requirement.has(value))
    }

    pub fn allows_capacity_type(&self, capacity_type: &str) -> bool {
        self.allows(labels::CAPACITY_TYPE, capacity_type)
    }

    /// The tenancy to launch with: `dedicated` if the NodeClaim does not allow `default`, else `default`.
    pub fn tenancy(&self) -> &'static str {
        let is_only_dedicated = !self.allows(labels::AWS_INSTANCE_TENANCY, "default")
            && self.allows(labels::AWS_INSTANCE_TENANCY, "dedicated");
        if is_only_dedicated { "dedicated" } else { "default" }
    }

    pub fn requests_resource(&self, name: &str) -> bool {
        self.requests.lookup(name).is_some()
    }
}
