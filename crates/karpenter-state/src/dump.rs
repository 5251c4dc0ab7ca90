//! A cluster as one dump shows it, made ready for [`crate::fleet::assemble_fleet`].
//!
//! A dump does not say what the controller keeps in memory: which nodes pods are on their way to is read from the pods'
//! nominations, and what was moved from what the controller wrote on pools and claims. What it may leave out is made up for and noted: a node that carries a
//! pool's label but has no NodeClaim gets one from what the node and the pool say.

mod claims;
mod moment;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};

use crate::assemble::CatalogChoice;
use crate::assemble::catalogs::Catalogs;
use crate::convert::pool::left_out;
use crate::cost::unreadable_cost;
use crate::expand::name_of;
use crate::fleet::FleetInput;
use crate::live::{Live, LivePool};
use crate::moved::{moved_onto_at, pods_moved};
use crate::notes::Note;
use crate::objects::Objects;
use crate::overlays::{self, OfferedPool};
use crate::pod::Pod;
use crate::pods;
use crate::spreads::Spreading;

pub use moment::newest_time;

/// What a dump shows.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    pub live: Live,
    pub input: FleetInput,
    pub notes: Vec<Note>,
}

/// Sorts the objects of a dump by what they are to disruption at the moment `now`.
pub fn read_dump(mut objects: Objects, catalog: &CatalogChoice, now: Timestamp) -> Dump {
    let mut notes = Vec::new();
    let (pools, other_pools, well_known) = pools(&objects, catalog, &mut notes);
    let (moved_last_hour, machines_moved_onto_at_secs) = moved(&objects, now);
    claims::add_missing(&mut objects, &mut notes);
    let pod_budgets = shared(std::mem::take(&mut objects.pod_disruption_budgets));
    let spreading = Spreading {
        config: Arc::new(objects.scheduler_config),
        services: shared(objects.services),
        replica_sets: shared(objects.replica_sets),
        stateful_sets: shared(objects.stateful_sets),
        ..Spreading::default()
    };
    let mut live = Live {
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
        ..Live::default()
    };
    let input = FleetInput {
        now,
        other_pools,
        pod_budgets,
        machines_moved_onto_at_secs,
        moved_last_hour,
        ..FleetInput::default()
    };
    sort_pods(shared(objects.pods), &mut live, &input, &mut notes);
    Dump { live, input, notes }
}

fn shared<T>(objects: Vec<T>) -> Vec<Arc<T>> {
    objects.into_iter().map(Arc::new).collect()
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// How many pods left each pool within the hour, and when pods came to each claim, by its uid.
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

type SortedPools = (Vec<LivePool>, Vec<LivePool>, BTreeSet<Arc<str>>);

/// Pools that launch and pools that do not, all with what they can buy.
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
            None => launching.push(LivePool { pool, instance_types }),
            Some(why) => {
                notes.push(Note::PoolLaunchesNothing { pool: name_of(&pool.metadata).to_owned(), why });
                others.push(LivePool { pool, instance_types });
            }
        }
    }
    (launching, others, well_known)
}

/// Pods on nodes, pods without one, pods with one in prospect.
fn sort_pods(all: Vec<Arc<Pod>>, live: &mut Live, input: &FleetInput, notes: &mut Vec<Note>) {
    let nodes = NodesByName::of(&live.nodes, &live.node_claims);
    let (mut gated, mut nominated, mut unknown_node, mut displaced) = (0, 0, 0, 0);
    let (mut bound, mut pending, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let mut misvalued = Vec::new();
    for pod in all.into_iter().filter(|pod| !pods::is_terminal(pod)) {
        if let Some(node) = pods::node_name(&pod) {
            let Some((_, is_leaving)) = nodes.by_name.get(node) else {
                unknown_node += 1;
                continue;
            };
            let budgets = input.pod_budgets.iter().map(AsRef::as_ref);
            if *is_leaving && pods::is_currently_reschedulable(&pod, budgets, input.now) {
                displaced += 1;
                pending.push(pod.clone());
            }
            if unreadable_cost(&pod, input.deletion_costs).is_some() {
                misvalued.push(format!("{}/{}", pod.namespace(), pod.name));
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
    if !misvalued.is_empty() {
        notes.push(Note::CostsUnreadable { pods: misvalued });
    }
}

/// The claim behind each node, and whether the node is on its way out.
struct NodesByName {
    by_name: BTreeMap<String, (Option<String>, bool)>,
}

impl NodesByName {
    fn of(nodes: &[Arc<Node>], claims: &[Arc<NodeClaim>]) -> Self {
        let index = claims::Index::of(claims.iter().map(AsRef::as_ref));
        let by_name = nodes.iter().map(|node| {
            let claim = index.find(node);
            let is_leaving = match claim {
                Some(claim) => claims::is_leaving(claim),
                None => node.metadata.deletion_timestamp.is_some(),
            };
            let claim = claim.map(|claim| name_of(&claim.metadata).to_owned());
            (name_of(&node.metadata).to_owned(), (claim, is_leaving))
        });
        Self { by_name: by_name.collect() }
    }
}
