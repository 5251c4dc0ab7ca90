//! Computes the kubelet configuration for an instance type from the node class's `spec.kubelet`.

use karpenter_api::types::EC2NodeClass;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::resources::PODS;
use karpenter_userdata::Kubelet;

use crate::kubelet::{Expressions, ParsedKubelet, resolve_reserved, settings};
use crate::launch::template_groups::KubeletConfigs;
use crate::options::AwsFeatureGates;
use crate::types::InstanceTypes;

/// Computes kubelet configurations; reads the discovered instance types.
pub struct ClassKubelet {
    pub types: InstanceTypes,
    pub gates: AwsFeatureGates,
    pub expressions: Expressions,
    /// The address of the cluster's DNS server.
    pub cluster_dns: Option<String>,
}

impl KubeletConfigs for ClassKubelet {
    fn kubelet(&self, class: &EC2NodeClass, instance_type: &InstanceType) -> Result<Kubelet, String> {
        let values = class.spec.kubelet.clone().unwrap_or_default();
        let parsed = ParsedKubelet::parse(&values)?;
        let discovered = self.types.discovered();
        let known = discovered.find(&instance_type.name);
        let info = known.ok_or_else(|| format!("instance type {} is unknown", instance_type.name))?;
        // The pod capacity is the one with which the instance type was resolved.
        let pods = i32::try_from(instance_type.capacity.get(PODS)).unwrap_or(i32::MAX);
        let resolved =
            resolve_reserved(&parsed, self.gates, &self.expressions, &info.info, || i64::from(pods));
        for dropped in &resolved.dropped {
            tracing::warn!(instance_type = &*instance_type.name, error = %dropped.error, "kubelet setting has no value for instance type");
        }
        Ok(settings(&values, &parsed, &resolved, pods, self.cluster_dns.as_deref()))
    }
}
