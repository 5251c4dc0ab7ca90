//! Simulated kubelets for nodes that exist only as objects.
//!
//! A node with kwok's label or annotation gets a kubelet: it becomes Ready, sends heartbeats and renews its Lease; its
//! pods start, become ready, finish and stop. No container runs. Annotations ([`script`]) control the simulation: slow
//! boots, nodes that never become ready, become unhealthy or stop reporting, pods that finish or terminate slowly.
//!
//! A kubelet writes only the status and Lease of its node and the status of its pods, and deletes pods that have
//! stopped; the node lifecycle controller sets taints. Pods of a deleted node are not changed.

mod node;
mod pod;
pub mod script;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_runtime::object::{ObjectKey, is_already_exists, is_conflict, namespace_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::DeleteParams;
use serde_json::json;

use self::script::NodeScript;
use crate::controllers::context::Context;
use crate::controllers::pods::node_name;
use crate::stores::{BY_NODE, claims_of};

/// The namespace with the Leases of nodes.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The behaviour of kubelets without a script.
#[derive(Debug, Clone)]
pub struct Options {
    /// A node has a simulated kubelet if it has one of these annotations or labels.
    pub marks: Vec<(String, String)>,
    pub lease_duration: Duration,
    pub lease_renewal: Duration,
    /// The interval at which the node status is sent if it does not change.
    pub heartbeat: Duration,
    /// The duration from the creation of a node until its kubelet starts.
    pub boot: Duration,
    /// The duration from the binding of a pod until it runs.
    pub pod_start: Duration,
    /// The duration from the end of the preStop hook until a deleted pod has stopped.
    pub pod_stop: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let mark = |key: &str, value: &str| (key.to_string(), value.to_string());
        Self {
            marks: vec![mark("kwok.x-k8s.io/node", "fake"), mark("type", "kwok")],
            lease_duration: Duration::from_secs(40),
            lease_renewal: Duration::from_secs(10),
            heartbeat: Duration::from_secs(300),
            boot: Duration::ZERO,
            pod_start: Duration::ZERO,
            pod_stop: Duration::ZERO,
        }
    }
}

impl Options {
    /// Whether the node has a simulated kubelet.
    pub fn manages(&self, node: &Node) -> bool {
        let has = |map: &Option<BTreeMap<String, String>>, (key, value): &(String, String)| {
            map.as_ref().and_then(|map| map.get(key)) == Some(value)
        };
        self.marks
            .iter()
            .any(|mark| has(&node.metadata.annotations, mark) || has(&node.metadata.labels, mark))
    }
}

/// Simulates the status and the Leases of nodes.
pub struct NodeKubelets {
    pub context: Context,
    pub options: Arc<Options>,
}

impl NodeKubelets {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.nodes.observe(move |change: &Change<Node>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodeKubelets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(node) = stores.nodes.get_key(key).filter(|node| self.options.manages(node)) else {
            return Ok(Requeue::No);
        };
        let lease = stores.leases.get(LEASE_NAMESPACE, &key.name);
        let decision = node::decide(&node, lease.as_deref(), &self.options, self.context.clock.now());
        if let Some(patch) = decision.status {
            self.context.strategic_status(&stores.nodes, &*node, patch).await?;
        }
        if !decision.untaint.is_empty() {
            let spec = node.spec.clone().unwrap_or_default();
            let left: Vec<_> = spec
                .taints
                .unwrap_or_default()
                .into_iter()
                .filter(|taint| !decision.untaint.contains(&taint.key))
                .collect();
            self.context.merge_unchanged(&stores.nodes, &*node, json!({"spec": {"taints": left}})).await?;
        }
        if decision.renew {
            match &lease {
                Some(lease) => {
                    let patch = json!({"spec": {
                        "holderIdentity": key.name,
                        "renewTime": self.context.clock.micro_time(),
                        "leaseDurationSeconds": self.options.lease_duration.as_secs(),
                    }});
                    self.context.merge(&stores.leases, &**lease, patch).await?;
                }
                None => {
                    let lease = node::new_lease(&node, &self.options, self.context.clock.micro_time());
                    match self.context.create(&stores.leases, &lease).await {
                        Err(error) if is_already_exists(&error) => {}
                        outcome => drop(outcome?),
                    }
                }
            }
        }
        Ok(decision.again.into())
    }
}

