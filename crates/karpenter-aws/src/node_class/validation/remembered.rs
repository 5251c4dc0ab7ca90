//! What try-outs showed, for as long as nothing about the class changes.

use std::time::Duration;

use karpenter_api::hash::text_hash;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, EC2NodeClassStatus};
use karpenter_cluster::clock::Clock;
use serde_json::json;

use super::Outcome;
use crate::api::Tags;
use crate::cache::Cache;

const REMEMBERED_FOR: Duration = Duration::from_secs(30 * 60);

/// Name of the class, and a digest of everything that a launch is made of.
type Key = (String, u64);

pub(crate) struct Remembered {
    outcomes: Cache<Key, Outcome>,
}

impl Remembered {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { outcomes: Cache::new(clock, REMEMBERED_FOR) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Outcome> {
        self.outcomes.get(key)
    }

    pub(crate) fn insert(&self, key: Key, outcome: Outcome) {
        self.outcomes.insert(key, outcome);
    }

    /// The class is gone.
    pub(crate) fn forget(&self, class_name: &str) {
        self.outcomes.retain(|(name, _), _| name != class_name);
    }
}

/// Lists of the status count as sets: their order follows from free addresses, which matter to no launch's form.
pub(crate) fn key(class: &EC2NodeClass, status: &EC2NodeClassStatus, tags: &Tags) -> Key {
    let mut subnets: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let mut groups: Vec<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    let mut images = status.amis.clone();
    subnets.sort_unstable();
    groups.sort_unstable();
    images.sort_by(|one, other| one.id.cmp(&other.id));
    let mut annotations = class.metadata.annotations.clone().unwrap_or_default();
    // These say no more than the spec, and come a moment later.
    annotations.remove(labels::AWS_ANNOTATION_NODE_CLASS_HASH);
    annotations.remove(labels::AWS_ANNOTATION_NODE_CLASS_HASH_VERSION);
    let everything = json!({
        "subnets": subnets,
        "securityGroups": groups,
        "amis": images,
        "instanceProfile": status.instance_profile,
        "spec": class.spec,
        "annotations": annotations,
        "tags": tags,
    });
    (class.metadata.name.clone().unwrap_or_default(), text_hash(&everything.to_string()))
}
