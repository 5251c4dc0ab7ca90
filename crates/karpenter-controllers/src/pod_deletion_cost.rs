//! Sets the annotation `controller.kubernetes.io/pod-deletion-cost` on pods, so that a ReplicaSet that scales in first
//! removes pods from nodes that disruption would delete next. Scaling in thus empties these nodes.
//!
//! Nodes are ranked by an estimate of the order in which disruption will select them. Only pods of ReplicaSets get the
//! annotation, and only with the feature gate `PodDeletionCostManagement`.
//!
//! Upstream: pkg/controllers/pod/deletioncost.

pub mod rank;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_model::problem::Mode;
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_scheduling::validated::{Cause, Fault};
use karpenter_state::pod::Pod;
use karpenter_state::{AssembledCluster, assemble_disruption};

use self::rank::{Cost, Node as Ranked, planned_writes, rank};
pub use self::writer::{CostQueue, CostWriter};
use crate::compute::catch;
use crate::inputs::Writes;
use crate::planner_faults::report;
use crate::planner_input;
use crate::planner_input::PlannerReader;
use crate::stores::BY_NODE;

const EVERY: Duration = Duration::from_secs(60);
const UNTIL_SYNCED: Duration = Duration::from_secs(1);

pub struct PodDeletionCosts {
    reader: PlannerReader,
    reports: Writes,
    writes: CostQueue,
    /// The revision of the stores at the last pass, to skip passes without a change.
    seen: Mutex<Option<u64>>,
}

impl PodDeletionCosts {
    pub fn new(reader: PlannerReader, reports: Writes, writes: CostQueue) -> Self {
        Self { reader, reports, writes, seen: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "deletion-costs"));
    }

    /// All managed nodes, each with the deletion costs of its pods that belong to ReplicaSets.
    fn nodes(&self, assembled: &AssembledCluster) -> Vec<Ranked> {
        let stores = &self.reader.reads.stores;
        let state_nodes = assembled.cluster.state_nodes.iter().enumerate();
        let nodes = state_nodes.filter_map(|(state_node, seen)| {
            let node = stores.nodes.get("", seen.node.as_deref()?)?;
            let pods = stores.pods.by(BY_NODE, name_of(&*node));
            Some(Ranked {
                state_node,
                is_terminating: seen.is_marked_for_deletion || is_terminating(&node),
                is_pinned: pods.iter().any(|pod| is_pinning(pod)),
                costs: pods
                    .iter()
                    .filter(|pod| is_controlled_by(pod, &["ReplicaSet"]))
                    .map(cost_of)
                    .collect(),
            })
        });
        nodes.collect()
    }
}

impl Reconcile for PodDeletionCosts {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let reads = &self.reader.reads;
        if !reads.stores.is_synced() {
            return Ok(Requeue::After(UNTIL_SYNCED));
        }
        let claims = reads.stores.node_claims.list();
        let coming: BTreeSet<String> = claims.iter().map(|claim| name_of(&**claim).to_owned()).collect();
        let Some(facts) = planner_input::disruption::observe(&self.reader, Vec::new(), &coming).await else {
            return Ok(Requeue::After(UNTIL_SYNCED));
        };
        let revision = facts.input.revision;
        if self.seen.lock().unwrap_or_else(PoisonError::into_inner).replace(revision) == Some(revision) {
            return Ok(Requeue::After(EVERY));
        }
        let assembled = match catch(|| assemble_disruption(&facts.live, &facts.input)) {
            Ok(assembled) => assembled,
            Err(fault) => {
                let fault = Fault { mode: Mode::Compat, cause: Cause::Panicked(fault) };
                report(&self.reports, reads.clock.now(), "pod.deletioncost", &[fault], "", "");
                return Ok(Requeue::After(EVERY));
            }
        };
        let nodes = self.nodes(&assembled);
        let writes = planned_writes(&rank(&assembled.cluster, &nodes), &nodes);
        let pending = &self.reports.metrics.pod_deletion_cost_pending;
        pending.reset();
        let mut by_pool: BTreeMap<&str, i64> = BTreeMap::new();
        for (index, cost) in writes {
            let Some(state_node) =
                nodes.get(index).and_then(|node| assembled.cluster.state_nodes.get(node.state_node))
            else {
                continue;
            };
            let node = state_node.node.as_deref().unwrap_or_default();
            let pods = reads.stores.pods.by(BY_NODE, node).into_iter();
            for pod in pods.filter(|pod| is_controlled_by(pod, &["ReplicaSet"]) && cost_of(pod) != cost) {
                self.writes.add(&pod, cost);
            }
            *by_pool.entry(state_node.pool.as_deref().unwrap_or_default()).or_default() += 1;
        }
        for (pool, count) in by_pool {
            pending.with_label_values(&[pool]).set(count);
        }
        Ok(Requeue::After(EVERY))
    }
}

fn is_terminating(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_disrupted = |key: &str, effect: &str| key == labels::TAINT_DISRUPTED && effect == "NoSchedule";
    is_deleting(node) || taints.any(|taint| is_disrupted(&taint.key, &taint.effect))
}

/// Whether the pod keeps its node out of the ranking: no ReplicaSet, Job or DaemonSet controls the pod, and it is not
/// in `kube-system`.
fn is_pinning(pod: &Pod) -> bool {
    let is_system = pod.namespace() == "kube-system";
    !is_system && !is_controlled_by(pod, &["ReplicaSet", "Job", "DaemonSet"])
}

/// Whether the pod's controller is of one of these kinds.
fn is_controlled_by(pod: &Pod, kinds: &[&str]) -> bool {
    pod.controller().is_some_and(|owner| {
        let group = if owner.kind == "Job" { "batch/v1" } else { "apps/v1" };
        owner.api_version == group && kinds.contains(&owner.kind.as_str())
    })
}

/// The current deletion cost of a pod. This controller writes only integers; users may have written something else.
fn cost_of(pod: &Arc<Pod>) -> Cost {
    match pod.annotation(labels::ANNOTATION_POD_DELETION_COST) {
        None => Cost::Absent,
        Some(text) => text.parse().map_or(Cost::Unreadable, Cost::Is),
    }
}
