//! Groups instance types that can share a launch template, because they have the same AMI, kubelet configuration,
//! number of EFA interfaces and capacity reservation.
//!
//! Upstream: `pkg/providers/amifamily/resolver.go`

use std::collections::BTreeMap;

use karpenter_api::labels;
use karpenter_api::types::{AmiStatus, EC2NodeClass};
use karpenter_catalog::aws::AWS_EFA;
use karpenter_model::instance_type::InstanceType;
use karpenter_userdata::Kubelet;

use super::constraints::LaunchConstraints;
use super::filters::{Candidate, Reservation};
use crate::node_class::image_of_type;

/// The instance types of one launch template, and the properties that they share.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateGroup<'a> {
    pub image: &'a AmiStatus,
    pub kubelet: Kubelet,
    pub efa_count: i64,
    pub reservation: Option<Reservation>,
    /// The instance types of the group, in the order of the input.
    pub candidates: Vec<Candidate<'a>>,
}

/// Why no launch template can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupingError {
    #[error("no amis exist given constraints")]
    NoAmis,
    #[error("no instance types satisfy requirements of amis {images:?}")]
    NoCompatibleInstanceTypes { images: Vec<String> },
    #[error("kubelet configuration for {instance_type}: {problem}")]
    Kubelet { instance_type: String, problem: String },
}

/// Computes the kubelet configuration of a node class for an instance type, with defaults filled in and expressions
/// evaluated.
pub trait KubeletConfigs: Send + Sync + 'static {
    fn kubelet(&self, class: &EC2NodeClass, instance_type: &InstanceType) -> Result<Kubelet, String>;
}

/// The grouping key: index of the AMI in the node class's status, kubelet configuration as text, number of EFA
/// interfaces, reservation.
type Key = (usize, String, i64, Option<Reservation>);

pub fn template_groups<'a>(
    class: &'a EC2NodeClass,
    candidates: &[Candidate<'a>],
    constraints: &LaunchConstraints,
    capacity_type: &str,
    kubelet_configs: &dyn KubeletConfigs,
) -> Result<Vec<TemplateGroup<'a>>, GroupingError> {
    let images = class.status.as_ref().map_or(&[][..], |status| &status.amis);
    if images.is_empty() {
        return Err(GroupingError::NoAmis);
    }
    let wants_efa = constraints.requests_resource(AWS_EFA);
    let mut groups: BTreeMap<Key, TemplateGroup<'a>> = BTreeMap::new();
    for candidate in candidates {
        let of_type = candidate.instance_type;
        let Some(image) = image_of_type(&of_type.requirements, images) else { continue };
        let image_index = images.iter().position(|listed| listed.id == image.id).unwrap_or(images.len());
        let kubelet = kubelet_configs
            .kubelet(class, of_type)
            .map_err(|problem| GroupingError::Kubelet { instance_type: of_type.name.to_string(), problem })?;
        let efa_count = if wants_efa { of_type.capacity.get(AWS_EFA) } else { 0 };
        for (reservation, candidate) in by_reservation(candidate, capacity_type) {
            let key = (image_index, format!("{kubelet:?}"), efa_count, reservation.clone());
            let group = groups.entry(key).or_insert_with(|| TemplateGroup {
                image,
                kubelet: kubelet.clone(),
                efa_count,
                reservation,
                candidates: Vec::new(),
            });
            group.candidates.push(candidate);
        }
    }
    if groups.is_empty() {
        let images = images.iter().map(|image| image.id.clone()).collect();
        return Err(GroupingError::NoCompatibleInstanceTypes { images });
    }
    Ok(groups.into_values().collect())
}

/// Splits a candidate's offerings by reservation. For a reserved launch, each template targets one reservation; for
/// other launches, there is a single part without a reservation.
fn by_reservation<'a>(
    candidate: &Candidate<'a>,
    capacity_type: &str,
) -> Vec<(Option<Reservation>, Candidate<'a>)> {
    let offerings = candidate
        .offerings
        .iter()
        .copied()
        .filter(|offering| offering.capacity_type().is_some_and(|offered| &**offered == capacity_type));
    let mut parts: BTreeMap<Option<Reservation>, Candidate<'a>> = BTreeMap::new();
    for offering in offerings {
        let reservation =
            Reservation::of(offering).filter(|_| capacity_type == labels::CAPACITY_TYPE_RESERVED);
        let part = parts
            .entry(reservation)
            .or_insert_with(|| Candidate { instance_type: candidate.instance_type, offerings: Vec::new() });
        part.offerings.push(offering);
    }
    parts.into_iter().collect()
}

#[cfg(test)]
mod tests;
