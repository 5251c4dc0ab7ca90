//! Converts an instance into the cloud provider interface's form: labels, capacity and state.
//!
//! Upstream: `pkg/cloudprovider/cloudprovider.go` (`instanceToNodeClaim`)

use std::collections::BTreeMap;

use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, Quantities};
use karpenter_catalog::aws::{self, AWS_EFA, PlacementGroup, PlacementStrategy};
use karpenter_cloud::Instance;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::resources::ResourceList;

use crate::instances::ProviderInstance;

/// The objects that an instance belongs to. Each may be missing, because it may no longer exist.
#[derive(Debug, Clone, Copy)]
pub struct InstanceContext<'a> {
    pub instance_type: Option<&'a InstanceType>,
    pub class: Option<&'a EC2NodeClass>,
    pub group: Option<&'a PlacementGroup>,
}

pub fn instance(instance: &ProviderInstance, related: InstanceContext<'_>) -> Instance {
    let of_type = related.instance_type;
    let amounts = |amounts: ResourceList| quantities(&amounts, instance.efa_count > 0);
    Instance {
        provider_id: instance.provider_id(),
        image_id: Some(instance.image_id.clone()).filter(|id| !id.is_empty()),
        labels: node_labels(instance, related),
        annotations: BTreeMap::new(),
        capacity: of_type.map(|of_type| amounts(of_type.capacity.clone())).unwrap_or_default(),
        allocatable: of_type.map(|of_type| amounts(of_type.allocatable())).unwrap_or_default(),
        is_terminating: instance.state.is_terminating(),
    }
}

fn node_labels(instance: &ProviderInstance, related: InstanceContext<'_>) -> BTreeMap<String, String> {
    let mut labels_of_node = BTreeMap::new();
    let mut set = |key: &str, value: &str| {
        labels_of_node.insert(key.to_owned(), value.to_owned());
    };
    // If a requirement of the type has several values, the label is set from the instance. Reservation labels of the
    // type are left out, because they do not apply to every instance.
    for requirement in related.instance_type.iter().flat_map(|of_type| of_type.requirements.iter()) {
        if let Some(value) = requirement.single_value()
            && !aws::labels::RESERVATION.contains(&&*requirement.key)
        {
            set(&requirement.key, value);
        }
    }
    set(labels::INSTANCE_TYPE, &instance.instance_type);
    set(labels::ZONE, &instance.zone);
    let subnets =
        related.class.and_then(|class| class.status.as_ref()).map_or(&[][..], |status| &status.subnets);
    let there = subnets.iter().find(|subnet| subnet.zone == instance.zone);
    if let Some(zone_id) = there.and_then(|subnet| subnet.zone_id.as_deref()).filter(|id| !id.is_empty()) {
        set(labels::AWS_ZONE_ID, zone_id);
    }
    set(labels::CAPACITY_TYPE, &instance.capacity_type);
    set(labels::AWS_INSTANCE_TENANCY, &instance.tenancy);
    if let Some(reservation) = &instance.reservation {
        set(labels::AWS_CAPACITY_RESERVATION_ID, &reservation.id);
        set(labels::AWS_CAPACITY_RESERVATION_TYPE, &reservation.reservation_type);
        set(labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE, &reservation.is_interruptible.to_string());
    }
    if let Some(group) = related.group {
        set(labels::AWS_PLACEMENT_GROUP_ID, &group.id);
        if group.strategy == PlacementStrategy::Partition {
            // The label is empty until EC2 returns the partition; until then, the node is not registered.
            let partition = instance.partition.map(|number| number.to_string()).unwrap_or_default();
            set(labels::AWS_PLACEMENT_GROUP_PARTITION, &partition);
        }
    }
    if let Some(pool) = instance.tags.get(labels::NODEPOOL) {
        set(labels::NODEPOOL, pool);
    }
    labels_of_node
}

/// Converts amounts of resources. An instance has EFA devices only if it was launched with EFA interfaces.
fn quantities(amounts: &ResourceList, has_efa: bool) -> Quantities {
    let present = amounts.iter().filter(|(name, amount)| *amount != 0 && (has_efa || &***name != AWS_EFA));
    present.map(|(name, amount)| (name.to_string(), ResourceList::quantity(name, amount))).collect()
}