/// Simulates the start, readiness and end of pods.
pub struct PodKubelets {
    pub context: Context,
    pub options: Arc<Options>,
    addresses: AtomicU32,
}

impl PodKubelets {
    pub fn new(context: Context, options: Arc<Options>) -> Self {
        Self { context, options, addresses: AtomicU32::new(1) }
    }

    pub fn watch(&self, queue: &Queue) {
        let stores = &self.context.stores;
        let to = queue.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            if !change.is_deleted() && node_name(change.object()).is_some() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        // A node that is created, or whose script changes, affects its pods.
        let (to, pods) = (queue.clone(), stores.pods.clone());
        stores.nodes.observe(move |change: &Change<Node>| {
            let Change::Applied { old, new } = change else { return };
            let before = old.as_ref().map(|node| (&node.metadata.uid, &node.metadata.annotations));
            if before != Some((&new.metadata.uid, &new.metadata.annotations)) {
                for pod in pods.by(BY_NODE, new.metadata.name.as_deref().unwrap_or_default()) {
                    to.add(ObjectKey::of(&pod.metadata));
                }
            }
        });
        // A change of a claim affects the pods that wait for it.
        let (to, pods) = (queue.clone(), stores.pods.clone());
        stores.claims.observe(move |change| {
            let key = ObjectKey::of(&change.object().metadata);
            for pod in pods.by(crate::stores::BY_CLAIM, &key.to_string()) {
                if node_name(&pod).is_some() {
                    to.add(ObjectKey::of(&pod.metadata));
                }
            }
        });
    }

    fn next_address(&self) -> String {
        let number = self.addresses.fetch_add(1, Ordering::Relaxed);
        // The range 100.64.0.0/10 has addresses for four million pods.
        format!("100.{}.{}.{}", 64 + (number >> 16 & 0x3f), number >> 8 & 0xff, number & 0xff)
    }

    fn claims_bound(&self, pod: &Pod) -> bool {
        claims_of(pod).iter().all(|claim| {
            let claim = self.context.stores.claims.get(namespace_of(pod), claim);
            claim.is_some_and(|claim| {
                claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
            })
        })
    }
}

impl Reconcile for PodKubelets {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(pod) = stores.pods.get_key(key) else { return Ok(Requeue::No) };
        let Some(node) = node_name(&pod).and_then(|name| stores.nodes.get("", name)) else {
            return Ok(Requeue::No);
        };
        if !self.options.manages(&node) {
            return Ok(Requeue::No);
        }
        let now = self.context.clock.now();
        let boots = NodeScript::of(&node, &self.options).boots_at(&node);
        let ready_to_run = || self.claims_bound(&pod);
        match pod::decide(&pod, &node, boots, ready_to_run, &self.options, now) {
            pod::Step::Nothing => Ok(Requeue::No),
            pod::Step::Wait(wait) => Ok(Requeue::After(wait)),
            pod::Step::Write(change) => {
                let patch = pod::status_patch(&pod, &node, &change, || self.next_address(), now);
                match self.context.strategic_status(&stores.pods, &*pod, patch).await {
                    // Another pod has the name now; the event of its creation enqueues it.
                    Err(error) if is_conflict(&error) => Ok(Requeue::No),
                    // The response updates the store, which enqueues the pod again.
                    outcome => outcome.map(|_| Requeue::No),
                }
            }
            pod::Step::Remove => {
                let gone = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                self.context.delete_with(&stores.pods, &*pod, gone).await?;
                Ok(Requeue::No)
            }
        }
    }
}
