//! EC2 fleets of type `instant`.

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::types as sdk;
use karpenter_aws::api::AwsError;
use karpenter_aws::api::ec2::{
    CreateFleet, FleetAnswer, FleetError, FleetInstances, FleetLaunchTemplate, FleetOverride,
    OnDemandAllocationStrategy, SpotAllocationStrategy, TargetCapacityType,
};

use super::{tag_specifications, unless_empty};

pub(super) fn request(call: CreateFleetFluentBuilder, request: &CreateFleet) -> CreateFleetFluentBuilder {
    let capacity = sdk::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(request.total_target_capacity)
        .default_target_capacity_type(target(request.target))
        .build();
    let spot = request.spot_allocation_strategy.map(|strategy| {
        let strategy = match strategy {
            SpotAllocationStrategy::PriceCapacityOptimized => {
                sdk::SpotAllocationStrategy::PriceCapacityOptimized
            }
            SpotAllocationStrategy::CapacityOptimizedPrioritized => {
                sdk::SpotAllocationStrategy::CapacityOptimizedPrioritized
            }
        };
        sdk::SpotOptionsRequest::builder().allocation_strategy(strategy).build()
    });
    let on_demand = request.on_demand_allocation_strategy.map(|strategy| {
        let strategy = match strategy {
            OnDemandAllocationStrategy::LowestPrice => sdk::FleetOnDemandAllocationStrategy::LowestPrice,
            OnDemandAllocationStrategy::Prioritized => sdk::FleetOnDemandAllocationStrategy::Prioritized,
        };
        sdk::OnDemandOptionsRequest::builder().allocation_strategy(strategy).build()
    });
    let reserved = unless_empty(request.reservation_types.clone()).map(|kinds| {
        let kinds = kinds.iter().map(|kind| kind.as_str().into()).collect();
        sdk::ReservedCapacityOptionsRequest::builder().set_reservation_types(Some(kinds)).build()
    });
    let templates = request.launch_template_configs.iter().map(launch_template).collect();
    call.r#type(sdk::FleetType::Instant)
        .set_launch_template_configs(Some(templates))
        .target_capacity_specification(capacity)
        .set_spot_options(spot)
        .set_on_demand_options(on_demand)
        .set_reserved_capacity_options(reserved)
        .set_context(request.context.clone())
        .set_tag_specifications(tag_specifications(&request.tag_specifications))
        .set_dry_run(request.is_dry_run.then_some(true))
}

fn target(target: TargetCapacityType) -> sdk::DefaultTargetCapacityType {
    match target {
        TargetCapacityType::OnDemand => sdk::DefaultTargetCapacityType::OnDemand,
        TargetCapacityType::Spot => sdk::DefaultTargetCapacityType::Spot,
        TargetCapacityType::CapacityBlock => sdk::DefaultTargetCapacityType::CapacityBlock,
        TargetCapacityType::ReservedCapacity => sdk::DefaultTargetCapacityType::from("reserved-capacity"),
    }
}

fn launch_template(template: &FleetLaunchTemplate) -> sdk::FleetLaunchTemplateConfigRequest {
    let specification = sdk::FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(&template.launch_template_name)
        .version("$Latest")
        .build();
    let overrides = template.overrides.iter().map(|wish| {
        sdk::FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(wish.instance_type.as_str().into())
            .set_subnet_id(wish.subnet_id.clone())
            .set_image_id(wish.image_id.clone())
            .set_availability_zone(wish.zone.clone())
            .set_priority(wish.priority)
            .build()
    });
    sdk::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(specification)
        .set_overrides(Some(overrides.collect()))
        .build()
}

pub(super) fn answer(answer: CreateFleetOutput) -> FleetAnswer {
    FleetAnswer {
        fleet_id: answer.fleet_id.unwrap_or_default(),
        instances: answer.instances.unwrap_or_default().into_iter().map(instances).collect(),
        errors: answer.errors.unwrap_or_default().into_iter().map(error).collect(),
    }
}

/// The launch template and the override that were used.
fn used(response: Option<sdk::LaunchTemplateAndOverridesResponse>) -> (Option<String>, FleetOverride) {
    let (template, overrides) = response
        .map(|response| (response.launch_template_specification, response.overrides))
        .unwrap_or_default();
    let overrides = overrides.map(|used| FleetOverride {
        instance_type: used.instance_type.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        subnet_id: used.subnet_id,
        image_id: used.image_id,
        zone: used.availability_zone,
        priority: used.priority,
    });
    (template.and_then(|template| template.launch_template_name), overrides.unwrap_or_default())
}

fn instances(instances: sdk::CreateFleetInstance) -> FleetInstances {
    let (launch_template_name, mut launched_as) = used(instances.launch_template_and_overrides);
    // Newer API versions return the zone separately; it fills in a missing zone.
    launched_as.zone = launched_as.zone.or(instances.availability_zone);
    launched_as.subnet_id = launched_as.subnet_id.or(instances.subnet_id);
    let instance_type = instances.instance_type.as_ref().map(|name| name.as_str().to_owned());
    FleetInstances {
        instance_ids: instances.instance_ids.unwrap_or_default(),
        instance_type: instance_type.unwrap_or_else(|| launched_as.instance_type.clone()),
        lifecycle: instances
            .lifecycle
            .as_ref()
            .map(|lifecycle| lifecycle.as_str().to_owned())
            .unwrap_or_default(),
        launch_template_name,
        launched_as,
    }
}

fn error(error: sdk::CreateFleetError) -> FleetError {
    let (launch_template_name, tried) = used(error.launch_template_and_overrides);
    FleetError {
        error: AwsError::new(error.error_code.unwrap_or_default(), error.error_message.unwrap_or_default()),
        launch_template_name,
        tried,
        lifecycle: error.lifecycle.as_ref().map(|lifecycle| lifecycle.as_str().to_owned()),
    }
}
