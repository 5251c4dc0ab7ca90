//! An instance in the provider's own representation, converted from a `CreateFleet` response or from
//! `DescribeInstances`.

use jiff::Timestamp;
use karpenter_api::labels;

use crate::api::Tags;
use crate::api::ec2::{Ec2Instance, FleetInstances, InstanceState};
use crate::launch::filters::Reservation;

/// An instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderInstance {
    pub id: String,
    pub instance_type: String,
    pub image_id: String,
    pub state: InstanceState,
    pub launched_at: Option<Timestamp>,
    pub zone: String,
    pub zone_id: Option<String>,
    pub subnet_id: Option<String>,
    pub security_group_ids: Vec<String>,
    /// The capacity type: `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// The capacity reservation of the instance; `None` if it is not in reserved capacity.
    pub reservation: Option<Reservation>,
    pub efa_count: i64,
    pub tenancy: String,
    pub placement_group_id: Option<String>,
    pub partition: Option<u32>,
    pub tags: Tags,
}

impl ProviderInstance {
    /// `targets_reservations` states whether launch templates name reservations. If they do not, an instance in an open
    /// reservation counts as on-demand.
    pub fn from_ec2(instance: &Ec2Instance, targets_reservations: bool) -> Self {
        let capacity_type = capacity_type(instance, targets_reservations);
        let lifecycle = instance.lifecycle.as_deref();
        let is_efa = |kind: &&String| matches!(kind.as_str(), "efa" | "efa-only");
        let reservation = instance.capacity_reservation_id.clone().map(|id| Reservation {
            id,
            reservation_type: match lifecycle {
                Some("capacity-block") => "capacity-block".to_owned(),
                _ => "default".to_owned(),
            },
            is_interruptible: lifecycle == Some("interruptible-capacity-reservation"),
        });
        let tenancy = instance.tenancy.as_deref().filter(|tenancy| !tenancy.is_empty());
        Self {
            id: instance.id.clone(),
            instance_type: instance.instance_type.clone(),
            image_id: instance.image_id.clone(),
            state: instance.state,
            launched_at: instance.launched_at,
            zone: instance.zone.clone(),
            zone_id: instance.zone_id.clone(),
            subnet_id: instance.subnet_id.clone(),
            security_group_ids: instance.security_group_ids.clone(),
            reservation: reservation.filter(|_| capacity_type == labels::CAPACITY_TYPE_RESERVED),
            capacity_type: capacity_type.to_owned(),
            efa_count: i64::try_from(instance.network_interface_types.iter().filter(is_efa).count())
                .unwrap_or(0),
            tenancy: tenancy.unwrap_or("default").to_owned(),
            placement_group_id: instance.placement_group_id.clone(),
            partition: instance
                .partition_number
                .and_then(|number| u32::try_from(number).ok())
                .filter(|number| *number != 0),
            tags: instance.tags.clone(),
        }
    }

    /// Converts an entry of a `CreateFleet` response; `None` if the entry has no instance id.
    pub(crate) fn from_fleet(bought: &FleetInstances, zone: String, now: Timestamp) -> Option<Self> {
        Some(Self {
            id: bought.instance_ids.first()?.clone(),
            instance_type: bought.instance_type.clone(),
            image_id: bought.launched_as.image_id.clone().unwrap_or_default(),
            state: InstanceState::Pending,
            // The response does not state a launch time, so the current time is used.
            launched_at: Some(now),
            zone,
            subnet_id: bought.launched_as.subnet_id.clone(),
            ..Self::default()
        })
    }

    /// The `spec.providerID` of the instance's Node.
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

/// The capacity type of an instance.
pub fn capacity_type(instance: &Ec2Instance, targets_reservations: bool) -> &'static str {
    let only = instance.capacity_reservation_preference.as_deref() == Some("capacity-reservations-only");
    if instance.spot_instance_request_id.is_some() {
        labels::CAPACITY_TYPE_SPOT
    } else if targets_reservations && instance.capacity_reservation_id.is_some() && only {
        labels::CAPACITY_TYPE_RESERVED
    } else {
        labels::CAPACITY_TYPE_ON_DEMAND
    }
}
