//! Finds the parts that a pod shares with earlier pods of its workload.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{Pod as RawPod, PodSpec};
use rustc_hash::{FxHashMap, FxHasher};

use super::{Pod, SharedMeta, keep};

/// The number of different parts remembered per workload. Replicas differ during a rollout, and each pod of a
/// StatefulSet has its own labels.
const RECENT_PER_WORKLOAD_MAX: usize = 4;
/// Unused entries are removed after this many pods, or after half as many pods as there are workloads if that is more.
const CLEAN_UP_PODS_MIN: usize = 256;

/// The latest parts of each workload. They are kept while some pod references them.
#[derive(Debug, Default)]
pub struct PodInterner {
    by_workload: FxHashMap<u64, WorkloadParts>,
    /// The number of pods since the last clean-up.
    since: usize,
}

#[derive(Debug, Default)]
struct WorkloadParts {
    shared_meta: Recent<SharedMeta>,
    specs: Recent<PodSpec>,
}

impl PodInterner {
    /// Converts a pod. Parts that equal those of an earlier pod of its workload reference the parts of that pod.
    pub fn keep(&mut self, raw: RawPod) -> Pod {
        let split = keep::split(raw);
        let parts = self.by_workload.entry(workload(&split.shared_meta)).or_default();
        let pod = split
            .joined(|shared_meta| parts.shared_meta.shared(shared_meta), |spec| parts.specs.shared(spec));
        self.clean_up();
        pod
    }

    #[cfg(test)]
    pub(super) fn workloads(&self) -> usize {
        self.by_workload.len()
    }

    fn clean_up(&mut self) {
        self.since += 1;
        if self.since >= CLEAN_UP_PODS_MIN.max(self.by_workload.len() / 2) {
            self.by_workload.retain(|_, parts| parts.specs.is_kept());
            self.by_workload.shrink_to(2 * self.by_workload.len());
            self.since = 0;
        }
    }
}

/// Identifies a workload by a hash. A collision only costs a few comparisons.
fn workload(shared_meta: &SharedMeta) -> u64 {
    let owner = shared_meta.owners.iter().find(|owner| owner.controller == Some(true));
    let mut hasher = FxHasher::default();
    shared_meta.namespace.hash(&mut hasher);
    owner.map(|owner| owner.uid.as_str()).hash(&mut hasher);
    hasher.finish()
}

/// Recently used values, the most recent first.
#[derive(Debug)]
struct Recent<T>(Vec<Weak<T>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Recent<T> {
    fn shared(&mut self, new: T) -> Arc<T> {
        let mut known = self.0.iter().enumerate().filter_map(|(at, one)| Some((at, one.upgrade()?)));
        if let Some((at, found)) = known.find(|(_, one)| **one == new) {
            self.0[..=at].rotate_right(1);
            return found;
        }
        let new = Arc::new(new);
        self.0.retain(|one| one.strong_count() > 0);
        self.0.truncate(RECENT_PER_WORKLOAD_MAX - 1);
        self.0.insert(0, Arc::downgrade(&new));
        new
    }

    fn is_kept(&self) -> bool {
        self.0.iter().any(|one| one.strong_count() > 0)
    }
}
