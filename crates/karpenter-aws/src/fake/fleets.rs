//! `CreateFleet` of the fake. It launches instances from the overrides in the order of the allocation strategy; when
//! the capacity of an override is used up, it continues with the next.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::instances::later;
use super::{FakeInstance, StoredTemplate, World};
use crate::api::AwsError;
use crate::api::ec2::{
    CreateFleet, Ec2Instance, FleetAnswer, FleetError, FleetInstances, FleetOverride, InstanceState,
    OnDemandAllocationStrategy, SpotAllocationStrategy, TargetCapacityType,
};

/// EC2's maximum number of running instances per zone in a spread placement group.
const SPREAD_GROUP_INSTANCES_MAX: usize = 7;

impl World {
    pub(super) fn create_fleet(
        &mut self,
        request: &CreateFleet,
        now: Timestamp,
    ) -> Result<FleetAnswer, AwsError> {
        self.fleets.push(request.clone());
        for config in &request.launch_template_configs {
            let is_known = self.launch_templates.contains_key(&config.launch_template_name);
            if !is_known && self.missing_template_code.is_none() {
                let message = format!("launch template {} does not exist", config.launch_template_name);
                return Err(AwsError::new("InvalidLaunchTemplateName.NotFoundException", message));
            }
        }
        if request.is_dry_run {
            return Err(AwsError::new(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
            ));
        }
        let mut answer = FleetAnswer { fleet_id: self.next_id("fleet"), ..FleetAnswer::default() };
        let wanted = usize::try_from(request.total_target_capacity).unwrap_or_default();
        let wanted = self.fleet_instances_max.map_or(wanted, |most| wanted.min(most));
        let mut bought = 0;
        for (template_name, offer) in self.overrides_in_order(request) {
            if bought == wanted {
                break;
            }
            let mut ids = Vec::new();
            let error = loop {
                if bought == wanted {
                    break None;
                }
                match self.launch_override(request, &template_name, &offer, now) {
                    Ok(id) => ids.push(id),
                    Err(error) => break Some(error),
                }
                bought += 1;
            };
            let lifecycle = lifecycle(request.target).to_owned();
            if !ids.is_empty() {
                answer.instances.push(FleetInstances {
                    instance_ids: ids,
                    instance_type: offer.instance_type.clone(),
                    lifecycle: lifecycle.clone(),
                    launch_template_name: Some(template_name.clone()),
                    launched_as: offer.clone(),
                });
            }
            answer.errors.extend(error.map(|error| FleetError {
                error,
                launch_template_name: Some(template_name),
                tried: offer,
                lifecycle: Some(lifecycle),
            }));
        }
        Ok(answer)
    }

    fn overrides_in_order(&self, request: &CreateFleet) -> Vec<(String, FleetOverride)> {
        let mut offers = Vec::new();
        for config in &request.launch_template_configs {
            for offer in &config.overrides {
                offers.push((config.launch_template_name.clone(), offer.clone()));
            }
        }
        let by_priority = |offer: &FleetOverride| offer.priority.unwrap_or(f64::MAX);
        let on_demand = |offer: &FleetOverride| {
            self.on_demand_prices.get(&offer.instance_type).copied().unwrap_or(f64::MAX)
        };
        let spot = |offer: &FleetOverride| {
            let zone = self.zone_of(offer).unwrap_or_default();
            self.spot_prices.get(&(offer.instance_type.clone(), zone)).copied().unwrap_or(f64::MAX)
        };
        let cost = |offer: &FleetOverride| match request.target {
            TargetCapacityType::Spot => match request.spot_allocation_strategy {
                Some(SpotAllocationStrategy::CapacityOptimizedPrioritized) => by_priority(offer),
                _ => spot(offer),
            },
            TargetCapacityType::OnDemand => match request.on_demand_allocation_strategy {
                Some(OnDemandAllocationStrategy::Prioritized) => by_priority(offer),
                _ => on_demand(offer),
            },
            TargetCapacityType::CapacityBlock | TargetCapacityType::ReservedCapacity => 0.0,
        };
        offers.sort_by(|(_, one), (_, two)| cost(one).total_cmp(&cost(two)));
        offers
    }

