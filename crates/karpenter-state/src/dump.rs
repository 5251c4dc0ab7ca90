//! Reads a dump of a cluster as input for [`crate::disruption::assemble_disruption`].
//!
//! A dump lacks what the controller keeps in memory. Pods that are planned for a node are taken from the
//! nominations in pod status, moved pods from the annotations on NodePools and NodeClaims. Missing objects
//! are replaced and noted: a node with the label of a NodePool but without a NodeClaim gets one from the node
//! and the NodePool.

mod captured_at;
mod claims;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};

use crate::assemble::CatalogChoice;
use crate::assemble::catalogs::Catalogs;
use crate::cluster_input::{ClusterInput, PoolInput};
use crate::convert::pool::left_out;
use crate::cost::unreadable_cost;
use crate::default_spread::DefaultSpreadInput;
use crate::disruption::DisruptionInput;
use crate::move_annotations::{moved_onto_at, pods_moved};
use crate::notes::Note;
use crate::objects::Objects;
use crate::overlays::{self, OfferedPool};
use crate::pod::Pod;
use crate::pods;
use crate::workloads::name_of;

pub use captured_at::captured_at;

/// The content of a dump.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    pub live: ClusterInput,
    pub input: DisruptionInput,
    pub notes: Vec<Note>,
}

/// Classifies the objects of a dump for disruption at the time `now`.
pub fn read_dump(mut objects: Objects, catalog: &CatalogChoice, now: Timestamp) -> Dump {
    let mut notes = Vec::new();
    let (pools, other_pools, well_known) = pools(&objects, catalog, &mut notes);
    let (moved_last_hour, claims_moved_onto_at_secs) = moved(&objects, now);
    claims::add_missing(&mut objects, &mut notes);
    let pod_budgets = shared(std::mem::take(&mut objects.pod_disruption_budgets));
    let spreading = DefaultSpreadInput {
        config: Arc::new(objects.scheduler_config),
        services: shared(objects.services),
        replica_sets: shared(objects.replica_sets),
        stateful_sets: shared(objects.stateful_sets),
        ..DefaultSpreadInput::default()
    };
    let mut live = ClusterInput {
        pools,
        well_known,
        nodes: shared(objects.nodes),
        node_claims: shared(objects.node_claims),
        daemon_sets: shared(objects.daemon_sets),
        volume_claims: shared(objects.persistent_volume_claims),
        volumes: shared(objects.persistent_volumes),
        storage_classes: shared(objects.storage_classes),
        csi_nodes: shared(objects.csi_nodes),
        namespaces: shared(objects.namespaces),
        priority_classes: objects.priority_classes,
        spreading,
        ..ClusterInput::default()
    };
    let input = DisruptionInput {
        now,
        other_pools,
        pod_budgets,
        claims_moved_onto_at_secs,
        moved_last_hour,
        ..DisruptionInput::default()
    };
    sort_pods(shared(objects.pods), &mut live, &input, &mut notes);
    Dump { live, input, notes }
}

