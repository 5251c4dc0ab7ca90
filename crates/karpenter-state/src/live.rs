//! A planning problem from the objects of a running cluster, as the controllers hold them.
//!
//! Unlike [`crate::assemble`] nothing is guessed here: the caller says which pools may launch and what each can buy,
//! which pods wait, which of them already have a node in prospect and which nodes are on their way out. Objects are
//! shared, not copied. A claim that has not been launched yet counts as the smallest node it may become, so that its
//! pods have a place and nobody else's pods count on more than there will be.

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
use crate::expand::{name_of, namespace_of};
use crate::intern::Interner;
use crate::pod::Pod;
use crate::pods::{is_terminal, is_terminating};
use crate::spreads::{DefaultSpreads, Spreading};

/// A pool that may launch, and everything it could buy.
#[derive(Debug, Clone)]
pub struct LivePool {
    pub pool: Arc<NodePool>,
    pub instance_types: Arc<Vec<InstanceType>>,
}

/// A cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct Live {
    pub pools: Vec<LivePool>,
    /// The provider's label keys; the core's need not be listed.
    pub well_known: BTreeSet<Arc<str>>,
    pub nodes: Vec<Arc<Node>>,
    /// Claims of this provider only; a node of anybody else's claim is just a node.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Names of claims, and of nodes without a claim, that are about to go although nothing in them says so yet.
    pub leaving: BTreeSet<String>,
    /// Pods that are bound, those of nodes on their way out included.
    pub bound: Vec<Arc<Pod>>,
    /// Pods that need a place: waiting ones, and bound ones whose node goes away.
    pub pending: Vec<Arc<Pod>>,
    /// Pods that have a claim in prospect, by the claim's name, or a node that has no claim, by its own. If that is gone,
    /// they are pending.
    pub expected: Vec<(String, Arc<Pod>)>,
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    pub volume_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub storage_classes: Vec<Arc<StorageClass>>,
    pub csi_nodes: Vec<Arc<CSINode>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub priority_classes: Vec<PriorityClass>,
    /// What pods without spread constraints get; nothing by default.
    pub spreading: Spreading,
}

/// What a node of the problem stands for: a node, a claim without one, or both.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub node: Option<Arc<Node>>,
    pub claim: Option<Arc<NodeClaim>>,
}

/// The problem and what its numbers mean.
#[derive(Debug, Clone, Default)]
pub struct Round {
    pub problem: Problem,
    /// One per pool of the problem.
    pub pools: Vec<Arc<NodePool>>,
    /// One per node of the problem.
    pub hosts: Vec<Host>,
    /// One list per pod group of the problem, in the group's order.
    pub pods: Vec<Vec<Arc<Pod>>>,
}

impl Round {
    /// The pods of a run.
    pub fn pods_of(&self, run: karpenter_model::plan::PodRun) -> &[Arc<Pod>] {
        let group = self.pods.get(run.group as usize).map_or(&[][..], Vec::as_slice);
        let start = (run.start as usize).min(group.len());
        let end = start.saturating_add(run.count as usize).min(group.len());
        &group[start..end]
    }
}

/// Builds the problem that the cluster poses.
pub fn assemble_live(live: &Live) -> Round {
    assemble_parts(live, &[]).round
}

/// A round, and what only disruption asks for.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) round: Round,
    /// One per node of the problem.
    pub(crate) aboard: Vec<Aboard>,
    /// Nodes on their way out, which are not in the problem, and the pods that are still on them.
    pub(crate) leaving: Vec<(ModelNode, Host, Vec<Arc<Pod>>)>,
}

/// The pods of a node, in the order of its list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aboard {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// How many of them, the first ones, are bound to it; the others are on their way.
    pub(crate) bound: usize,
}

