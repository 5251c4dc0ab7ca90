//! Pod garbage collector: deletes pods of nodes that are gone, pods that were deleted before they had a node, and
//! finished pods beyond a limit.
//!
//! Upstream: pkg/controller/podgc/gc_controller.go

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::context::Context;
use super::pods;
use crate::stores::BY_NODE;

/// A node must be missing for this long before its pods are deleted.
const QUARANTINE: Duration = Duration::from_secs(40);
/// If more finished pods exist than this, the oldest are deleted.
const FINISHED_MAX: usize = 12_500;
/// How often finished pods are counted.
const FINISHED_CHECK: Duration = Duration::from_secs(20);

/// The pod garbage collector. The keys of its queue are node names; the empty name stands for pods without a node.
pub struct PodCollector {
    pub context: Context,
    missing_since: Mutex<BTreeMap<String, jiff::Timestamp>>,
}

impl PodCollector {
    pub fn new(context: Context) -> Self {
        Self { context, missing_since: Mutex::new(BTreeMap::new()) }
    }

    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        queue.add(ObjectKey::new("", ""));
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            let Change::Applied { new: pod, .. } = change else { return };
            match pods::node_name(pod) {
                Some(node) if nodes.get("", node).is_none() => to.add(ObjectKey::new("", node)),
                None if is_deleting(&**pod) => to.add(ObjectKey::new("", "")),
                _ => {}
            }
        });
        let to = queue.clone();
        stores.nodes.observe(move |change: &Change<Node>| {
            if change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }

    async fn delete_pod(&self, pod: &Pod, condition: Option<Value>) -> kube::Result<()> {
        let stores = &self.context.stores;
        if !pods::is_finished(pod) {
            let mut status = json!({"phase": "Failed"});
            if let Some(condition) = condition {
                status["conditions"] = json!([condition]);
            }
            self.context.strategic_status(&stores.pods, pod, json!({ "status": status })).await?;
        }
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.context.delete_with(&stores.pods, pod, at_once).await
    }

    async fn delete_unbound(&self) -> kube::Result<Requeue> {
        let all = self.context.stores.pods.list();
        for pod in all.iter().filter(|pod| is_deleting(&***pod) && pods::node_name(pod).is_none()) {
            self.delete_pod(pod, None).await?;
        }
        for pod in excess(&all, FINISHED_MAX) {
            self.delete_pod(&pod, None).await?;
        }
        Ok(Requeue::After(FINISHED_CHECK))
    }
}

/// The oldest finished pods that exceed the number `most`.
fn excess(pods: &[Arc<Pod>], most: usize) -> Vec<Arc<Pod>> {
    let mut finished: Vec<Arc<Pod>> =
        pods.iter().filter(|pod| pods::is_finished(pod) && !is_deleting(&***pod)).cloned().collect();
    let count = finished.len().saturating_sub(most);
    if count == 0 {
        return Vec::new();
    }
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    finished.sort_by(|one, two| {
        created(one).cmp(&created(two)).then_with(|| name_of(&**one).cmp(name_of(&**two)))
    });
    finished.truncate(count);
    finished
}

impl Reconcile for PodCollector {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        if key.name.is_empty() {
            return self.delete_unbound().await;
        }
        let stores = &self.context.stores;
        let forget = || self.missing_since.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
        let stranded = stores.pods.by(BY_NODE, &key.name);
        if stranded.is_empty() || stores.nodes.get("", &key.name).is_some() {
            forget();
            return Ok(Requeue::No);
        }
        let now = self.context.clock.now();
        let since = {
            let mut missing = self.missing_since.lock().unwrap_or_else(PoisonError::into_inner);
            *missing.entry(key.name.clone()).or_insert(now)
        };
        let missing_for = karpenter_runtime::clock::since(now, since);
        if missing_for < QUARANTINE {
            return Ok(Requeue::After(QUARANTINE - missing_for));
        }
        // The store may be outdated, so the node is read from the API server.
        if Api::<Node>::all(self.context.client.clone()).get_opt(&key.name).await?.is_some() {
            forget();
            return Ok(Requeue::No);
        }
        for pod in stranded {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": self.context.clock.time(),
            });
            self.delete_pod(&pod, Some(condition)).await?;
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::fixtures::pod;

    #[test]
    fn oldest_finished_pods_beyond_limit_are_deleted() {
        let done = |name: &str, hour: u32| {
            pod(
                name,
                json!({"status": {"phase": "Succeeded"},
                "metadata": {"creationTimestamp": format!("2026-01-01T{hour:02}:00:00Z")}}),
            )
        };
        let pods = [done("b", 2), done("a", 3), done("c", 1), pod("running", json!({}))];
        let gone: Vec<String> = excess(&pods, 1).iter().map(|pod| name_of(&**pod).to_string()).collect();
        assert_eq!(gone, ["c", "b"]);
        assert!(excess(&pods, 3).is_empty());
    }
}
