//! Assembles a planning problem from the objects of a running cluster, as the controllers hold them.
//!
//! Unlike in [`crate::assemble`], the caller states which NodePools may launch which instance types, which pods are
//! pending, which are nominated for a node, and which nodes are being deleted. Objects are shared, not copied. A claim
//! that is not launched yet counts as a node with the smallest capacity that its instance may have, so that no more
//! pods are planned onto the node than will fit.
//!
//! Upstream: pkg/controllers/provisioning/provisioner.go.

mod unlaunched;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{BoundPod, Mobility, Node as ModelNode, PodGroup, PodNames, Problem};
use rustc_hash::FxHashMap;

use crate::assemble::pods::{Replicas, daemons, is_daemon, source};
use crate::assemble::{apply_catalog_facts, limited_drivers, usage_by_pool};
use crate::convert::affinity::Namespaces;
use crate::convert::node::{NodeDrafts, convert_nodes};
use crate::convert::pod::{PodConverter, Priorities};
use crate::convert::pool::convert_pool;
use crate::convert::volumes::VolumeIndex;
use crate::default_spread::{DefaultSpreadInput, DefaultSpreads};
use crate::intern::Interner;
use crate::pod::Pod;
use crate::pods::{is_terminal, is_terminating};
use crate::workloads::{name_of, namespace_of};

/// A NodePool that may launch, and its instance types.
#[derive(Debug, Clone)]
pub struct PoolInput {
    pub pool: Arc<NodePool>,
    pub instance_types: Arc<Vec<InstanceType>>,
}

/// The objects of a cluster at one time.
#[derive(Debug, Clone, Default)]
pub struct ClusterInput {
    pub pools: Vec<PoolInput>,
    /// NodePools that launch no nodes because they are not ready. They are only named in reasons of unschedulable pods.
    pub not_ready_pools: Vec<Arc<NodePool>>,
    /// The label keys of the provider; those of the core need not be listed.
    pub well_known: BTreeSet<Arc<str>>,
    pub nodes: Vec<Arc<Node>>,
    /// NodeClaims of this provider. A node with a NodeClaim of another provider counts as an unmanaged node.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Names of claims, and of nodes without a claim, that are marked for deletion.
    pub marked_for_deletion: BTreeSet<String>,
    /// Bound pods, including those of nodes that are being deleted.
    pub bound: Vec<Arc<Pod>>,
    /// Pods to be planned: pending ones, and bound ones whose node is being deleted.
    pub pending: Vec<Arc<Pod>>,
    /// Pods that are nominated for a node, each with the name of its NodeClaim, or of the node if there is no
    /// NodeClaim. If that object no longer exists, the pods count as pending.
    pub expected: Vec<(String, Arc<Pod>)>,
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    pub volume_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub storage_classes: Vec<Arc<StorageClass>>,
    pub csi_nodes: Vec<Arc<CSINode>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub priority_classes: Vec<PriorityClass>,
    /// Default topology spread constraints; empty by default.
    pub spreading: DefaultSpreadInput,
}

/// What a node of the problem was made from: a Node, a NodeClaim without a Node, or both.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub node: Option<Arc<Node>>,
    pub claim: Option<Arc<NodeClaim>>,
}

/// The problem, and the objects behind its indexes.
#[derive(Debug, Clone, Default)]
pub struct AssembledProblem {
    pub problem: Problem,
    /// The NodePool objects, one per NodePool of the problem.
    pub pools: Vec<Arc<NodePool>>,
    /// The objects behind the nodes, one entry per node of the problem.
    pub hosts: Vec<Host>,
    /// One list per pod group of the problem, in the order of the group.
    pub pods: Vec<Vec<Arc<Pod>>>,
}

impl AssembledProblem {
    /// The pods of a run (consecutive pods of one group).
    pub fn pods_of(&self, run: karpenter_model::plan::PodRun) -> &[Arc<Pod>] {
        let group = self.pods.get(run.group as usize).map_or(&[][..], Vec::as_slice);
        let start = (run.start as usize).min(group.len());
        let end = start.saturating_add(run.count as usize).min(group.len());
        &group[start..end]
    }
}

/// Assembles the problem of a cluster.
pub fn assemble_cluster(cluster: &ClusterInput) -> AssembledProblem {
    assemble_parts(cluster, &[]).assembled
}

