//! The settings of an EC2NodeClass that affect instance types, as a comparable value: results that were computed from
//! it are outdated once it changes. So it must contain every field that instance types depend on.

use std::collections::BTreeMap;

use karpenter_api::types::{AmiStatus, EC2NodeClass, KubeletValues};
use karpenter_catalog::aws::{AwsNodeClass, TypeInfo};
use karpenter_state::aws_node_class;

use super::TypeOptions;
use crate::reservations;

/// Evaluates kubelet settings that are CEL expressions.
pub trait KubeletExpressions: Send + Sync {
    /// Whether any setting that affects instance types is an expression.
    fn has_any(&self, kubelet: &KubeletValues) -> bool;

    /// The class with the values of the expressions for an instance type. An expression without a value is ignored
    /// here; the class's validation reports it.
    fn evaluate(&self, kubelet: &KubeletValues, info: &TypeInfo, facts: &AwsNodeClass) -> AwsNodeClass;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassView {
    pub facts: AwsNodeClass,
    /// Subnet ids by zone.
    pub subnet_ids: BTreeMap<String, Vec<String>>,
    /// The AMIs of the class, as the key of discovered memory.
    pub images: String,
    /// Kubelet settings with expressions, if there are any.
    pub expressions: Option<KubeletValues>,
    /// Whether no instance may be launched with the class.
    pub is_unlaunchable: bool,
}

impl ClassView {
    /// Reads the settings of a class, without its placement group, which needs an AWS call.
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
        // The class's validation reports settings that cannot be parsed.
        let (mut facts, _) = aws_node_class(class, &base);
        // The region cannot be derived from the names of local zones.
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
        // The status sorts subnets by free addresses, which change often and do not affect the result, so they are
        // sorted by id.
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

/// A set of AMIs as a key: the sorted ids.
pub fn images_key(images: &[AmiStatus]) -> String {
    let mut ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.join(" ")
}
