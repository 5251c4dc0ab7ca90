//! The machine types that kwok's nodes have where they play EC2's, for `up --legacy` and for a controller of kwok's that
//! serves the API before v1.

use anyhow::{Result, bail};
use karpenter_catalog::aws::{self, AwsNodeClass, AwsZone};
use karpenter_model::instance_type::InstanceType;

/// What EC2 sells in all zones of a region.
pub(crate) fn types(region: &str) -> Result<Vec<InstanceType>> {
    let zones: Vec<AwsZone> = aws::catalog().zones(region).to_vec();
    if zones.is_empty() {
        let known: Vec<&str> = aws::catalog().regions().collect();
        bail!("{region:?} is not in the catalog; valid: {}", known.join(", "));
    }
    let class = AwsNodeClass { region: region.to_owned(), zones, ..AwsNodeClass::default() };
    Ok(aws::catalog().resolve(&class))
}