/// `others` are pools that launch nothing for pods, but whose nodes have a size and a price.
pub(crate) fn assemble_parts(live: &Live, others: &[LivePool]) -> Parts {
    let mut interner = Interner::default();
    let mut drafts = convert_nodes(&live.nodes, &live.node_claims, &live.csi_nodes, &mut interner);
    let known_pools = || live.pools.iter().chain(others);
    unlaunched::add_drafts(live, known_pools(), &mut drafts, &mut interner);
    mark_leaving(live, &mut drafts);
    let mut problem = Problem::default();
    add_pools(live, &drafts, &mut problem, &mut interner);
    let types = known_pools().map(|one| (name_of(&one.pool.metadata), &*one.instance_types));
    apply_catalog_facts(&mut drafts, &types.collect(), &live.csi_nodes);

    let all_pods = || live.bound.iter().chain(&live.pending).chain(live.expected.iter().map(|(_, pod)| pod));
    let mentioned = all_pods().map(|pod| pod.namespace());
    let mentioned = mentioned.chain(live.daemon_sets.iter().map(|set| namespace_of(&set.metadata)));
    let mentioned: BTreeSet<&str> = mentioned.collect();
    let mut converter = PodConverter::new(
        Interner::default(),
        Namespaces::new(&live.namespaces, mentioned, &mut interner),
        Priorities::new(&live.priority_classes),
        VolumeIndex::new(
            &live.volume_claims,
            &live.volumes,
            &live.storage_classes,
            limited_drivers(&drafts, &problem),
        ),
        problem.well_known.clone(),
    );
    converter.interner = interner;
    converter.spreads = DefaultSpreads::live(&live.spreading);
    let living = live.bound.iter().map(AsRef::as_ref);
    problem.daemons = daemons(living, live.daemon_sets.iter().map(AsRef::as_ref), &mut converter);
    let mut aboard = vec![Aboard::default(); drafts.drafts.len()];
    let groups = place(live, &mut drafts, &mut aboard, &mut converter);
    let (groups, pods): (Vec<PodGroup>, Vec<Vec<Arc<Pod>>>) = groups.into_iter().unzip();
    problem.pods = groups;

    let pools = live.pools.iter().map(|one| one.pool.clone()).collect();
    let mut parts = Parts { round: Round { pools, pods, ..Round::default() }, ..Parts::default() };
    for (draft, aboard) in drafts.drafts.into_iter().zip(aboard) {
        let host = Host {
            node: draft.node_at.map(|position| live.nodes[position].clone()),
            claim: draft.claim_at.map(|position| live.node_claims[position].clone()),
        };
        if draft.is_deleting {
            parts.leaving.push((draft.node, host, aboard.pods));
        } else {
            parts.round.hosts.push(host);
            parts.aboard.push(aboard);
            problem.nodes.push(draft.node);
        }
    }
    parts.round.problem = problem;
    parts
}

fn add_pools(live: &Live, drafts: &NodeDrafts, problem: &mut Problem, interner: &mut Interner) {
    problem.well_known = labels::WELL_KNOWN.into_iter().map(Arc::from).collect();
    problem.well_known.extend(live.well_known.iter().cloned());
    let usage = usage_by_pool(drafts);
    for LivePool { pool, instance_types } in &live.pools {
        let known = problem.catalogs.iter().position(|known| Arc::ptr_eq(known, instance_types));
        let catalog = known.unwrap_or_else(|| {
            problem.catalogs.push(instance_types.clone());
            problem.catalogs.len() - 1
        });
        let usage = usage.get(name_of(&pool.metadata)).cloned().unwrap_or_default();
        problem.pools.push(convert_pool(pool, catalog, usage, interner));
    }
}

fn mark_leaving(live: &Live, drafts: &mut NodeDrafts) {
    for draft in &mut drafts.drafts {
        let claim = draft.claim_at.map(|position| name_of(&live.node_claims[position].metadata));
        let node = draft.node_at.map(|position| name_of(&live.nodes[position].metadata));
        draft.is_deleting |= claim.or(node).is_some_and(|name| live.leaving.contains(name));
    }
}

/// Puts bound and expected pods on their nodes and groups those that need a place by equal spec.
fn place<'a>(
    live: &'a Live,
    drafts: &mut NodeDrafts,
    aboard: &mut [Aboard],
    converter: &mut PodConverter<'_>,
) -> Vec<(PodGroup, Vec<Arc<Pod>>)> {
    let mut replicas = Replicas::default();
    let mut convert = |pod: &'a Pod| replicas.convert(pod, source(pod), converter);
    for pod in live.bound.iter().filter(|pod| !is_terminal(pod)) {
        let node = pod.node_name.as_deref().unwrap_or_default();
        let Some(position) = drafts.by_node_name.get(node) else { continue };
        let draft = &mut drafts.drafts[*position];
        if draft.is_deleting {
            // Where it goes is planned with those that wait; that it has to be evicted first is not forgotten.
            aboard[*position].pods.push(pod.clone());
            continue;
        }
        draft.node.pods.push(BoundPod {
            spec: convert(pod),
            is_daemon: is_daemon(pod),
            is_terminating: is_terminating(pod),
            mobility: Mobility::default(),
        });
        aboard[*position].pods.push(pod.clone());
        aboard[*position].bound += 1;
    }
    let by_host: BTreeMap<&str, usize> = drafts
        .drafts
        .iter()
        .enumerate()
        .filter(|(_, draft)| !draft.is_deleting)
        .filter_map(|(at, draft)| {
            let claim = draft.claim_at.map(|position| name_of(&live.node_claims[position].metadata));
            let node = || draft.node_at.map(|position| name_of(&live.nodes[position].metadata));
            Some((claim.or_else(node)?, at))
        })
        .collect();
    let mut groups = Groups::default();
    for (claim, pod) in &live.expected {
        let spec = convert(pod);
        match by_host.get(claim.as_str()) {
            Some(position) => {
                drafts.drafts[*position].node.pods.push(BoundPod {
                    spec,
                    is_daemon: false,
                    is_terminating: false,
                    mobility: Mobility::default(),
                });
                aboard[*position].pods.push(pod.clone());
            }
            None => groups.add(spec, pod),
        }
    }
    for pod in &live.pending {
        groups.add(convert(pod), pod);
    }
    groups.finish()
}

/// Pods by spec, in order of first appearance.
#[derive(Default)]
struct Groups {
    /// Equal specs are the same allocation, so its address tells groups apart.
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

    /// Oldest first within a group, so that a plan that leaves some pods out leaves out the newest.
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
