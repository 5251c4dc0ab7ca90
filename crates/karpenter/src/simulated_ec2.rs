//! EC2 instance types for kwok nodes, for `up --legacy-api` and for a controller with the kwok provider that serves the
//! v1alpha5 API.

use anyhow::{Result, bail};
use karpenter_catalog::aws::{self, AwsNodeClass, AwsZone};
use karpenter_model::instance_type::InstanceType;

/// The instance types in all zones of a region.
pub(crate) fn types(region: &str) -> Result<Vec<InstanceType>> {
    let zones: Vec<AwsZone> = aws::catalog().zones(region).to_vec();
    if zones.is_empty() {
        let known: Vec<&str> = aws::catalog().regions().collect();
        bail!("{region:?} is not in the catalog; valid: {}", known.join(", "));
    }
    let class = AwsNodeClass { region: region.to_owned(), zones, ..AwsNodeClass::default() };
    Ok(aws::catalog().resolve(&class))
}