/// The problem, and additional parts for disruption.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) assembled: AssembledProblem,
    /// The pods of the nodes, one entry per node of the problem.
    pub(crate) pods_by_node: Vec<NodePods>,
    /// Nodes that are being deleted, which are not in the problem, and their pods.
    pub(crate) deleting_nodes: Vec<(ModelNode, Host, Vec<Arc<Pod>>)>,
}

/// The pods of a node, in the order of `Node::pods`.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodePods {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// The number of bound pods, which come first; the others are nominated.
    pub(crate) bound: usize,
}

/// Assembles the problem and the additional parts. `others` are NodePools that launch no nodes for pods, but whose
/// existing nodes have a size and a price.
pub(crate) fn assemble_parts(cluster: &ClusterInput, others: &[PoolInput]) -> Parts {
    let mut interner = Interner::default();
    let mut drafts = convert_nodes(&cluster.nodes, &cluster.node_claims, &cluster.csi_nodes, &mut interner);
    let known_pools = || cluster.pools.iter().chain(others);
    unlaunched::add_drafts(cluster, known_pools(), &mut drafts, &mut interner);
    apply_deletion_marks(cluster, &mut drafts);
    let mut problem = Problem::default();
    add_pools(cluster, &drafts, &mut problem, &mut interner);
    let types = known_pools().map(|one| (name_of(&one.pool.metadata), &*one.instance_types));
    apply_catalog_facts(&mut drafts, &types.collect(), &cluster.csi_nodes);

    let all_pods =
        || cluster.bound.iter().chain(&cluster.pending).chain(cluster.expected.iter().map(|(_, pod)| pod));
    let mentioned = all_pods().map(|pod| pod.namespace());
    let mentioned = mentioned.chain(cluster.daemon_sets.iter().map(|set| namespace_of(&set.metadata)));
    let mentioned: BTreeSet<&str> = mentioned.collect();
    let mut converter = PodConverter::new(
        Interner::default(),
        Namespaces::new(&cluster.namespaces, mentioned, &mut interner),
        Priorities::new(&cluster.priority_classes),
        VolumeIndex::new(
            &cluster.volume_claims,
            &cluster.volumes,
            &cluster.storage_classes,
            limited_drivers(&drafts, &problem),
        ),
        problem.well_known.clone(),
    );
    converter.interner = interner;
    converter.spreads = DefaultSpreads::live(&cluster.spreading);
    let living = cluster.bound.iter().map(AsRef::as_ref);
    problem.daemons = daemons(living, cluster.daemon_sets.iter().map(AsRef::as_ref), &mut converter);
    let mut node_pods = vec![NodePods::default(); drafts.drafts.len()];
    let groups = assign_pods(cluster, &mut drafts, &mut node_pods, &mut converter);
    let (groups, pods): (Vec<PodGroup>, Vec<Vec<Arc<Pod>>>) = groups.into_iter().unzip();
    problem.pods = groups;

    let pools = cluster.pools.iter().map(|one| one.pool.clone()).collect();
    let mut parts = Parts {
        assembled: AssembledProblem { pools, pods, ..AssembledProblem::default() },
        ..Parts::default()
    };
    for (draft, node_pods) in drafts.drafts.into_iter().zip(node_pods) {
        let host = Host {
            node: draft.node_at.map(|position| cluster.nodes[position].clone()),
            claim: draft.claim_at.map(|position| cluster.node_claims[position].clone()),
        };
        if draft.is_deleting {
            parts.deleting_nodes.push((draft.node, host, node_pods.pods));
        } else {
            parts.assembled.hosts.push(host);
            parts.pods_by_node.push(node_pods);
            problem.nodes.push(draft.node);
        }
    }
    parts.assembled.problem = problem;
    parts
}

fn add_pools(cluster: &ClusterInput, drafts: &NodeDrafts, problem: &mut Problem, interner: &mut Interner) {
    problem.well_known = labels::WELL_KNOWN.into_iter().map(Arc::from).collect();
    problem.well_known.extend(cluster.well_known.iter().cloned());
    let usage = usage_by_pool(drafts);
    for PoolInput { pool, instance_types } in &cluster.pools {
        let known = problem.catalogs.iter().position(|known| Arc::ptr_eq(known, instance_types));
        let catalog = known.unwrap_or_else(|| {
            problem.catalogs.push(instance_types.clone());
            problem.catalogs.len() - 1
        });
        let usage = usage.get(name_of(&pool.metadata)).cloned().unwrap_or_default();
        problem.pools.push(convert_pool(pool, catalog, usage, interner));
    }
}

