//! Which types can share a launch template: those that boot one image with one kubelet configuration, the same
//! interfaces and the same reservation.

use std::collections::BTreeMap;

use karpenter_api::labels;
use karpenter_api::types::{AmiStatus, EC2NodeClass};
use karpenter_catalog::aws::AWS_EFA;
use karpenter_model::instance_type::InstanceType;
use karpenter_userdata::Kubelet;

use super::filters::{Candidate, Reservation};
use super::wanted::Wanted;
use crate::node_class::image_of_type;

/// One launch template to be, and the types that it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    pub image: &'a AmiStatus,
    pub kubelet: Kubelet,
    pub efa_count: i64,
    pub reservation: Option<Reservation>,
    /// In the order they came.
    pub candidates: Vec<Candidate<'a>>,
}

/// Why there are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGroups {
    #[error("no amis exist given constraints")]
    NoImages,
    #[error("no instance types satisfy requirements of amis {images:?}")]
    NoFit { images: Vec<String> },
    #[error("kubelet configuration for {instance_type}: {problem}")]
    Kubelet { instance_type: String, problem: String },
}

/// The kubelet's configuration of a class for machines of one type: defaults filled in, expressions evaluated.
pub trait KubeletOf: Send + Sync + 'static {
    fn kubelet(&self, class: &EC2NodeClass, instance_type: &InstanceType) -> Result<Kubelet, String>;
}

/// Image, configuration as text, interfaces, reservation: what makes templates differ.
type Key = (usize, String, i64, Option<Reservation>);

pub fn groups<'a>(
    class: &'a EC2NodeClass,
    candidates: &[Candidate<'a>],
    wanted: &Wanted,
    capacity_type: &str,
    kubelet_of: &dyn KubeletOf,
) -> Result<Vec<Group<'a>>, NoGroups> {
    let images = class.status.as_ref().map_or(&[][..], |status| &status.amis);
    if images.is_empty() {
        return Err(NoGroups::NoImages);
    }
    let wants_efa = wanted.requests_resource(AWS_EFA);
    let mut groups: BTreeMap<Key, Group<'a>> = BTreeMap::new();
    for candidate in candidates {
        let of_type = candidate.instance_type;
        let Some(image) = image_of_type(&of_type.requirements, images) else { continue };
        let place = images.iter().position(|listed| listed.id == image.id).unwrap_or(images.len());
        let kubelet = kubelet_of
            .kubelet(class, of_type)
            .map_err(|problem| NoGroups::Kubelet { instance_type: of_type.name.to_string(), problem })?;
        let efa_count = if wants_efa { of_type.capacity.get(AWS_EFA) } else { 0 };
        for (reservation, candidate) in by_reservation(candidate, capacity_type) {
            let key = (place, format!("{kubelet:?}"), efa_count, reservation.clone());
            let group = groups.entry(key).or_insert_with(|| Group {
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
        return Err(NoGroups::NoFit { images });
    }
    Ok(groups.into_values().collect())
}

/// A reserved launch aims at one reservation per template; any other at none.
fn by_reservation<'a>(
    candidate: &Candidate<'a>,
    capacity_type: &str,
) -> Vec<(Option<Reservation>, Candidate<'a>)> {
    let wanted = candidate
        .offerings
        .iter()
        .copied()
        .filter(|offering| offering.capacity_type().is_some_and(|offered| &**offered == capacity_type));
    let mut parts: BTreeMap<Option<Reservation>, Candidate<'a>> = BTreeMap::new();
    for offering in wanted {
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
