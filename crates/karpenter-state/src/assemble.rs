//! Assembles all objects of an input into one problem: NodePools with their catalogs, nodes with their pods,
//! pending pods, and the DaemonSet pods of every node.
//!
//! This module decides how objects relate to each other; `convert` converts single objects. [`Problem::options`] have
//! their defaults; the caller sets them.

pub(crate) mod catalogs;
mod equality;
pub(crate) mod pods;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::storage::v1::CSINode;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::problem::{Node, Problem};
use karpenter_model::resources::ResourceList;
use rustc_hash::FxHashMap;

use crate::controls::spread_share;
use crate::convert::affinity::Namespaces;
use crate::convert::node::{NodeDrafts, convert_nodes, published_drivers};
use crate::convert::pod::{PodConverter, Priorities};
use crate::convert::pool::{convert_pool, left_out};
use crate::convert::volumes::VolumeIndex;
use crate::default_spread::DefaultSpreads;
use crate::intern::Interner;
use crate::notes::Note;
use crate::objects::Objects;
use crate::overlays;
use crate::workloads::namespace_of;

pub use catalogs::CatalogChoice;

/// Builds the problem that the objects describe.
pub fn assemble(objects: &Objects, catalog: &CatalogChoice) -> (Problem, Vec<Note>) {
    let mut notes = Vec::new();
    let mut interner = Interner::default();
    let mut drafts = convert_nodes(&objects.nodes, &objects.node_claims, &objects.csi_nodes, &mut interner);
    let mut problem = Problem::default();
    let catalogs = add_pools(objects, catalog, &drafts, &mut problem, &mut interner, &mut notes);
    problem.well_known = catalogs.well_known();
    problem.catalogs = catalogs.into_catalogs();
    notes.extend(overlays::apply_to_problem(&objects.node_overlays, &objects.node_pools, &mut problem));
    let types = problem.pools.iter().map(|pool| (&*pool.name, &*problem.catalogs[pool.catalog]));
    apply_catalog_facts(&mut drafts, &types.collect(), &objects.csi_nodes);

    let mut converter = PodConverter::new(
        Interner::default(),
        Namespaces::new(&objects.namespaces, mentioned_namespaces(objects), &mut interner),
        Priorities::new(&objects.priority_classes),
        VolumeIndex::new(
            &objects.persistent_volume_claims,
            &objects.persistent_volumes,
            &objects.storage_classes,
            limited_drivers(&drafts, &problem),
        ),
        problem.well_known.clone(),
    );
    converter.interner = interner;
    converter.spreads = DefaultSpreads::new(
        &objects.scheduler_config,
        &objects.services,
        &objects.replica_sets,
        &objects.stateful_sets,
    );
    problem.daemons = pods::daemons(objects.pods.iter(), objects.daemon_sets.iter(), &mut converter);
    let ignored = problem.daemons.iter().filter(|daemon| !daemon.reserves_capacity());
    let names: Vec<String> = ignored.map(|daemon| daemon.name.to_string()).collect();
    if !names.is_empty() {
        notes.push(Note::DaemonSetsWithClaims { names });
    }
    let unlaunched = std::mem::take(&mut drafts.unlaunched_claims);
    problem.pods = pods::place(objects, &mut drafts, &mut converter, &mut notes);
    problem.pods.extend(pods::expanded(objects, &mut converter));
    problem.pods.extend(pods::buffered(objects, &mut converter, &mut notes));
    problem.nodes =
        drafts.drafts.into_iter().filter(|draft| !draft.is_deleting).map(|draft| draft.node).collect();

    if !unlaunched.is_empty() {
        let name = |position: usize| objects.node_claims[position].metadata.name.clone().unwrap_or_default();
        notes.push(Note::UnlaunchedClaims { names: unlaunched.into_iter().map(name).collect() });
    }
    let unknown_classes = converter.priorities.unknown_classes();
    if !unknown_classes.is_empty() {
        notes.push(Note::PriorityClassesMissing { names: unknown_classes });
    }
    (problem, notes)
}

