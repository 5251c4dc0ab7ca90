//! Writes the deletion cost of pods, one pod at a time. A failed write is retried, unless the pod is deleted or was
//! changed by another client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::Pod as RawPod;
use karpenter_api::labels;
use karpenter_runtime::object::{ObjectKey, is_conflict, is_not_found};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::cost_of;
use super::rank::Cost;
use crate::metrics::Metrics;
use crate::pods::key_of_pod;
use crate::stores::Stores;

/// The queue of deletion costs to write. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct CostQueue {
    wanted: Arc<Mutex<BTreeMap<ObjectKey, Wanted>>>,
    queue: Arc<OnceLock<Queue>>,
}

#[derive(Debug, Clone)]
struct Wanted {
    uid: String,
    cost: Cost,
}

impl CostQueue {
    /// Adds a deletion cost to write. It replaces a cost of the same pod that is still in the queue.
    pub fn add(&self, pod: &Pod, cost: Cost) {
        let key = key_of_pod(pod);
        self.wanted().insert(key.clone(), Wanted { uid: pod.uid.to_string(), cost });
        if let Some(queue) = self.queue.get() {
            queue.add(key);
        }
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controller that writes the costs.
pub struct CostWriter {
    pub stores: Stores,
    pub client: Client,
    pub metrics: Metrics,
    pub queue: CostQueue,
}

impl CostWriter {
    pub fn watch(&self, queue: &Queue) {
        // Setting the queue fails only for a second writer; the first one remains.
        let _ = self.queue.queue.set(queue.clone());
        for key in self.queue.wanted().keys() {
            queue.add(key.clone());
        }
    }

    async fn write(&self, pod: &Pod, cost: Cost) -> kube::Result<()> {
        let value = match cost {
            Cost::Is(cost) => Value::String(cost.to_string()),
            Cost::Absent | Cost::Unreadable => Value::Null,
        };
        let patch = json!({"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version(),
            "annotations": {labels::ANNOTATION_POD_DELETION_COST: value}}});
        let api = Api::<RawPod>::namespaced(self.client.clone(), pod.namespace());
        let written = api.patch(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.stores.pods.apply(written.into());
        Ok(())
    }
}

impl Reconcile for CostWriter {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(wanted) = self.queue.wanted().get(key).cloned() else { return Ok(Requeue::No) };
        let pod = self.stores.pods.get_key(key).filter(|pod| *pod.uid == *wanted.uid);
        let (result, outcome) = match pod {
            None => ("skipped_notfound", Ok(())),
            Some(pod) if cost_of(&pod) == wanted.cost => ("skipped_unchanged", Ok(())),
            Some(pod) => match self.write(&pod, wanted.cost).await {
                Ok(()) => ("updated", Ok(())),
                Err(error) if is_not_found(&error) => ("skipped_notfound", Ok(())),
                Err(error) if is_conflict(&error) => ("skipped_conflict", Ok(())),
                Err(error) => ("error", Err(error)),
            },
        };
        self.metrics.pod_deletion_cost_writes.with_label_values(&[result]).inc();
        outcome?;
        let mut all = self.queue.wanted();
        if all.get(key).is_some_and(|present| present.uid == wanted.uid && present.cost == wanted.cost) {
            all.remove(key);
        }
        Ok(Requeue::No)
    }
}
