//! Machines that are no longer what their class asks for, and why: upstream's reasons in upstream's order.
//!
//! What is cheap to know comes first, so that EC2 is asked only about machines that pass it. A class that does not know
//! yet what it asks for makes no machine drift: that is an error, and it is looked at again. What becomes of drifted
//! machines is not decided here.

mod live;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, EC2NodeClassStatus, NodeClaim};
use karpenter_cloud::{CloudError, CloudFuture};
use karpenter_cluster::controllers::context::{annotation, label};
use karpenter_model::instance_type::InstanceType;

use crate::node_class::image_of_type;

pub use live::LiveDrift;

/// Why a machine is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// A field of the class's spec changed.
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

/// What is not known yet, so that nothing can be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
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

impl From<Unknown> for CloudError {
    fn from(unknown: Unknown) -> Self {
        Self::Transient { message: unknown.to_string() }
    }
}

/// What a machine is, as far as drift goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub security_group_ids: BTreeSet<String>,
    pub subnet_id: Option<String>,
    /// Of machines that run in reserved capacity only.
    pub reservation_id: Option<String>,
}

/// Whether the spec changed since the machine was launched. Without a hash on either side, or with hashes of different
/// versions, nobody knows.
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

/// Whether a machine of its type would boot another image today. `instance_type`: the claim's type, if it can be bought.
pub fn has_image_changed(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    instance_type: Option<&InstanceType>,
) -> Result<bool, Unknown> {
    let Some(instance_type) = instance_type else {
        let name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
        return Err(Unknown::InstanceType(name.to_owned()));
    };
    let images = &status(class).amis;
    if images.is_empty() {
        return Err(Unknown::Images);
    }
    let booted = claim.status.as_ref().and_then(|status| status.image_id.as_deref());
    let booted = booted.filter(|id| !id.is_empty()).ok_or(Unknown::ImageOfClaim)?;
    Ok(image_of_type(&instance_type.requirements, images).is_none_or(|image| image.id != booted))
}

/// What a look at the machine shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Drifted(Drift),
    Same,
    /// It runs in a reservation that the class no longer has. That may be old news, since reserved machines may become
    /// on-demand ones: EC2 has to be asked.
    LookAgain,
}

/// Compares the machine with the class. `is_fresh`: EC2 was asked for the machine just now.
pub fn compare(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    machine: &Machine,
    placement_group_id: Option<&str>,
    is_fresh: bool,
) -> Result<Shown, Unknown> {
    let status = status(class);
    if status.security_groups.is_empty() {
        return Err(Unknown::SecurityGroups);
    }
    if status.subnets.is_empty() {
        return Err(Unknown::Subnets);
    }
    let groups: BTreeSet<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    if !machine.security_group_ids.iter().map(String::as_str).eq(groups) {
        return Ok(Shown::Drifted(Drift::SecurityGroup));
    }
    if !status.subnets.iter().any(|subnet| Some(&subnet.id) == machine.subnet_id.as_ref()) {
        return Ok(Shown::Drifted(Drift::Subnet));
    }
    let has = |id: &String| status.capacity_reservations.iter().any(|reservation| reservation.id == *id);
    if machine.reservation_id.as_ref().is_some_and(|id| !has(id)) {
        return Ok(if is_fresh { Shown::Drifted(Drift::CapacityReservation) } else { Shown::LookAgain });
    }
    let launched_into = label(claim, labels::AWS_PLACEMENT_GROUP_ID).unwrap_or_default();
    if launched_into != placement_group_id.unwrap_or_default() {
        return Ok(Shown::Drifted(Drift::PlacementGroup));
    }
    Ok(Shown::Same)
}

fn status(class: &EC2NodeClass) -> &EC2NodeClassStatus {
    static EMPTY: std::sync::LazyLock<EC2NodeClassStatus> = std::sync::LazyLock::new(Default::default);
    class.status.as_ref().unwrap_or(&EMPTY)
}

/// Whom a machine's drift is asked of.
pub trait Facts: Send + Sync {
    /// The claim's type among those that could be bought with the class.
    fn instance_type<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a EC2NodeClass,
    ) -> CloudFuture<'a, Option<InstanceType>>;

    /// The claim's machine; `is_fresh` asks EC2 instead of memory.
    fn machine<'a>(&'a self, claim: &'a NodeClaim, is_fresh: bool) -> CloudFuture<'a, Machine>;

    /// The placement group that the class selects now.
    fn placement_group_id<'a>(&'a self, class: &'a EC2NodeClass) -> CloudFuture<'a, Option<String>>;
}

/// The first reason why the claim's machine is to be replaced, if there is one.
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
        Shown::Drifted(drift) => Ok(Some(drift)),
        Shown::Same => Ok(None),
        Shown::LookAgain => {
            let machine = facts.machine(claim, true).await?;
            match compare(claim, class, &machine, group.as_deref(), true)? {
                Shown::Drifted(drift) => Ok(Some(drift)),
                Shown::Same | Shown::LookAgain => Ok(None),
            }
        }
    }
}
