//! Finds what a pod has in common with the pods before it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{Pod as RawPod, PodSpec};
use rustc_hash::{FxHashMap, FxHasher};

use super::{Kin, Pod, trim};

/// How many different siblings of one workload are remembered. Replicas differ while a workload is rolled out, and each
/// pod of a StatefulSet has labels of its own.
const REMEMBERED: usize = 4;
/// After this many pods, and half as many as there are workloads, those that nobody keeps are cleared out.
const FEW: usize = 256;

/// Remembers the latest pods of each workload, as long as somebody keeps them.
#[derive(Debug, Default)]
pub struct Family {
    by_workload: FxHashMap<u64, Siblings>,
    /// Pods since clearing out last.
    since: usize,
}

#[derive(Debug, Default)]
struct Siblings {
    kin: Recent<Kin>,
    specs: Recent<PodSpec>,
}

impl Family {
    /// The pod, with whatever it shares pointing at what its siblings have.
    pub fn keep(&mut self, raw: RawPod) -> Pod {
        let split = trim::split(raw);
        let siblings = self.by_workload.entry(workload(&split.kin)).or_default();
        let pod = split.joined(|kin| siblings.kin.shared(kin), |spec| siblings.specs.shared(spec));
        self.clear_out();
        pod
    }

    #[cfg(test)]
    pub(super) fn workloads(&self) -> usize {
        self.by_workload.len()
    }

    fn clear_out(&mut self) {
        self.since += 1;
        if self.since >= FEW.max(self.by_workload.len() / 2) {
            self.by_workload.retain(|_, siblings| siblings.specs.is_kept());
            self.by_workload.shrink_to(2 * self.by_workload.len());
            self.since = 0;
        }
    }
}

/// Tells workloads apart; that two should meet costs some comparing.
fn workload(kin: &Kin) -> u64 {
    let owner = kin.owners.iter().find(|owner| owner.controller == Some(true));
    let mut hasher = FxHasher::default();
    kin.namespace.hash(&mut hasher);
    owner.map(|owner| owner.uid.as_str()).hash(&mut hasher);
    hasher.finish()
}

/// The latest first.
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
        self.0.truncate(REMEMBERED - 1);
        self.0.insert(0, Arc::downgrade(&new));
        new
    }

    fn is_kept(&self) -> bool {
        self.0.iter().any(|one| one.strong_count() > 0)
    }
}