    fn zone_of(&self, offer: &FleetOverride) -> Option<String> {
        let subnet = offer.subnet_id.as_ref().and_then(|id| self.subnets.get(id));
        subnet.map(|subnet| subnet.zone.clone()).or_else(|| offer.zone.clone())
    }

    /// Launches one instance from an override.
    fn launch_override(
        &mut self,
        request: &CreateFleet,
        template_name: &str,
        offer: &FleetOverride,
        now: Timestamp,
    ) -> Result<String, AwsError> {
        let Some(stored) = self.launch_templates.get(template_name).cloned() else {
            let code = self.missing_template_code.unwrap_or("InvalidLaunchTemplateName.NotFoundException");
            return Err(AwsError::new(code, template_name));
        };
        let zone = self.zone_of(offer).unwrap_or_default();
        self.check_launchable(request, &stored, offer, &zone)?;
        let (instance_type, is_spot) =
            (offer.instance_type.clone(), request.target == TargetCapacityType::Spot);
        let capacity_type = if is_spot { "spot" } else { "on-demand" };
        let reservation = stored.data.capacity_reservation.clone().unwrap_or_default();
        if let Some(id) = &reservation.target_id {
            self.take_from_reservation(id, &instance_type, &zone)?;
        } else {
            let pool = (instance_type.clone(), zone.clone(), capacity_type.to_owned());
            match self.pool_capacity.get_mut(&pool) {
                Some(0) => return Err(sold_out(&instance_type, &zone)),
                Some(left) => *left -= 1,
                None => {}
            }
        }
        if let Some(subnet) = offer.subnet_id.as_ref().and_then(|id| self.subnets.get_mut(id)) {
            subnet.available_ip_count -= 1;
        }
        let id = self.next_id("i");
        let data = &stored.data;
        let first_interface = data.network_interfaces.first();
        let groups = first_interface.map_or(&data.security_group_ids, |first| &first.security_group_ids);
        let interface_types = data
            .network_interfaces
            .iter()
            .map(|interface| interface.interface_type.clone().unwrap_or_else(|| "interface".to_owned()));
        let tags = request.tag_specifications.iter().filter(|tags| tags.resource_type == "instance");
        let profile = data.instance_profile_name.as_deref();
        let instance = Ec2Instance {
            id: id.clone(),
            instance_type,
            image_id: offer.image_id.clone().unwrap_or_else(|| data.image_id.clone()),
            state: InstanceState::Pending,
            launched_at: Some(now),
            zone_id: self.zone_id(&zone),
            zone,
            subnet_id: offer.subnet_id.clone(),
            security_group_ids: groups.clone(),
            private_dns_name: Some(format!("{id}.{}.compute.internal", self.region)),
            instance_profile_arn: profile
                .map(|name| format!("arn:aws:iam::{}:instance-profile/{name}", self.account_id)),
            spot_instance_request_id: is_spot.then(|| id.replacen("i-", "sir-", 1)),
            lifecycle: match request.target {
                TargetCapacityType::OnDemand => None,
                other => Some(lifecycle(other).to_owned()),
            },
            capacity_reservation_id: reservation.target_id.clone(),
            capacity_reservation_preference: data
                .capacity_reservation
                .as_ref()
                .map(|reservation| reservation.preference.clone()),
            network_interface_types: interface_types.collect(),
            tenancy: data.placement.tenancy.clone(),
            placement_group_id: data.placement.group_id.clone(),
            partition_number: self.partition(&stored),
            tags: tags.flat_map(|tags| tags.tags.clone()).collect(),
        };
        let machine = FakeInstance {
            instance,
            visible_at: later(now, self.visible_after),
            runs_at: later(now, self.runs_after),
            ends_at: None,
        };
        self.instances.insert(id.clone(), machine);
        Ok(id)
    }

