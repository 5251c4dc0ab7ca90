//! The request for a fleet: which offers, at whose cost, filled in which order; and how one answer is shared by many
//! who asked for the same.

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

/// A template that exists, and what may be bought with it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyTemplate<'a> {
    pub name: String,
    pub image_id: String,
    /// With those offerings only that the launch may use.
    pub candidates: Vec<Candidate<'a>>,
}

/// What decides about a fleet besides its offers.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetTerms<'a> {
    pub capacity_type: &'a str,
    pub reservation: Option<&'a Reservation>,
    /// Prices were changed by the user, so EC2's own must not decide.
    pub has_own_prices: bool,
    pub context: Option<&'a str>,
    pub tags: &'a Tags,
}

/// `None` when no offer has a subnet.
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
    let spot_strategy = if terms.has_own_prices {
        SpotAllocationStrategy::CapacityOptimizedPrioritized
    } else {
        SpotAllocationStrategy::PriceCapacityOptimized
    };
    let on_demand_strategy = if terms.has_own_prices {
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

/// One per type and zone: partitions of a placement group are the template's business.
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
                // EC2 repeats it in errors, which spares asking for the subnet's zone.
                zone: Some(subnet.zone.clone()),
                priority: Some(offering.price_per_hour),
            });
        }
    }
    overrides
}

/// What makes two requests one: everything about them.
pub(super) fn batch_key(request: &CreateFleet) -> String {
    format!("{request:?}")
}

/// Gives every one of `count` callers a machine of the answer, as long as there are any; the rest get the errors.
pub(super) fn share(answer: FleetAnswer, count: usize) -> Vec<FleetAnswer> {
    let FleetAnswer { fleet_id, instances, mut errors } = answer;
    let machines = instances.into_iter().flat_map(|bought| {
        let ids = bought.instance_ids.clone();
        ids.into_iter().map(move |id| FleetInstances { instance_ids: vec![id], ..bought.clone() })
    });
    let mut machines = machines.map(Some).collect::<Vec<_>>();
    if machines.len() > count {
        tracing::error!(
            fleet_id,
            asked = count,
            got = machines.len(),
            "received more instances than requested"
        );
    }
    machines.resize(count, None);
    if errors.is_empty() && machines.iter().any(Option::is_none) {
        let error = AwsError::new("too few instances returned", "too few instances returned");
        errors.push(FleetError {
            error,
            launch_template_name: None,
            tried: FleetOverride::default(),
            lifecycle: None,
        });
    }
    let answers = machines.into_iter().map(|machine| FleetAnswer {
        fleet_id: fleet_id.clone(),
        instances: machine.into_iter().collect(),
        errors: errors.clone(),
    });
    answers.collect()
}
