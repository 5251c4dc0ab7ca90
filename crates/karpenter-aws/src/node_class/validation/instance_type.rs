//! Chooses the instance type, AMI and tenancy of the dry run.
//!
//! The instance type is one that a NodePool of the node class allows. If possible, its AMI has no accelerator drivers,
//! because AMIs with drivers may need larger volumes than the node class has. For Windows, or if no NodePool matches,
//! fallback types are used.

use std::sync::Arc;

use karpenter_api::labels;
use karpenter_api::types::{AmiStatus, EC2NodeClass, NodePool};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::requirements::{Requirement, Requirements};

use crate::node_class::image_of_type::{image_of_type, requirements};

/// The instance types used for Windows and for node classes without a matching NodePool, in order of preference.
const FALLBACKS: [&str; 2] = ["m5.large", "m6g.large"];
pub const TENANCY_DEFAULT: &str = "default";
pub const TENANCY_DEDICATED: &str = "dedicated";

/// Instance type and AMI of the dry run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice<'a> {
    pub instance_type: &'a InstanceType,
    pub image_id: &'a str,
}

/// The instance type and AMI for the dry run; `None` if no instance type is compatible with any AMI of the node class.
pub fn choose<'a>(
    types: &'a [InstanceType],
    pools: &[Arc<NodePool>],
    class: &EC2NodeClass,
    images: &'a [AmiStatus],
) -> Option<Choice<'a>> {
    let wanted: Vec<Requirements> = pools.iter().map(|pool| pool_requirements(pool)).collect();
    let fits = |candidate: &InstanceType| wanted.iter().any(|pool| candidate.requirements.intersects(pool));
    let is_windows = class.spec.resolved_ami_family().starts_with("Windows");
    let mut candidates: Vec<&InstanceType> =
        if is_windows { Vec::new() } else { types.iter().filter(|one| fits(one)).collect() };
    if candidates.is_empty() {
        candidates = types.iter().filter(|one| FALLBACKS.contains(&&*one.name)).collect();
        candidates.sort_by_key(|one| FALLBACKS.iter().position(|name| *name == &*one.name));
    }
    if candidates.is_empty() {
        candidates = types.iter().collect();
    }
    let choices: Vec<Choice> = candidates
        .into_iter()
        .filter_map(|instance_type| {
            let image = image_of_type(&instance_type.requirements, images)?;
            Some(Choice { instance_type, image_id: &image.id })
        })
        .collect();
    let plain = plain_requirements();
    let mut plain_images = images
        .iter()
        .filter(|image| requirements(&image.requirements).compatible(&plain, &Default::default()).is_ok());
    let of_image = |id: &str| choices.iter().find(|choice| choice.image_id == id).copied();
    plain_images.find_map(|image| of_image(&image.id)).or_else(|| choices.first().copied())
}

/// The tenancy for the dry run: `dedicated` if a NodePool of the node class allows it, else `default`.
pub fn tenancy(pools: &[Arc<NodePool>]) -> &'static str {
    let may_be_dedicated = pools.iter().any(|pool| {
        let wanted = requirements(&pool.spec.template.spec.requirements);
        wanted.get(labels::AWS_INSTANCE_TENANCY).is_some_and(|one| one.has(TENANCY_DEDICATED))
    });
    if may_be_dedicated { TENANCY_DEDICATED } else { TENANCY_DEFAULT }
}

fn pool_requirements(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut wanted = requirements(&template.spec.requirements);
    let labels = template.metadata.iter().filter_map(|metadata| metadata.labels.as_ref()).flatten();
    for (key, value) in labels {
        wanted.add(Requirement::in_values(key.as_str(), [value.as_str()]));
    }
    wanted
}

/// The requirements that an AMI without accelerator drivers has.
fn plain_requirements() -> Requirements {
    [labels::AWS_INSTANCE_GPU_COUNT, labels::AWS_INSTANCE_ACCELERATOR_COUNT]
        .into_iter()
        .map(Requirement::does_not_exist)
        .collect()
}
