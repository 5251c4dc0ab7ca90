//! The settings of an EC2NodeClass that affect instance types, as a value that can be compared: results computed from
//! an older value are outdated. So the value must contain every field that instance types depend on.

use std::collections::BTreeMap;

use karpenter_api::types::{AmiStatus, EC2NodeClass, KubeletValues};
use karpenter_catalog::aws::{AwsNodeClass, TypeInfo};
use karpenter_state::aws_node_class;

use super::TypeOptions;
use crate::reservations;

/// Evaluates those kubelet settings that are CEL expressions.
pub trait KubeletExpressions: Send + Sync {
    /// Whether some setting that affects instance types is an expression.
    fn has_any(&self, kubelet: &KubeletValues) -> bool;

    /// The node class's settings with the values that the expressions have for an instance type. An expression without
    /// a value is ignored here; the validation of the node class reports it.
    fn evaluate(&self, kubelet: &KubeletValues, info: &TypeInfo, facts: &AwsNodeClass) -> AwsNodeClass;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassView {
    pub facts: AwsNodeClass,
    /// The ids of the node class's subnets, by zone.
    pub subnet_ids: BTreeMap<String, Vec<String>>,
    /// A text that identifies the set of the node class's AMIs, under which discovered memory is stored.
    pub images: String,
    /// The kubelet settings, if some of them are expressions; otherwise `None`.
    pub expressions: Option<KubeletValues>,
    /// Whether no instance may be launched with the node class at present.
    pub is_unlaunchable: bool,
}

impl ClassView {
    /// Reads the settings of a node class, except its placement group, which needs an AWS call.
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
        // If settings cannot be parsed, the validation of the node class reports it.
        let (mut facts, _) = aws_node_class(class, &base);
        // The names of local zones do not contain the region, so it is taken from the options.
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
        // The status sorts subnets by free addresses, which change often and do not affect the result. So they are
        // sorted by id here.
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
            is_unlaunchable: false,
        }
    }
}

/// A text that identifies a set of AMIs: their sorted ids.
pub fn images_key(images: &[AmiStatus]) -> String {
    let mut ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.join(" ")
}
