//! Records events of the cluster by watching the stores that Karpenter reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_controllers::pods::node_name;
use karpenter_controllers::stores::Stores;
use karpenter_kwok::PRICE_LABEL;
use karpenter_runtime::clock::{Clock, since};
use karpenter_runtime::object::{label, name_of};
use karpenter_runtime::store::Change;
use karpenter_state::pod::Pod;

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClusterChange {
    ClaimCreated { claim: String },
    ClaimLaunched { claim: String, machine: Machine },
    ClaimDeleted { claim: String },
    NodeAppeared { node: String, machine: Machine },
    NodeReady { node: String, machine: Machine },
    NodeNotReady { node: String },
    NodeDeleted { node: String, machine: Machine },
    PodBound { pod: String, node: String },
    PodRunning { pod: String, waited: Duration },
    PodDeleted { pod: String },
}

/// The launched instance.
#[derive(Debug, Clone, PartialEq, PartialOrd, Default)]
pub(super) struct Machine {
    pub(super) instance_type: String,
    pub(super) capacity_type: String,
    pub(super) zone: String,
    pub(super) price_per_hour: f64,
}

impl Machine {
    pub(super) fn of<K: kube::Resource>(object: &K) -> Self {
        let get = |key| label(object, key).unwrap_or_default().to_owned();
        Self {
            instance_type: get(labels::INSTANCE_TYPE),
            capacity_type: get(labels::CAPACITY_TYPE),
            zone: get(labels::ZONE),
            price_per_hour: label(object, PRICE_LABEL).and_then(|price| price.parse().ok()).unwrap_or(0.0),
        }
    }
}

/// Clones share the records.
#[derive(Clone, Default)]
pub(super) struct Chronicle {
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    changes: Vec<ClusterChange>,
    /// When each existing pod was first seen.
    pods_since: BTreeMap<String, Timestamp>,
    running: BTreeSet<String>,
    ready_nodes: BTreeSet<String>,
}

impl Chronicle {
    pub(super) fn start(stores: &Stores, clock: Clock) -> Self {
        let chronicle = Self::default();
        let notes = chronicle.clone();
        stores.node_claims.observe(move |change| notes.lock().claim(change));
        let notes = chronicle.clone();
        stores.nodes.observe(move |change| notes.lock().node(change));
        let notes = chronicle.clone();
        stores.pods.observe(move |change| notes.lock().pod(change, clock.now()));
        chronicle
    }

    /// The changes since the last call, in order.
    pub(super) fn take(&self) -> Vec<ClusterChange> {
        std::mem::take(&mut self.lock().changes)
    }

    pub(super) fn running(&self) -> usize {
        self.lock().running.len()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    fn claim(&mut self, change: &Change<NodeClaim>) {
        let name = name_of(&**change.object()).to_owned();
        let Change::Applied { old, new } = change else { return };
        let is_launched = |claim: &NodeClaim| {
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|condition| condition.type_ == "Launched" && condition.status == ConditionStatus::True)
        };
        let is_deleted = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_some();
        let before = |is: &dyn Fn(&NodeClaim) -> bool| old.as_ref().is_some_and(|old| is(old));
        if old.is_none() {
            self.changes.push(ClusterChange::ClaimCreated { claim: name.clone() });
        }
        if is_launched(new) && !before(&is_launched) {
            self.changes
                .push(ClusterChange::ClaimLaunched { claim: name.clone(), machine: Machine::of(&**new) });
        }
        if is_deleted(new) && !before(&is_deleted) {
            self.changes.push(ClusterChange::ClaimDeleted { claim: name });
        }
    }

    fn node(&mut self, change: &Change<Node>) {
        let object = change.object();
        let node = name_of(&**object).to_owned();
        let machine = Machine::of(&**object);
        match change {
            Change::Deleted { .. } => {
                self.ready_nodes.remove(&node);
                self.changes.push(ClusterChange::NodeDeleted { node, machine });
            }
            Change::Applied { old, new } => {
                if old.is_none() {
                    self.changes
                        .push(ClusterChange::NodeAppeared { node: node.clone(), machine: machine.clone() });
                }
                match is_ready(new) {
                    true if self.ready_nodes.insert(node.clone()) => {
                        self.changes.push(ClusterChange::NodeReady { node, machine });
                    }
                    false if self.ready_nodes.remove(&node) => {
                        self.changes.push(ClusterChange::NodeNotReady { node });
                    }
                    _ => {}
                }
            }
        }
    }

    fn pod(&mut self, change: &Change<Pod>, now: Timestamp) {
        let object = change.object();
        let (pod, uid) = (object.name.to_string(), object.uid.to_string());
        let Change::Applied { old, new } = change else {
            self.pods_since.remove(&uid);
            self.running.remove(&uid);
            self.changes.push(ClusterChange::PodDeleted { pod });
            return;
        };
        let first_seen = *self.pods_since.entry(uid.clone()).or_insert(now);
        if let (Some(node), None) = (node_name(new), old.as_ref().and_then(|old| node_name(old))) {
            self.changes.push(ClusterChange::PodBound { pod: pod.clone(), node: node.to_owned() });
        }
        if !is_running(new) {
            self.running.remove(&uid);
        } else if self.running.insert(uid) {
            self.changes.push(ClusterChange::PodRunning { pod, waited: since(now, first_seen) });
        }
    }
}

/// Ready and not terminating.
fn is_running(pod: &Pod) -> bool {
    pod.status.ready.is_some_and(|ready| ready.is_true) && pod.deleted_at.is_none()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}
