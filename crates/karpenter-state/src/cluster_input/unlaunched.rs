//! Nodes for NodeClaims that are not launched yet, with the minimum allocatable and the maximum capacity that they may
//! have.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_api::types::NodeClaim;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::problem::Node;
use karpenter_model::requirements::{Operator, Requirements};
use karpenter_model::resources::{NODES, ResourceList};

use super::{ClusterInput, PoolInput};
use crate::convert::node::{NodeDraft, NodeDrafts};
use crate::convert::{capacity, node_labels, requirement, taints};
use crate::intern::Interner;
use crate::workloads::name_of;

/// Adds nodes for claims whose size the conversion could not determine.
pub(super) fn add_drafts<'a>(
    cluster: &ClusterInput,
    pools: impl Iterator<Item = &'a PoolInput>,
    drafts: &mut NodeDrafts,
    interner: &mut Interner,
) {
    let catalogs: BTreeMap<&str, &Vec<InstanceType>> =
        pools.map(|one| (name_of(&one.pool.metadata), &*one.instance_types)).collect();
    for claim_at in std::mem::take(&mut drafts.unlaunched_claims) {
        let claim = &cluster.node_claims[claim_at];
        let pool = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODEPOOL));
        let catalog = pool.and_then(|pool| catalogs.get(pool.as_str()));
        let draft = draft(claim, catalog.map_or(&[][..], |types| types), interner);
        drafts.drafts.push(NodeDraft { claim_at: Some(claim_at), ..draft });
    }
}

fn draft(claim: &NodeClaim, catalog: &[InstanceType], interner: &mut Interner) -> NodeDraft {
    let wanted = requirements(claim, interner);
    let options: Vec<&InstanceType> = catalog.iter().filter(|one| is_option(one, &wanted)).collect();
    let mut labels = node_labels(claim.metadata.labels.as_ref(), interner);
    for requirement in wanted.iter() {
        if let Some(value) = requirement.single_value() {
            labels.entry(requirement.key.clone()).or_insert_with(|| value.clone());
        }
    }
    let requested = requested(claim, interner);
    let mut size = ResourceList::new();
    for option in &options {
        raise(&mut size, &option.capacity);
        let overridden = option.offerings.iter().filter(|offering| offering.overrides.is_some());
        overridden.for_each(|offering| raise(&mut size, &option.capacity_of(offering)));
    }
    size.set(interner.get(NODES), 1);
    let node = Node {
        name: interner.get(name_of(&claim.metadata)),
        taints: taints(claim.spec.taints.iter().flatten(), interner),
        initialized: false,
        pool: labels.get(labels::NODEPOOL).cloned(),
        labels,
        allocatable: least(&options, &wanted, &requested).unwrap_or(requested),
        pods: Vec::new(),
        volume_limits: BTreeMap::new(),
        price_per_hour: None,
        is_settling: false,
    };
    let is_deleting = claim.metadata.deletion_timestamp.is_some();
    NodeDraft { node, capacity: size, is_deleting, node_at: None, claim_at: None }
}

fn requirements(claim: &NodeClaim, interner: &mut Interner) -> Requirements {
    let listed = claim.spec.requirements.iter();
    listed
        .filter_map(|one| {
            let operator = Operator::parse(&one.operator)?;
            Some(requirement::requirement(&one.key, operator, &one.values, interner))
        })
        .collect()
}

fn is_option(instance_type: &InstanceType, wanted: &Requirements) -> bool {
    let is_named = wanted.get(labels::INSTANCE_TYPE).is_none_or(|names| names.has(&instance_type.name));
    is_named && instance_type.requirements.intersects(wanted)
}

/// The minimum allocatable over all options, in any offering that a launch could use for these requests.
fn least(options: &[&InstanceType], wanted: &Requirements, requested: &ResourceList) -> Option<ResourceList> {
    let mut amounts = options.iter().flat_map(|option| {
        let base = option.allocatable();
        if !option.has_overrides() {
            return vec![base];
        }
        let offerings = option.offerings.iter().filter(|one| one.requirements.intersects(wanted));
        let holding = offerings.map(|one| option.allocatable_of(one)).filter(|one| one.holds(requested));
        let holding: Vec<ResourceList> = holding.collect();
        if holding.is_empty() { vec![base] } else { holding }
    });
    let mut least = amounts.next()?;
    for other in amounts {
        let names: Vec<Arc<str>> = least.names().cloned().collect();
        for name in names {
            let amount = least.get(&name).min(other.get(&name));
            least.set(name, amount);
        }
    }
    Some(least)
}

fn raise(most: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other.iter() {
        if amount > most.get(name) {
            most.set(name.clone(), amount);
        }
    }
}

/// The requests of the claim, used if there is no catalog, because then nothing else about its size is known.
fn requested(claim: &NodeClaim, interner: &mut Interner) -> ResourceList {
    let requests = claim.spec.resources.iter().filter_map(|resources| resources.requests.as_ref()).flatten();
    capacity(requests.map(|(name, amount)| (name.as_str(), *amount)), interner)
}
