//! Builds the `CreateFleet` request (overrides, capacity type, allocation strategy, tags), and divides one response
//! among the launches that were batched into the call.
//!
//! Upstream: `pkg/providers/instance`, `pkg/batcher/createfleet.go`

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use karpenter_api::labels;

use super::filters::{Candidate, Reservation};
use crate::api::ec2::{
    CreateFleet, FleetAnswer, FleetError, FleetInstances, FleetLaunchTemplate, FleetOverride,
    OnDemandAllocationStrategy, SpotAllocationStrategy, TagSpecification, TargetCapacityType,
};
use crate::api::{AwsError, Tags};
use crate::subnets::LaunchSubnet;

/// A launch template that exists in EC2, and the candidates that can be launched with it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyTemplate<'a> {
    pub name: String,
    pub image_id: String,
    /// The candidates, reduced to offerings that the launch may use.
    pub candidates: Vec<Candidate<'a>>,
}

/// The parameters of a `CreateFleet` request other than its overrides.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetTerms<'a> {
    pub capacity_type: &'a str,
    pub reservation: Option<&'a Reservation>,
    /// Whether a NodeOverlay changed prices. If so, EC2 must use the priorities of the overrides instead of its own
    /// prices.
    pub has_price_overlay: bool,
    pub context: Option<&'a str>,
    pub tags: &'a Tags,
}

/// Builds the request; `None` if no offering is in a zone with a subnet.
pub fn fleet(
    templates: &[ReadyTemplate<'_>],
    subnets: &BTreeMap<String, LaunchSubnet>,
    terms: &FleetTerms<'_>,
) -> Option<CreateFleet> {
    let configs = templates.iter().map(|template| FleetLaunchTemplate {
        launch_template_name: template.name.clone(),
        overrides: overrides(template, subnets),
    });
    let configs: Vec<FleetLaunchTemplate> = configs.filter(|config| !config.overrides.is_empty()).collect();
    if configs.is_empty() {
        return None;
    }
    let is_block = terms.reservation.is_some_and(|held| held.reservation_type == "capacity-block");
    let is_interruptible = terms.reservation.is_some_and(|held| held.is_interruptible);
    let target = match terms.capacity_type {
        labels::CAPACITY_TYPE_SPOT => TargetCapacityType::Spot,
        labels::CAPACITY_TYPE_RESERVED if is_block => TargetCapacityType::CapacityBlock,
        labels::CAPACITY_TYPE_RESERVED if is_interruptible => TargetCapacityType::ReservedCapacity,
        _ => TargetCapacityType::OnDemand,
    };
    let spot_strategy = if terms.has_price_overlay {
        SpotAllocationStrategy::CapacityOptimizedPrioritized
    } else {
        SpotAllocationStrategy::PriceCapacityOptimized
    };
    let on_demand_strategy = if terms.has_price_overlay {
        OnDemandAllocationStrategy::Prioritized
    } else {
        OnDemandAllocationStrategy::LowestPrice
    };
    let reservation_types = match target {
        TargetCapacityType::ReservedCapacity => vec!["interruptible-capacity-reservation".to_owned()],
        _ => Vec::new(),
    };
    let tagged = |kind: &str| TagSpecification { resource_type: kind.to_owned(), tags: terms.tags.clone() };
    Some(CreateFleet {
        launch_template_configs: configs,
        target,
        total_target_capacity: 1,
        spot_allocation_strategy: (target == TargetCapacityType::Spot).then_some(spot_strategy),
        on_demand_allocation_strategy: (target == TargetCapacityType::OnDemand).then_some(on_demand_strategy),
        reservation_types,
        context: terms.context.map(str::to_owned),
        tag_specifications: ["instance", "volume", "fleet"].map(tagged).to_vec(),
        is_dry_run: false,
    })
}

/// One override per instance type and zone. The partition of a placement group is not set here, but in the launch
/// template.
fn overrides(template: &ReadyTemplate<'_>, subnets: &BTreeMap<String, LaunchSubnet>) -> Vec<FleetOverride> {
    let mut seen = BTreeSet::new();
    let mut overrides = Vec::new();
    for candidate in &template.candidates {
        for offering in &candidate.offerings {
            let Some(subnet) = offering.zone().and_then(|zone| subnets.get(&**zone)) else { continue };
            if !seen.insert((&candidate.instance_type.name, &subnet.zone)) {
                continue;
            }
            overrides.push(FleetOverride {
                instance_type: candidate.instance_type.name.to_string(),
                subnet_id: Some(subnet.id.clone()),
                image_id: Some(template.image_id.clone()),
                // EC2 then includes the zone in its errors, so it need not be derived from the subnet.
                zone: Some(subnet.zone.clone()),
                priority: Some(offering.instance_price()),
            });
        }
    }
    overrides
}

/// The batching key: requests that are equal in every field have the same key.
pub(super) fn batch_key(request: &CreateFleet) -> String {
    format!("{request:?}")
}

/// Divides the response among `count` callers: each gets one instance as long as there are any, and all of them get the
/// errors.
pub(super) fn share(answer: FleetAnswer, count: usize) -> Vec<FleetAnswer> {
    let FleetAnswer { fleet_id, instances, mut errors } = answer;
    let single = instances.into_iter().flat_map(|launched| {
        let ids = launched.instance_ids.clone();
        ids.into_iter().map(move |id| FleetInstances { instance_ids: vec![id], ..launched.clone() })
    });
    let mut shares = single.map(Some).collect::<Vec<_>>();
    if shares.len() > count {
        tracing::error!(
            fleet_id,
            requested = count,
            received = shares.len(),
            "received more instances than requested"
        );
    }
    shares.resize(count, None);
    if errors.is_empty() && shares.iter().any(Option::is_none) {
        let error = AwsError::new("too few instances returned", "too few instances returned");
        errors.push(FleetError {
            error,
            launch_template_name: None,
            tried: FleetOverride::default(),
            lifecycle: None,
        });
    }
    let answers = shares.into_iter().map(|share| FleetAnswer {
        fleet_id: fleet_id.clone(),
        instances: share.into_iter().collect(),
        errors: errors.clone(),
    });
    answers.collect()
}
