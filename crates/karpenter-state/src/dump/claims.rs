//! Creates the NodeClaims that a dump lacks, from nodes with the label of a NodePool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use karpenter_api::types::{
    Condition, ConditionStatus, NodeClaim, NodeClaimSpec, NodeClaimStatus, NodePool, Quantities,
};
use karpenter_model::labels;
use rustc_hash::FxHashMap;

use crate::notes::Note;
use crate::objects::Objects;
use crate::pod::Pod;
use crate::pods;
use crate::workloads::name_of;

/// The claims by provider id and by node name.
pub(super) struct Index<'a> {
    by_provider_id: FxHashMap<&'a str, &'a NodeClaim>,
    by_node_name: FxHashMap<&'a str, &'a NodeClaim>,
}

impl<'a> Index<'a> {
    pub(super) fn of(claims: impl Iterator<Item = &'a NodeClaim>) -> Self {
        let mut index = Self { by_provider_id: FxHashMap::default(), by_node_name: FxHashMap::default() };
        for claim in claims {
            let Some(status) = &claim.status else { continue };
            if let Some(id) = status.provider_id.as_deref().filter(|id| !id.is_empty()) {
                index.by_provider_id.insert(id, claim);
            }
            if let Some(name) = status.node_name.as_deref().filter(|name| !name.is_empty()) {
                index.by_node_name.insert(name, claim);
            }
        }
        index
    }

    pub(super) fn find(&self, node: &Node) -> Option<&'a NodeClaim> {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        let by_id = self.by_provider_id.get(id);
        by_id.or_else(|| self.by_node_name.get(name_of(&node.metadata))).copied()
    }
}

pub(super) fn is_terminating(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_true = |one: &Condition| one.status == ConditionStatus::True;
    claim.metadata.deletion_timestamp.is_some()
        || conditions.iter().any(|one| one.type_ == "InstanceTerminating" && is_true(one))
}

/// Adds a claim for every node of a NodePool that has none.
pub(super) fn add_missing(objects: &mut Objects, notes: &mut Vec<Note>) {
    let index = Index::of(objects.node_claims.iter());
    let pools: FxHashMap<&str, &NodePool> =
        objects.node_pools.iter().map(|pool| (name_of(&pool.metadata), pool)).collect();
    let last_events = last_pod_events(&objects.pods);
    let mut made = Vec::new();
    for node in &objects.nodes {
        let Some(pool) = node.metadata.labels.as_ref().and_then(|all| all.get(labels::NODEPOOL)) else {
            continue;
        };
        if index.find(node).is_none() {
            let last_event = last_events.get(name_of(&node.metadata)).copied();
            made.push(claim(node, pools.get(pool.as_str()).copied(), last_event));
        }
    }
    if !made.is_empty() {
        notes.push(Note::ClaimsAssumed { count: made.len() as u32 });
        objects.node_claims.extend(made);
    }
}

/// The start of the newest pod of each node. When a pod was removed is not in the dump.
fn last_pod_events(pods: &[Pod]) -> FxHashMap<&str, Timestamp> {
    let mut newest: FxHashMap<&str, Timestamp> = FxHashMap::default();
    for pod in pods.iter().filter(|pod| !pods::is_owned_by_daemon_set(pod)) {
        let (Some(node), Some(started)) = (pods::node_name(pod), pod.status.started_at) else { continue };
        let entry = newest.entry(node).or_insert(started);
        *entry = started.max(*entry);
    }
    newest
}

fn claim(node: &Node, pool: Option<&NodePool>, last_event: Option<Timestamp>) -> NodeClaim {
    let metadata = &node.metadata;
    let template = pool.map(|pool| &pool.spec.template.spec);
    let status = node.status.as_ref();
    let is_labelled = |key: &str| {
        let labels = metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).is_some_and(|value| value == "true")
    };
    let condition = |name: &str, is_true: bool| Condition {
        type_: name.to_owned(),
        status: if is_true { ConditionStatus::True } else { ConditionStatus::Unknown },
        last_transition_time: metadata.creation_timestamp.clone(),
        ..Condition::default()
    };
    NodeClaim {
        metadata: ObjectMeta {
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            labels: metadata.labels.clone(),
            creation_timestamp: metadata.creation_timestamp.clone(),
            deletion_timestamp: metadata.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: NodeClaimSpec {
            node_class_ref: template.map(|one| one.node_class_ref.clone()).unwrap_or_default(),
            startup_taints: template.and_then(|one| one.startup_taints.clone()),
            expire_after: template.and_then(|one| one.expire_after.clone()),
            termination_grace_period: template.and_then(|one| one.termination_grace_period),
            ..NodeClaimSpec::default()
        },
        status: Some(NodeClaimStatus {
            node_name: metadata.name.clone(),
            provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
            capacity: amounts(status.and_then(|status| status.capacity.as_ref())),
            allocatable: amounts(status.and_then(|status| status.allocatable.as_ref())),
            conditions: vec![
                condition("Registered", is_labelled(labels::REGISTERED)),
                condition("Initialized", is_labelled(labels::INITIALIZED)),
            ],
            last_pod_event_time: last_event.map(Time),
            ..NodeClaimStatus::default()
        }),
        ..NodeClaim::default()
    }
}

fn amounts(raw: Option<&BTreeMap<String, RawQuantity>>) -> Option<Quantities> {
    raw.map(|raw| {
        raw.iter().filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
    })
}
