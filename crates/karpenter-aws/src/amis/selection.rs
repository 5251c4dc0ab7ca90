//! Selects among the AMIs that EC2 returned the newest one for each set of requirements, in the order in which the
//! status lists them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use karpenter_api::types::{AmiStatus, Requirement as WrittenRequirement};
use karpenter_model::labels::ARCH;
use karpenter_model::requirements::{Requirement, Requirements};

use crate::api::ec2::Image;

/// A selected AMI of a node class, with the requirements that an instance type must meet to boot it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ami {
    pub id: String,
    pub name: String,
    pub created_at: Option<Timestamp>,
    /// Whether the AMI's owner has deprecated it. A deprecated AMI can still be launched.
    pub is_deprecated: bool,
    pub requirements: Requirements,
}

impl Ami {
    /// The sort key of AMIs: those that are not deprecated first, then newer ones, then by name. EC2's creation dates
    /// have a precision of seconds.
    fn rank(&self) -> (bool, i64, &str) {
        (!self.is_deprecated, seconds(self.created_at), &self.name)
    }
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(i64::MIN, Timestamp::as_second)
}

/// An AMI that EC2 returned, before selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub image: Image,
    /// Requirements beyond those that follow from `DescribeImages`; each set gives a separate AMI in the result. If the
    /// list is empty, there are no further requirements.
    pub known: Vec<Requirements>,
}

/// The best AMI for each set of requirements, newest first. AMIs for other architectures are skipped.
pub fn select(candidates: &[Candidate], now: Timestamp) -> Vec<Ami> {
    let mut best: BTreeMap<Requirements, Ami> = BTreeMap::new();
    for Candidate { image, known } in candidates {
        let Some(architecture) = architecture(&image.architecture) else { continue };
        let bare = [Requirements::new()];
        let sets = if known.is_empty() { &bare[..] } else { known };
        for set in sets {
            let mut requirements = set.clone();
            requirements.add(Requirement::in_values(ARCH, [architecture]));
            let ami = Ami {
                id: image.id.clone(),
                name: image.name.clone(),
                created_at: image.created_at,
                is_deprecated: image.deprecated_at.is_some_and(|time| time.as_second() <= now.as_second()),
                requirements: requirements.clone(),
            };
            let is_better = best.get(&requirements).is_none_or(|present| ami.rank() > present.rank());
            if is_better {
                best.insert(requirements, ami);
            }
        }
    }
    let mut amis: Vec<Ami> = best.into_values().collect();
    // AMIs that were created in the same second are ordered by id. Several requirement sets of one AMI keep their
    // order.
    amis.sort_by(|left, right| {
        let key = |ami: &Ami| Reverse(seconds(ami.created_at));
        key(left).cmp(&key(right)).then_with(|| left.id.cmp(&right.id))
    });
    amis
}

fn architecture(of_ec2: &str) -> Option<&'static str> {
    match of_ec2 {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

/// The AMIs as entries of the node class's status; requirement keys are sorted by length.
pub fn statuses(amis: &[Ami]) -> Vec<AmiStatus> {
    amis.iter().map(status).collect()
}

fn status(ami: &Ami) -> AmiStatus {
    let mut requirements: Vec<WrittenRequirement> = ami
        .requirements
        .iter()
        .map(|requirement| WrittenRequirement {
            key: requirement.key.to_string(),
            operator: requirement.operator().as_str().to_owned(),
            values: requirement.values.iter().map(ToString::to_string).collect(),
            min_values: None,
        })
        .collect();
    requirements.sort_by(|left, right| (left.key.len(), &left.key).cmp(&(right.key.len(), &right.key)));
    AmiStatus {
        id: ami.id.clone(),
        deprecated: ami.is_deprecated.then_some(true),
        name: Some(ami.name.clone()).filter(|name| !name.is_empty()),
        requirements,
    }
}
