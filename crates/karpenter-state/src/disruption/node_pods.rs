//! The properties of each pod on a node for disruption, and whether the pod must be rescheduled if the node is removed.

use std::sync::Arc;

use jiff::Timestamp;
use karpenter_api::labels::ANNOTATION_BUFFER_FAKE_POD;
use karpenter_disruption::cluster::NodePod;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Node};
use rustc_hash::FxHashMap;

use super::DisruptionInput;
use super::pod_budgets::PodBudgets;
use crate::cluster_input::NodePods;
use crate::cost::eviction_cost;
use crate::intern::Interner;
use crate::pod::Pod;
use crate::pods;

pub(super) struct NodePodReader<'a> {
    budgets: &'a PodBudgets<'a>,
    input: &'a DisruptionInput,
    now: Timestamp,
    /// The PodDisruptionBudgets that select the pods of a spec, by its address. Specs are shared, and pods with equal
    /// specs have equal labels, so the same PodDisruptionBudgets select them.
    budgets_of_spec: FxHashMap<usize, Vec<u32>>,
    owners: Interner,
}

impl<'a> NodePodReader<'a> {
    pub(super) fn new(budgets: &'a PodBudgets<'a>, input: &'a DisruptionInput) -> Self {
        let (budgets_of_spec, owners) = (FxHashMap::default(), Interner::default());
        Self { budgets, input, now: input.now, budgets_of_spec, owners }
    }

    /// The properties of each pod of the node, in order. Also sets the mobility of the pods.
    pub(super) fn pods_of(&mut self, node: &mut Node, pods_on_node: &NodePods) -> Vec<NodePod> {
        let mut node_pods = Vec::with_capacity(node.pods.len());
        for (index, (on_node, pod)) in node.pods.iter_mut().zip(&pods_on_node.pods).enumerate() {
            let mut node_pod = self.node_pod(pod, &on_node.spec);
            if index < pods_on_node.bound {
                on_node.mobility = self.mobility(pod, &node_pod);
            } else {
                // The pod is not bound yet. If the node is removed, it stays pending and does not have to be moved.
                node_pod.is_reschedulable = false;
                node_pod.is_evictable = false;
            }
            node_pods.push(node_pod);
        }
        node_pods
    }

    /// The properties of the pods of a node that is not in the problem.
    pub(super) fn pods_left_on(&mut self, pods: &[Arc<Pod>]) -> Vec<NodePod> {
        pods.iter().map(|pod| self.occupant_of(pod, self.budgets.of(pod))).collect()
    }

    fn node_pod(&mut self, pod: &Pod, spec: &Arc<PodSpec>) -> NodePod {
        let budgets = self.budgets;
        let of_spec = self.budgets_of_spec.entry(Arc::as_ptr(spec) as usize);
        let of_spec = of_spec.or_insert_with(|| budgets.of(pod)).clone();
        self.occupant_of(pod, of_spec)
    }

    fn occupant_of(&mut self, pod: &Pod, budgets: Vec<u32>) -> NodePod {
        let uid = pods::uid_of(pod);
        let owner = pod.controller().map(|owner| owner.uid.as_str()).filter(|uid| !uid.is_empty());
        let moved = &self.input.pods_moved_at_secs;
        let moved_at_secs = if moved.is_empty() {
            None
        } else {
            moved.get(uid).max(owner.and_then(|owner| moved.get(owner))).copied()
        };
        NodePod {
            name: full_name(pod.namespace(), &pod.name),
            uid: uid.into(),
            owner: owner.map(|owner| self.owners.get(owner)),
            is_active: pods::is_active(pod),
            is_reschedulable: pods::is_reschedulable(pod),
            is_evictable: pods::is_evictable(pod, self.now),
            is_do_not_disrupt: pods::is_do_not_disrupt(pod, self.now),
            is_do_not_evict: pods::is_do_not_evict(pod),
            is_unready: pods::is_unready(pod),
            is_virtual: pod.annotation(ANNOTATION_BUFFER_FAKE_POD).is_some(),
            eviction_cost: eviction_cost(pod, self.input.deletion_costs),
            budgets,
            moved_at_secs,
        }
    }

    fn mobility(&self, pod: &Pod, node_pod: &NodePod) -> Mobility {
        if !node_pod.is_reschedulable {
            return Mobility::Stays;
        }
        let budgets = node_pod.budgets.iter().map(|index| self.budgets.raw(*index));
        if pods::is_currently_reschedulable(pod, budgets, self.now) {
            Mobility::Moves
        } else {
            Mobility::Blocked
        }
    }
}

fn full_name(namespace: &str, name: &str) -> Arc<str> {
    let mut text = String::with_capacity(namespace.len() + 1 + name.len());
    text.push_str(namespace);
    text.push('/');
    text.push_str(name);
    text.into()
}