fn shared<T>(objects: Vec<T>) -> Vec<Arc<T>> {
    objects.into_iter().map(Arc::new).collect()
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The pods moved from each NodePool within the hour, and when pods were moved onto each claim, by its uid.
fn moved(objects: &Objects, now: Timestamp) -> (BTreeMap<String, u32>, BTreeMap<String, i64>) {
    let within_the_hour = |pool: &NodePool| {
        let recent = pods_moved(pool).into_iter().filter(|(at, _)| now.duration_since(*at) < HOUR);
        let pods = recent.fold(0_u32, |sum, (_, pods)| sum.saturating_add(pods));
        (name_of(&pool.metadata).to_owned(), pods)
    };
    let onto = |claim: &NodeClaim| {
        let uid = claim.metadata.uid.clone()?;
        Some((uid, moved_onto_at(claim)?.as_second()))
    };
    (
        objects.node_pools.iter().map(within_the_hour).collect(),
        objects.node_claims.iter().filter_map(onto).collect(),
    )
}

type SortedPools = (Vec<PoolInput>, Vec<PoolInput>, BTreeSet<Arc<str>>);

/// NodePools that launch nodes and NodePools that do not, all with their instance types.
fn pools(objects: &Objects, choice: &CatalogChoice, notes: &mut Vec<Note>) -> SortedPools {
    let mut catalogs = Catalogs::new(choice, &objects.ec2_node_classes);
    let indexes: Vec<usize> = objects.node_pools.iter().map(|pool| catalogs.for_pool(pool, notes)).collect();
    let well_known = catalogs.well_known();
    let made = catalogs.into_catalogs();
    let offered: Vec<OfferedPool> = objects
        .node_pools
        .iter()
        .zip(indexes)
        .map(|(pool, index)| OfferedPool {
            pool: Arc::new(pool.clone()),
            instance_types: made[index].clone(),
        })
        .collect();
    let evaluation = overlays::evaluate(&objects.node_overlays, &offered, &well_known);
    if !evaluation.conflicting.is_empty() {
        let names = evaluation.conflicting.iter().map(ToString::to_string).collect();
        notes.push(Note::NodeOverlaysConflicting { names });
    }
    let (mut launching, mut others) = (Vec::new(), Vec::new());
    for OfferedPool { pool, instance_types } in offered {
        let corrected = overlays::apply(&evaluation.corrections, &pool, &instance_types);
        let instance_types = corrected.map_or(instance_types, |corrected| Arc::new(corrected.types));
        match left_out(&pool) {
            None => launching.push(PoolInput { pool, instance_types }),
            Some(why) => {
                notes.push(Note::PoolLaunchesNothing { pool: name_of(&pool.metadata).to_owned(), why });
                others.push(PoolInput { pool, instance_types });
            }
        }
    }
    (launching, others, well_known)
}

/// Classifies pods: bound, pending, and nominated for a node.
fn sort_pods(all: Vec<Arc<Pod>>, live: &mut ClusterInput, input: &DisruptionInput, notes: &mut Vec<Note>) {
    let nodes = NodesByName::of(&live.nodes, &live.node_claims);
    let (mut gated, mut nominated, mut unknown_node, mut displaced) = (0, 0, 0, 0);
    let (mut bound, mut pending, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let mut unreadable_costs = Vec::new();
    for pod in all.into_iter().filter(|pod| !pods::is_terminal(pod)) {
        if let Some(node) = pods::node_name(&pod) {
            let Some((_, is_terminating)) = nodes.by_name.get(node) else {
                unknown_node += 1;
                continue;
            };
            let budgets = input.pod_budgets.iter().map(AsRef::as_ref);
            if *is_terminating && pods::is_currently_reschedulable(&pod, budgets, input.now) {
                displaced += 1;
                pending.push(pod.clone());
            }
            if unreadable_cost(&pod, input.deletion_costs).is_some() {
                unreadable_costs.push(format!("{}/{}", pod.namespace(), pod.name));
            }
            bound.push(pod);
            continue;
        }
        let is_elsewhere = pods::is_owned_by_daemon_set(&pod) || pods::is_owned_by_node(&pod);
        if pods::is_terminating(&pod) || is_elsewhere {
            continue;
        }
        let gates = pod.spec.scheduling_gates.as_ref();
        let nominee = pods::nominated_node(&pod).and_then(|name| nodes.by_name.get(name));
        if gates.is_some_and(|gates| !gates.is_empty()) {
            gated += 1;
        } else if let Some((Some(claim), false)) = nominee {
            expected.push((claim.clone(), pod));
        } else if pods::nominated_node(&pod).is_some() {
            nominated += 1;
        } else {
            pending.push(pod);
        }
    }
    (live.bound, live.pending, live.expected) = (bound, pending, expected);
    let counts = [
        (gated, Note::GatedPods { count: gated }),
        (nominated, Note::NominatedPods { count: nominated }),
        (unknown_node, Note::PodsOnUnknownNodes { count: unknown_node }),
        (displaced, Note::DisplacedPods { count: displaced }),
    ];
    notes.extend(counts.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note));
    if !unreadable_costs.is_empty() {
        notes.push(Note::CostsUnreadable { pods: unreadable_costs });
    }
}

/// By node: its claim, and whether the node is being deleted.
struct NodesByName {
    by_name: BTreeMap<String, (Option<String>, bool)>,
}

impl NodesByName {
    fn of(nodes: &[Arc<Node>], claims: &[Arc<NodeClaim>]) -> Self {
        let index = claims::Index::of(claims.iter().map(AsRef::as_ref));
        let by_name = nodes.iter().map(|node| {
            let claim = index.find(node);
            let is_terminating = match claim {
                Some(claim) => claims::is_terminating(claim),
                None => node.metadata.deletion_timestamp.is_some(),
            };
            let claim = claim.map(|claim| name_of(&claim.metadata).to_owned());
            (name_of(&node.metadata).to_owned(), (claim, is_terminating))
        });
        Self { by_name: by_name.collect() }
    }
}
