//! What a class says about instance types, taken from its spec and status: a value to compare, so that whatever was
//! made from it can be told to be out of date. Nothing of the class that matters to types may be missing here.

use std::collections::BTreeMap;

use karpenter_api::types::{AmiStatus, EC2NodeClass, KubeletValues};
use karpenter_catalog::aws::{AwsNodeClass, TypeInfo};
use karpenter_state::aws_node_class;

use super::TypeOptions;
use crate::reservations;

/// Kubelet settings that are expressions over the type.
pub trait KubeletExpressions: Send + Sync {
    /// Whether any of the settings that decide about types is one.
    fn has_any(&self, kubelet: &KubeletValues) -> bool;

    /// The class with the numbers that the expressions come to for a type. What cannot be evaluated counts as not
    /// given: the class's validation tells about it.
    fn evaluate(&self, kubelet: &KubeletValues, info: &TypeInfo, facts: &AwsNodeClass) -> AwsNodeClass;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassView {
    pub facts: AwsNodeClass,
    /// The ids of the class's subnets by zone.
    pub subnet_ids: BTreeMap<String, Vec<String>>,
    /// Which images memory was seen with.
    pub images: String,
    /// Settings with expressions in them, if there are any.
    pub expressions: Option<KubeletValues>,
    /// Nothing may be launched, whatever there is.
    pub is_closed: bool,
}

impl ClassView {
    /// Without a placement group: somebody has to ask for it.
    pub fn new(
        class: &EC2NodeClass,
        options: &TypeOptions,
        expressions: Option<&dyn KubeletExpressions>,
    ) -> Self {
        let base = AwsNodeClass {
            region: options.region.clone(),
            zones: Vec::new(),
            reserved_enis: options.reserved_enis,
            vm_memory_overhead_percent: options.vm_memory_overhead_percent,
            ..AwsNodeClass::default()
        };
        // What could not be read is told by the class's validation.
        let (mut facts, _) = aws_node_class(class, &base);
        // A guess from the names of zones would be wrong for local zones.
        facts.region.clone_from(&options.region);
        for zone in &mut facts.zones {
            zone.id = zone.id.take().filter(|id| !id.is_empty());
        }
        let status = class.status.as_ref();
        if options.uses_reservations {
            facts.capacity_reservations =
                reservations::facts(status.map_or(&[], |status| &status.capacity_reservations));
        }
        let mut subnet_ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for subnet in status.map_or(&[][..], |status| &status.subnets) {
            subnet_ids.entry(subnet.zone.clone()).or_default().push(subnet.id.clone());
        }
        // A status lists them by free addresses, which change all the time and decide nothing here.
        subnet_ids.values_mut().for_each(|ids| ids.sort_unstable());
        let kubelet = class.spec.kubelet.as_ref();
        let expressions = expressions
            .zip(kubelet)
            .filter(|(expressions, kubelet)| expressions.has_any(kubelet))
            .map(|(_, kubelet)| kubelet.clone());
        Self {
            facts,
            subnet_ids,
            images: images_key(status.map_or(&[], |status| &status.amis)),
            expressions,
            is_closed: false,
        }
    }
}

/// A set of images as a key: the ids in order.
pub fn images_key(images: &[AmiStatus]) -> String {
    let mut ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.join(" ")
}
