//! Instances and their status.

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types as sdk;
use karpenter_aws::api::ec2::{
    DryRunInstances, Ec2Instance, InstanceState, InstanceStateChange, InstanceStatus, ScheduledEvent,
    StatusCheck,
};

use super::{tag_specifications, tags, unless_empty};
use crate::convert::timestamp;

pub(super) fn dry_run(
    call: RunInstancesFluentBuilder,
    request: &DryRunInstances,
) -> RunInstancesFluentBuilder {
    let template = sdk::LaunchTemplateSpecification::builder()
        .launch_template_name(&request.launch_template_name)
        .version("$Latest")
        .build();
    call.min_count(1)
        .max_count(1)
        .launch_template(template)
        .instance_type(request.instance_type.as_str().into())
        .set_image_id(request.image_id.clone())
        .set_subnet_id(request.subnet_id.clone().filter(|_| request.network_interfaces.is_empty()))
        .set_network_interfaces(unless_empty(interfaces(request)))
        .set_tag_specifications(tag_specifications(&request.tag_specifications))
}

/// Each network interface has the subnet: EC2 rejects a subnet of the instance if the template has network
/// interfaces.
fn interfaces(request: &DryRunInstances) -> Vec<sdk::InstanceNetworkInterfaceSpecification> {
    let wanted = request.network_interfaces.iter().map(|interface| {
        sdk::InstanceNetworkInterfaceSpecification::builder()
            .set_network_card_index(interface.network_card_index)
            .device_index(interface.device_index)
            .set_interface_type(interface.interface_type.clone())
            .set_subnet_id(request.subnet_id.clone())
            .build()
    });
    wanted.collect()
}

/// An unknown state is treated as pending, so that the instance does not count as terminated.
fn state(state: Option<&sdk::InstanceStateName>) -> InstanceState {
    state.and_then(|name| InstanceState::parse(name.as_str())).unwrap_or_default()
}

pub(super) fn instance(instance: sdk::Instance) -> Ec2Instance {
    let placement = instance.placement.unwrap_or_else(|| sdk::Placement::builder().build());
    let preference = instance
        .capacity_reservation_specification
        .and_then(|specification| specification.capacity_reservation_preference)
        .map(|preference| preference.as_str().to_owned());
    let groups = instance.security_groups.unwrap_or_default();
    let interfaces = instance.network_interfaces.unwrap_or_default();
    let state_name = instance.state.as_ref().and_then(|state| state.name.as_ref());
    Ec2Instance {
        state: state(state_name),
        instance_type: instance
            .instance_type
            .as_ref()
            .map(|name| name.as_str().to_owned())
            .unwrap_or_default(),
        lifecycle: instance.instance_lifecycle.as_ref().map(|lifecycle| lifecycle.as_str().to_owned()),
        tenancy: placement.tenancy.as_ref().map(|tenancy| tenancy.as_str().to_owned()),
        id: instance.instance_id.unwrap_or_default(),
        image_id: instance.image_id.unwrap_or_default(),
        launched_at: timestamp(instance.launch_time),
        zone: placement.availability_zone.unwrap_or_default(),
        zone_id: placement.availability_zone_id,
        subnet_id: instance.subnet_id,
        security_group_ids: groups.into_iter().filter_map(|group| group.group_id).collect(),
        private_dns_name: instance.private_dns_name,
        instance_profile_arn: instance.iam_instance_profile.and_then(|profile| profile.arn),
        spot_instance_request_id: instance.spot_instance_request_id,
        capacity_reservation_id: instance.capacity_reservation_id,
        capacity_reservation_preference: preference,
        network_interface_types: interfaces
            .into_iter()
            .filter_map(|interface| interface.interface_type)
            .collect(),
        placement_group_id: placement.group_id,
        partition_number: placement.partition_number,
        tags: tags(instance.tags),
    }
}

pub(super) fn state_change(change: sdk::InstanceStateChange) -> InstanceStateChange {
    let of = |side: Option<sdk::InstanceState>| state(side.as_ref().and_then(|side| side.name.as_ref()));
    InstanceStateChange {
        id: change.instance_id.unwrap_or_default(),
        previous: of(change.previous_state),
        current: of(change.current_state),
    }
}

pub(super) fn status(status: sdk::InstanceStatus) -> InstanceStatus {
    let name = status.instance_state.as_ref().and_then(|state| state.name.as_ref());
    InstanceStatus {
        state: name.and_then(|name| InstanceState::parse(name.as_str())),
        instance_id: status.instance_id.unwrap_or_default(),
        zone: status.availability_zone.unwrap_or_default(),
        instance_checks: checks(status.instance_status),
        system_checks: checks(status.system_status),
        events: status.events.unwrap_or_default().into_iter().map(event).collect(),
    }
}

fn checks(summary: Option<sdk::InstanceStatusSummary>) -> Vec<StatusCheck> {
    let details = summary.and_then(|summary| summary.details).unwrap_or_default();
    let check = |check: sdk::InstanceStatusDetails| StatusCheck {
        name: check.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        status: check.status.as_ref().map(|status| status.as_str().to_owned()).unwrap_or_default(),
        impaired_since: timestamp(check.impaired_since),
    };
    details.into_iter().map(check).collect()
}

fn event(event: sdk::InstanceStatusEvent) -> ScheduledEvent {
    ScheduledEvent {
        code: event.code.as_ref().map(|code| code.as_str().to_owned()).unwrap_or_default(),
        id: event.instance_event_id.unwrap_or_default(),
        description: event.description.unwrap_or_default(),
        not_before: timestamp(event.not_before),
        not_after: timestamp(event.not_after),
    }
}

#[cfg(test)]
mod tests {
    use karpenter_aws::api::ec2::NetworkInterfaceSpec;

    use super::*;

    #[test]
    fn every_interface_of_a_dry_run_is_in_the_subnet() {
        let efa = NetworkInterfaceSpec {
            network_card_index: Some(1),
            device_index: 2,
            interface_type: Some("efa-only".to_owned()),
            ..NetworkInterfaceSpec::default()
        };
        let request = DryRunInstances {
            subnet_id: Some("subnet-1".to_owned()),
            network_interfaces: vec![NetworkInterfaceSpec::default(), efa],
            ..DryRunInstances::default()
        };
        let sent = interfaces(&request);
        let converted = sent.iter().map(|interface| {
            let kind = interface.interface_type().unwrap_or_default();
            (interface.network_card_index(), interface.device_index(), kind, interface.subnet_id())
        });
        let expected =
            [(None, Some(0), "", Some("subnet-1")), (Some(1), Some(2), "efa-only", Some("subnet-1"))];
        assert_eq!(converted.collect::<Vec<_>>(), expected);
    }
}
