//! A cache of the outcomes of dry runs. The key contains everything that the launch depends on.

use std::time::Duration;

use karpenter_api::hash::text_hash;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, EC2NodeClassStatus};
use karpenter_runtime::clock::Clock;
use serde_json::json;

use super::Outcome;
use crate::api::Tags;
use crate::cache::Cache;

/// How long the outcome of a dry run is cached.
const OUTCOME_TTL: Duration = Duration::from_secs(30 * 60);

/// The name of the node class, and a digest of everything that a launch depends on.
type Key = (String, u64);

pub(crate) struct ValidationCache {
    outcomes: Cache<Key, Outcome>,
}

impl ValidationCache {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { outcomes: Cache::new(clock, OUTCOME_TTL) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Outcome> {
        self.outcomes.get(key)
    }

    pub(crate) fn insert(&self, key: Key, outcome: Outcome) {
        self.outcomes.insert(key, outcome);
    }

    /// Removes the outcomes of a deleted node class.
    pub(crate) fn forget(&self, class_name: &str) {
        self.outcomes.retain(|(name, _), _| name != class_name);
    }
}

/// The cache key of a node class. Lists of the status are sorted first, because their order depends on the number of
/// free IP addresses, which does not affect the outcome.
pub(crate) fn key(class: &EC2NodeClass, status: &EC2NodeClassStatus, tags: &Tags) -> Key {
    let mut subnets: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let mut groups: Vec<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    let mut images = status.amis.clone();
    subnets.sort_unstable();
    groups.sort_unstable();
    images.sort_by(|one, other| one.id.cmp(&other.id));
    let mut annotations = class.metadata.annotations.clone().unwrap_or_default();
    // These annotations are derived from the spec. They are written shortly after the spec changes, so they are not
    // part of the key.
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
