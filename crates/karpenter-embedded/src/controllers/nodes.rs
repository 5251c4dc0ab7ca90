//! Node lifecycle controller and taint eviction: marks nodes whose kubelet stopped reporting, turns conditions into
//! taints, and deletes pods that do not tolerate a NoExecute taint.
//!
//! Unlike upstream, this controller does not limit the rate of tainting in a zone where many nodes fail.
//!
//! Upstream: pkg/controller/nodelifecycle/node_lifecycle_controller.go, pkg/controller/tainteviction/taint_eviction.go

mod decide;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::taints::taints_of;
use karpenter_runtime::worker::{Reconcile, Requeue};
use serde_json::json;

use super::context::Context;
use super::events::{self, ObjectEvent};
use super::pods;
use crate::kubelet::LEASE_NAMESPACE;
use crate::stores::BY_NODE;

/// Grace periods for kubelets that do not report.
#[derive(Debug, Clone)]
pub struct Options {
    /// The grace period since the last heartbeat.
    pub monitor_grace: Duration,
    /// The grace period since the creation of a node that never sent a heartbeat.
    pub startup_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { monitor_grace: Duration::from_secs(50), startup_grace: Duration::from_secs(60) }
    }
}

pub struct NodeLifecycle {
    pub context: Context,
    pub options: Options,
}

impl NodeLifecycle {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.nodes.observe(move |change: &Change<Node>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodeLifecycle {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let lease = stores.leases.get(LEASE_NAMESPACE, &key.name);
        let now = self.context.clock.now();
        let liveness = decide::liveness(&node, lease.as_deref(), &self.options, now);
        let node = match liveness.conditions {
            Some(conditions) => {
                let patch = json!({"status": {"conditions": conditions}});
                match self.context.strategic_status(&stores.nodes, &*node, patch).await? {
                    Some(node) => {
                        let message = format!("Node {} status is now: NodeNotReady", key.name);
                        let event = ObjectEvent::normal("NodeNotReady", message, "node-controller");
                        events::record(&self.context, &node, event).await;
                        self.mark_pods_unready(&key.name).await?;
                        Arc::new(node)
                    }
                    None => return Ok(Requeue::No),
                }
            }
            None => node,
        };
        if let Some(taints) = decide::taints(&node, now) {
            self.context.merge_unchanged(&stores.nodes, &*node, json!({"spec": {"taints": taints}})).await?;
        }
        Ok(liveness.again.into())
    }
}

impl NodeLifecycle {
    /// The state of pods on an unreachable node is unknown, so they are set to not ready.
    async fn mark_pods_unready(&self, node: &str) -> kube::Result<()> {
        let stores = &self.context.stores;
        for pod in stores.pods.by(BY_NODE, node) {
            if !pods::is_ready(&pod) {
                continue;
            }
            let patch = json!({"status": {"conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": self.context.clock.time()}]}});
            self.context.strategic_status(&stores.pods, &*pod, patch).await?;
        }
        Ok(())
    }
}

/// Deletes pods from nodes with NoExecute taints.
pub struct TaintEviction {
    pub context: Context,
    /// When a taint without `timeAdded` was first seen, by node and key.
    first_seen: Arc<Mutex<BTreeMap<(String, String), Timestamp>>>,
}

impl TaintEviction {
    pub fn new(context: Context) -> Self {
        Self { context, first_seen: Arc::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            let pod = change.object();
            let tainted = |node| nodes.get("", node).is_some_and(|node| decide::has_no_execute(&node));
            if !change.is_deleted() && pods::node_name(pod).is_some_and(tainted) {
                to.add(ObjectKey::of(&pod.metadata));
            }
        });
        let (to, pods) = (queue.clone(), stores.pods.clone());
        let first_seen = self.first_seen.clone();
        stores.nodes.observe(move |change: &Change<Node>| {
            // The time is dropped when the taint is removed, so that a taint that is added again gets a new time.
            let name = name_of(&**change.object());
            let has = |key: &str| {
                !change.is_deleted() && taints_of(change.object()).iter().any(|taint| taint.key == key)
            };
            let mut seen = first_seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.retain(|(node, key), _| node != name || has(key));
            drop(seen);
            let Change::Applied { old, new } = change else { return };
            let before = old.as_ref().map(|old| taints_of(old)).unwrap_or_default();
            if before != taints_of(new) && decide::has_no_execute(new) {
                for pod in pods.by(BY_NODE, name_of(&**new)) {
                    to.add(ObjectKey::of(&pod.metadata));
                }
            }
        });
    }
}

impl Reconcile for TaintEviction {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(pod) = stores.pods.get_key(key).filter(|pod| !is_deleting(&**pod)) else {
            return Ok(Requeue::No);
        };
        let Some(node) = pods::node_name(&pod).and_then(|name| stores.nodes.get("", name)) else {
            return Ok(Requeue::No);
        };
        let now = self.context.clock.now();
        let since = |key: &str| {
            let mut seen = self.first_seen.lock().unwrap_or_else(PoisonError::into_inner);
            *seen.entry((name_of(&*node).to_string(), key.to_string())).or_insert(now)
        };
        match decide::eviction(&pod, taints_of(&node), since, now) {
            decide::Eviction::Never => Ok(Requeue::No),
            decide::Eviction::In(wait) if !wait.is_zero() => Ok(Requeue::After(wait)),
            decide::Eviction::In(_) => {
                let message = format!("Marking for deletion Pod {key}");
                let event = ObjectEvent::normal("TaintManagerEviction", message, "taint-eviction-controller");
                events::record(&self.context, &*pod, event).await;
                let patch = json!({"status": {"conditions": [{
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                    "message": "Taint manager: deleting due to NoExecute taint",
                    "lastTransitionTime": self.context.clock.time(),
                }]}});
                self.context.strategic_status(&stores.pods, &*pod, patch).await?;
                self.context.delete(&stores.pods, &*pod).await?;
                Ok(Requeue::No)
            }
        }
    }
}

#[cfg(test)]
mod tests;
