//! Decides whether a NodeClaim drifted from its EC2NodeClass, with upstream's reasons in upstream's order.
//!
//! Checks that need no AWS call come first. If the node class's status lacks values that a check needs, the result is
//! an error: the check is retried, and the NodeClaim does not count as drifted. Other crates decide when drifted nodes
//! are disrupted.
//!
//! Upstream: `pkg/cloudprovider/drift.go`

mod live;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, EC2NodeClassStatus, NodeClaim};
use karpenter_cloud::{CloudError, CloudFuture};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::{annotation, label};

use crate::node_class::image_of_type;

pub use live::LiveDrift;

/// The reason why a NodeClaim is drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// A field of the node class's spec changed that is part of the drift hash.
    NodeClass,
    Ami,
    SecurityGroup,
    Subnet,
    CapacityReservation,
    PlacementGroup,
}

impl Drift {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeClass => "NodeClassDrift",
            Self::Ami => "AMIDrift",
            Self::SecurityGroup => "SecurityGroupDrift",
            Self::Subnet => "SubnetDrift",
            Self::CapacityReservation => "CapacityReservationDrift",
            Self::PlacementGroup => "PlacementGroupDrift",
        }
    }
}

/// A value that is not known yet, so the check for drift must be retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingInput {
    #[error("calculating ami drift, finding node instance type (instance-type={0})")]
    InstanceType(String),
    #[error("calculating ami drift, no amis exist given constraints")]
    Images,
    #[error("calculating ami drift, no ami ID found in nodeClaim status")]
    ImageOfClaim,
    #[error("calculating securitygroup drift, no security groups are present in the status")]
    SecurityGroups,
    #[error("calculating subnet drift, no subnets are discovered")]
    Subnets,
}

impl From<MissingInput> for CloudError {
    fn from(unknown: MissingInput) -> Self {
        Self::Transient { message: unknown.to_string() }
    }
}

/// The properties of an instance that drift depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    pub security_group_ids: BTreeSet<String>,
    pub subnet_id: Option<String>,
    /// The id of the instance's capacity reservation; `None` for an instance that is not in reserved capacity.
    pub reservation_id: Option<String>,
}

/// Whether the node class's spec changed since the NodeClaim was created, by comparing hashes. False if a hash is
/// missing, or if the hash versions differ, because such hashes cannot be compared.
pub fn has_spec_changed(claim: &NodeClaim, class: &EC2NodeClass) -> bool {
    let key = labels::AWS_ANNOTATION_NODE_CLASS_HASH;
    let version = labels::AWS_ANNOTATION_NODE_CLASS_HASH_VERSION;
    match (
        annotation(class, key),
        annotation(claim, key),
        annotation(class, version),
        annotation(claim, version),
    ) {
        (Some(wanted), Some(present), Some(wanted_version), Some(present_version)) => {
            wanted_version == present_version && wanted != present
        }
        _ => false,
    }
}

/// Whether a new instance of the same type would boot another AMI. `instance_type` is the NodeClaim's type; `None` if
/// it is no longer offered.
pub fn has_image_changed(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    instance_type: Option<&InstanceType>,
) -> Result<bool, MissingInput> {
    let Some(instance_type) = instance_type else {
        let name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
        return Err(MissingInput::InstanceType(name.to_owned()));
    };
    let images = &status(class).amis;
    if images.is_empty() {
        return Err(MissingInput::Images);
    }
    let booted = claim.status.as_ref().and_then(|status| status.image_id.as_deref());
    let booted = booted.filter(|id| !id.is_empty()).ok_or(MissingInput::ImageOfClaim)?;
    Ok(image_of_type(&instance_type.requirements, images).is_none_or(|image| image.id != booted))
}

/// The result of comparing an instance with its node class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Drifted(Drift),
    Same,
    /// The instance must be read from EC2 before deciding: it runs in a reservation that the node class no longer
    /// selects. A reserved instance can become an on-demand instance, so the cached instance may be outdated.
    ReadFresh,
}

/// Compares the instance with the node class. `is_fresh` states that the instance was just read from EC2.
pub fn compare(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    machine: &InstanceFacts,
    placement_group_id: Option<&str>,
    is_fresh: bool,
) -> Result<Comparison, MissingInput> {
    let status = status(class);
    if status.security_groups.is_empty() {
        return Err(MissingInput::SecurityGroups);
    }
    if status.subnets.is_empty() {
        return Err(MissingInput::Subnets);
    }
    let groups: BTreeSet<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    if !machine.security_group_ids.iter().map(String::as_str).eq(groups) {
        return Ok(Comparison::Drifted(Drift::SecurityGroup));
    }
    if !status.subnets.iter().any(|subnet| Some(&subnet.id) == machine.subnet_id.as_ref()) {
        return Ok(Comparison::Drifted(Drift::Subnet));
    }
    let has = |id: &String| status.capacity_reservations.iter().any(|reservation| reservation.id == *id);
    if machine.reservation_id.as_ref().is_some_and(|id| !has(id)) {
        return Ok(if is_fresh {
            Comparison::Drifted(Drift::CapacityReservation)
        } else {
            Comparison::ReadFresh
        });
    }
    let launched_into = label(claim, labels::AWS_PLACEMENT_GROUP_ID).unwrap_or_default();
    if launched_into != placement_group_id.unwrap_or_default() {
        return Ok(Comparison::Drifted(Drift::PlacementGroup));
    }
    Ok(Comparison::Same)
}

fn status(class: &EC2NodeClass) -> &EC2NodeClassStatus {
    static EMPTY: std::sync::LazyLock<EC2NodeClassStatus> = std::sync::LazyLock::new(Default::default);
    class.status.as_ref().unwrap_or(&EMPTY)
}

/// Where the drift check gets its inputs from.
pub trait Facts: Send + Sync {
    /// The instance type of the NodeClaim; `None` if the node class no longer offers it.
    fn instance_type<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a EC2NodeClass,
    ) -> CloudFuture<'a, Option<InstanceType>>;

    /// The instance of the NodeClaim. With `is_fresh`, it is read from EC2 instead of the cache.
    fn machine<'a>(&'a self, claim: &'a NodeClaim, is_fresh: bool) -> CloudFuture<'a, InstanceFacts>;

    /// The id of the placement group that the node class selects.
    fn placement_group_id<'a>(&'a self, class: &'a EC2NodeClass) -> CloudFuture<'a, Option<String>>;
}

/// The first reason why the NodeClaim is drifted; `None` if it is not.
pub async fn find(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    facts: &dyn Facts,
) -> Result<Option<Drift>, CloudError> {
    if has_spec_changed(claim, class) {
        return Ok(Some(Drift::NodeClass));
    }
    let instance_type = facts.instance_type(claim, class).await?;
    if has_image_changed(claim, class, instance_type.as_ref())? {
        return Ok(Some(Drift::Ami));
    }
    let machine = facts.machine(claim, false).await?;
    let group = facts.placement_group_id(class).await?;
    match compare(claim, class, &machine, group.as_deref(), false)? {
        Comparison::Drifted(drift) => Ok(Some(drift)),
        Comparison::Same => Ok(None),
        Comparison::ReadFresh => {
            let machine = facts.machine(claim, true).await?;
            match compare(claim, class, &machine, group.as_deref(), true)? {
                Comparison::Drifted(drift) => Ok(Some(drift)),
                Comparison::Same | Comparison::ReadFresh => Ok(None),
            }
        }
    }
}