fn add_pools<'a>(
    objects: &'a Objects,
    choice: &'a CatalogChoice,
    drafts: &NodeDrafts,
    problem: &mut Problem,
    interner: &mut Interner,
    notes: &mut Vec<Note>,
) -> catalogs::Catalogs<'a> {
    let mut catalogs = catalogs::Catalogs::new(choice, &objects.ec2_node_classes);
    if objects.node_pools.is_empty() {
        notes.push(Note::NoNodePools);
    }
    let usage = usage_by_pool(drafts);
    for pool in &objects.node_pools {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        if let Some(why) = left_out(pool) {
            notes.push(Note::PoolLeftOut { pool: name.to_owned(), why });
            continue;
        }
        let catalog = catalogs.for_pool(pool, notes);
        let usage = usage.get(name).cloned().unwrap_or_default();
        notes.extend(spread_share(pool).1.map(Note::AnnotationUnusable));
        problem.pools.push(convert_pool(pool, catalog, usage, interner));
    }
    catalogs
}

/// The usage of each NodePool's limits by its nodes. Nodes that are being deleted do not count.
pub(crate) fn usage_by_pool(drafts: &NodeDrafts) -> BTreeMap<Arc<str>, ResourceList> {
    let mut usage: BTreeMap<Arc<str>, ResourceList> = BTreeMap::new();
    for draft in drafts.drafts.iter().filter(|draft| !draft.is_deleting) {
        if let Some(pool) = &draft.node.pool {
            usage.entry(pool.clone()).or_default().add(&draft.capacity);
        }
    }
    usage
}

/// Sets prices and attachment limits that only the catalog has. `types` are the instance types of each
/// NodePool.
pub(crate) fn apply_catalog_facts(
    drafts: &mut NodeDrafts,
    types: &BTreeMap<&str, &Vec<InstanceType>>,
    csi_nodes: &[impl Borrow<CSINode>],
) {
    let by_name: FxHashMap<(&str, &str), &InstanceType> = types
        .iter()
        .flat_map(|(pool, types)| types.iter().map(move |one| ((*pool, &*one.name), one)))
        .collect();
    let published = published_drivers(csi_nodes);
    for draft in &mut drafts.drafts {
        let node = &mut draft.node;
        let (Some(pool), Some(type_name)) = (&node.pool, node.labels.get(labels::INSTANCE_TYPE)) else {
            continue;
        };
        let Some(instance_type) = by_name.get(&(&**pool, &**type_name)) else { continue };
        node.price_per_hour = price(node, instance_type);
        let published = published.get(&*node.name).copied().unwrap_or_default();
        for (driver, limit) in &instance_type.volume_attachment_limits {
            if !published.iter().any(|one| *one.name == **driver) {
                node.volume_limits.insert(driver.clone(), *limit);
            }
        }
    }
}

fn price(node: &Node, instance_type: &InstanceType) -> Option<f64> {
    let zone = node.labels.get(labels::ZONE)?;
    let capacity_type = node.labels.get(labels::CAPACITY_TYPE)?;
    let mut offerings = instance_type.offerings.iter();
    offerings
        .find(|offering| offering.zone() == Some(zone) && offering.capacity_type() == Some(capacity_type))
        .map(|offering| offering.price_per_hour)
}

pub(crate) fn limited_drivers(drafts: &NodeDrafts, problem: &Problem) -> BTreeSet<Arc<str>> {
    let on_nodes = drafts.drafts.iter().flat_map(|draft| draft.node.volume_limits.keys());
    let types = problem.catalogs.iter().flat_map(|catalog| catalog.iter());
    let on_types = types.flat_map(|one| one.volume_attachment_limits.keys());
    on_nodes.chain(on_types).cloned().collect()
}

fn mentioned_namespaces(objects: &Objects) -> BTreeSet<&str> {
    let pods = objects.pods.iter().map(|pod| pod.namespace());
    let metadata = objects.deployments.iter().map(|one| &one.metadata);
    let metadata = metadata.chain(objects.replica_sets.iter().map(|one| &one.metadata));
    let metadata = metadata.chain(objects.stateful_sets.iter().map(|one| &one.metadata));
    let metadata = metadata.chain(objects.daemon_sets.iter().map(|one| &one.metadata));
    let metadata = metadata.chain(objects.jobs.iter().map(|one| &one.metadata));
    let metadata = metadata.chain(objects.cron_jobs.iter().map(|one| &one.metadata));
    let metadata = metadata.chain(objects.capacity_buffers.iter().map(|one| &one.metadata));
    pods.chain(metadata.map(namespace_of)).collect()
}