    /// Checks everything that can prevent a launch, except the remaining capacity of the pool and of the reservation.
    fn check_launchable(
        &self,
        request: &CreateFleet,
        stored: &StoredTemplate,
        offer: &FleetOverride,
        zone: &str,
    ) -> Result<(), AwsError> {
        if request.target == TargetCapacityType::Spot && self.is_spot_role_missing {
            return Err(AwsError::new(
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
            ));
        }
        if !self.is_offered(&offer.instance_type, zone) {
            let message =
                format!("Your requested instance type ({}) is not supported in {zone}", offer.instance_type);
            return Err(AwsError::new("Unsupported", message));
        }
        let subnet = offer.subnet_id.as_ref().and_then(|id| self.subnets.get(id));
        if subnet.is_some_and(|subnet| subnet.available_ip_count <= 0) {
            let message =
                "There are not enough free addresses in subnet to satisfy the requested number of instances.";
            return Err(AwsError::new("InsufficientFreeAddressesInSubnet", message));
        }
        let group = stored.data.placement.group_id.as_ref().and_then(|id| self.placement_groups.get(id));
        if let Some(group) = group.filter(|group| group.strategy == "spread") {
            let members = self.instances.values().filter(|machine| {
                machine.instance.placement_group_id.as_ref() == Some(&group.id)
                    && machine.instance.zone == zone
                    && !machine.instance.state.is_terminating()
            });
            if members.count() >= SPREAD_GROUP_INSTANCES_MAX {
                return Err(AwsError::new(
                    "InsufficientInstanceCapacity",
                    "You've reached the limit of instances in this spread placement group.",
                ));
            }
        }
        Ok(())
    }

    fn take_from_reservation(&mut self, id: &str, instance_type: &str, zone: &str) -> Result<(), AwsError> {
        let Some(reservation) = self.reservations.get_mut(id) else {
            let message = format!("The capacity reservation {id} does not exist");
            return Err(AwsError::new("InvalidCapacityReservationId.NotFound", message));
        };
        if reservation.instance_type != instance_type
            || reservation.zone != zone
            || reservation.available_count <= 0
        {
            let message = format!("The requested reservation {id} does not have sufficient capacity");
            return Err(AwsError::new("ReservationCapacityExceeded", message));
        }
        reservation.available_count -= 1;
        Ok(())
    }

    /// The requested partition; if none is requested, the partition of the group with the fewest instances.
    fn partition(&self, stored: &StoredTemplate) -> Option<i32> {
        if stored.data.placement.partition_number.is_some() {
            return stored.data.placement.partition_number;
        }
        let group = self.placement_groups.get(stored.data.placement.group_id.as_ref()?)?;
        let mut members: BTreeMap<i32, usize> =
            (1..=group.partition_count).map(|number| (number, 0)).collect();
        for machine in self.instances.values() {
            let is_member = machine.instance.placement_group_id.as_ref() == Some(&group.id);
            if let Some(count) = machine.instance.partition_number.and_then(|number| members.get_mut(&number))
                && is_member
            {
                *count += 1;
            }
        }
        members.into_iter().min_by_key(|(number, count)| (*count, *number)).map(|(number, _)| number)
    }
}

fn lifecycle(target: TargetCapacityType) -> &'static str {
    match target {
        TargetCapacityType::OnDemand => "on-demand",
        TargetCapacityType::Spot => "spot",
        TargetCapacityType::CapacityBlock => "capacity-block",
        TargetCapacityType::ReservedCapacity => "interruptible-capacity-reservation",
    }
}

fn sold_out(instance_type: &str, zone: &str) -> AwsError {
    let message = format!("We currently do not have sufficient {instance_type} capacity in {zone}.");
    AwsError::new("InsufficientInstanceCapacity", message)
}