fn apply_deletion_marks(cluster: &ClusterInput, drafts: &mut NodeDrafts) {
    for draft in &mut drafts.drafts {
        let claim = draft.claim_at.map(|position| name_of(&cluster.node_claims[position].metadata));
        let node = draft.node_at.map(|position| name_of(&cluster.nodes[position].metadata));
        draft.is_deleting |= claim.or(node).is_some_and(|name| cluster.marked_for_deletion.contains(name));
    }
}

/// Adds bound and nominated pods to their nodes and groups the pending ones by equal spec.
fn assign_pods<'a>(
    cluster: &'a ClusterInput,
    drafts: &mut NodeDrafts,
    node_pods: &mut [NodePods],
    converter: &mut PodConverter<'_>,
) -> Vec<(PodGroup, Vec<Arc<Pod>>)> {
    let mut replicas = Replicas::default();
    let mut convert = |pod: &'a Pod| replicas.convert(pod, source(pod), converter);
    for pod in cluster.bound.iter().filter(|pod| !is_terminal(pod)) {
        let node = pod.node_name.as_deref().unwrap_or_default();
        let Some(position) = drafts.by_node_name.get(node) else { continue };
        let draft = &mut drafts.drafts[*position];
        if draft.is_deleting {
            // The pod is planned like a pending pod. It is also listed on its node, because it still has to be evicted
            // there.
            node_pods[*position].pods.push(pod.clone());
            continue;
        }
        draft.node.pods.push(BoundPod {
            spec: convert(pod),
            is_daemon: is_daemon(pod),
            is_terminating: is_terminating(pod),
            mobility: Mobility::default(),
        });
        node_pods[*position].pods.push(pod.clone());
        node_pods[*position].bound += 1;
    }
    let by_host: BTreeMap<&str, usize> = drafts
        .drafts
        .iter()
        .enumerate()
        .filter(|(_, draft)| !draft.is_deleting)
        .filter_map(|(at, draft)| {
            let claim = draft.claim_at.map(|position| name_of(&cluster.node_claims[position].metadata));
            let node = || draft.node_at.map(|position| name_of(&cluster.nodes[position].metadata));
            Some((claim.or_else(node)?, at))
        })
        .collect();
    let mut groups = Groups::default();
    for (claim, pod) in &cluster.expected {
        let spec = convert(pod);
        match by_host.get(claim.as_str()) {
            Some(position) => {
                drafts.drafts[*position].node.pods.push(BoundPod {
                    spec,
                    is_daemon: false,
                    is_terminating: false,
                    mobility: Mobility::default(),
                });
                node_pods[*position].pods.push(pod.clone());
            }
            None => groups.add(spec, pod),
        }
    }
    for pod in &cluster.pending {
        groups.add(convert(pod), pod);
    }
    groups.finish()
}

/// Pods by spec, in order of first appearance.
#[derive(Default)]
struct Groups {
    /// Equal specs are stored once, so the address of a spec identifies its group.
    by_spec: FxHashMap<usize, usize>,
    groups: Vec<(Arc<PodSpec>, Vec<Arc<Pod>>)>,
}

impl Groups {
    fn add(&mut self, spec: Arc<PodSpec>, pod: &Arc<Pod>) {
        let position = *self.by_spec.entry(Arc::as_ptr(&spec) as usize).or_insert_with(|| {
            self.groups.push((spec, Vec::new()));
            self.groups.len() - 1
        });
        self.groups[position].1.push(pod.clone());
    }

    /// Pods are sorted by age within a group, oldest first, so that unschedulable pods of a group are the newest.
    fn finish(self) -> Vec<(PodGroup, Vec<Arc<Pod>>)> {
        let finish = |(spec, mut pods): (Arc<PodSpec>, Vec<Arc<Pod>>)| {
            pods.sort_by(|one, other| {
                (one.created_at_secs(), &one.name).cmp(&(other.created_at_secs(), &other.name))
            });
            let created_at_secs = pods.first().map_or(0, |pod| pod.created_at_secs());
            let names = pods.iter().map(|pod| (*pod.name).into()).collect();
            (PodGroup { spec, names: PodNames::Listed(names), created_at_secs }, pods)
        };
        self.groups.into_iter().map(finish).collect()
    }
}
