//! Nodes and their NodeClaims, merged into the nodes of a problem.
//!
//! Until the node has registered, the labels and taints of the claim are used. Until the node is initialized,
//! startup and ephemeral taints are ignored and missing amounts come from the claim. A claim without a node
//! counts as an in-flight node. Nodes that are being deleted are marked: their pods have to move.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as RawNode, Taint as RawTaint};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver};
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_model::labels;
use karpenter_model::problem::Node;
use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::taints::{Effect, Taint};
use rustc_hash::FxHashMap;

use super::{capacity, node_labels, taints};
use crate::intern::Interner;

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const REBOOTING: &str = "karpenter.sh/rebooting";
/// Taints that a node has only until it is initialized, by key and effect.
const EPHEMERAL_TAINTS: [(&str, Effect); 5] = [
    ("node.kubernetes.io/not-ready", Effect::NoSchedule),
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoSchedule),
    ("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule),
    ("karpenter.sh/unregistered", Effect::NoExecute),
];
const READINESS_PREFIX: &str = "readiness.k8s.io/";

/// A node before its pods are added.
#[derive(Debug)]
pub(crate) struct NodeDraft {
    pub(crate) node: Node,
    /// The capacity, including `nodes: 1`: the node's usage of the limits of its NodePool.
    pub(crate) capacity: ResourceList,
    pub(crate) is_deleting: bool,
    /// The positions of the node and of the claim in their lists.
    pub(crate) node_at: Option<usize>,
    pub(crate) claim_at: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct NodeDrafts {
    pub(crate) drafts: Vec<NodeDraft>,
    /// The position of each draft by node name, as in `spec.nodeName` of pods.
    pub(crate) by_node_name: FxHashMap<String, usize>,
    /// Positions of claims that have neither a node nor allocatable.
    pub(crate) unlaunched_claims: Vec<usize>,
}

pub(crate) fn convert_nodes<N: Borrow<RawNode>, C: Borrow<NodeClaim>, S: Borrow<CSINode>>(
    nodes: &[N],
    claims: &[C],
    csi_nodes: &[S],
    interner: &mut Interner,
) -> NodeDrafts {
    let index = ClaimIndex::new(claims.iter().map(Borrow::borrow));
    let csi_nodes: FxHashMap<&str, &CSINode> = csi_nodes
        .iter()
        .map(Borrow::borrow)
        .filter_map(|csi: &CSINode| Some((csi.metadata.name.as_deref()?, csi)))
        .collect();
    let mut result = NodeDrafts::default();
    let mut claim_has_node = vec![false; claims.len()];
    for (node_at, node) in nodes.iter().enumerate() {
        let node: &RawNode = node.borrow();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let position = index.find(node);
        if let Some(position) = position {
            // Several nodes with one claim violate an invariant; the first one gets the claim.
            if std::mem::replace(&mut claim_has_node[position], true) {
                continue;
            }
        }
        let merged = Merged { node: Some(node), claim: position.map(|position| claims[position].borrow()) };
        let places = (Some(node_at), position);
        result.push(name, merged, places, csi_nodes.get(name).copied(), interner);
    }
    for (claim_at, (claim, has_node)) in claims.iter().zip(claim_has_node).enumerate() {
        if has_node {
            continue;
        }
        let claim: &NodeClaim = claim.borrow();
        let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
        let status = claim.status.as_ref();
        if status.and_then(|status| status.allocatable.as_ref()).is_none_or(BTreeMap::is_empty) {
            result.unlaunched_claims.push(claim_at);
            continue;
        }
        let node_name = status.and_then(|status| status.node_name.as_deref()).unwrap_or(claim_name);
        let merged = Merged { node: None, claim: Some(claim) };
        result.push(node_name, merged, (None, Some(claim_at)), None, interner);
    }
    result
}

impl NodeDrafts {
    fn push(
        &mut self,
        name: &str,
        merged: Merged<'_>,
        (node_at, claim_at): (Option<usize>, Option<usize>),
        csi: Option<&CSINode>,
        interner: &mut Interner,
    ) {
        let draft = NodeDraft { node_at, claim_at, ..merged.draft(name, csi, interner) };
        self.by_node_name.insert(name.to_owned(), self.drafts.len());
        self.drafts.push(draft);
    }
}

struct ClaimIndex<'a> {
    by_provider_id: FxHashMap<&'a str, usize>,
    by_node_name: FxHashMap<&'a str, usize>,
}

impl<'a> ClaimIndex<'a> {
    fn new(claims: impl Iterator<Item = &'a NodeClaim>) -> Self {
        let mut index = Self { by_provider_id: FxHashMap::default(), by_node_name: FxHashMap::default() };
        for (position, claim) in claims.enumerate() {
            let Some(status) = &claim.status else { continue };
            if let Some(id) = status.provider_id.as_deref().filter(|id| !id.is_empty()) {
                index.by_provider_id.insert(id, position);
            }
            if let Some(name) = status.node_name.as_deref().filter(|name| !name.is_empty()) {
                index.by_node_name.insert(name, position);
            }
        }
        index
    }

    fn find(&self, node: &RawNode) -> Option<usize> {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let by_id = provider_id.and_then(|id| self.by_provider_id.get(id));
        let name = node.metadata.name.as_deref();
        by_id.or_else(|| name.and_then(|name| self.by_node_name.get(name))).copied()
    }
}

/// A node, a claim, or both.
#[derive(Clone, Copy)]
struct Merged<'a> {
    node: Option<&'a RawNode>,
    claim: Option<&'a NodeClaim>,
}

impl Merged<'_> {
    fn draft(mut self, name: &str, csi: Option<&CSINode>, interner: &mut Interner) -> NodeDraft {
        // Until the kubelet has set the labels of a managed node, its claim has more information than the node, so only
        // the claim is used.
        if self.claim.is_some() && !self.is_initialized() && !self.node_has_label(labels::INSTANCE_TYPE) {
            self.node = None;
        }
        let labels = node_labels(self.label_source(), interner);
        let node = Node {
            name: interner.get(name),
            taints: self.taints(interner),
            initialized: self.is_initialized(),
            pool: labels.get(labels::NODEPOOL).cloned(),
            allocatable: self.amounts(
                |node| node.status.as_ref()?.allocatable.as_ref(),
                |claim| claim.status.as_ref()?.allocatable.as_ref(),
                interner,
            ),
            labels,
            pods: Vec::new(),
            volume_limits: volume_limits(csi, interner),
            price_per_hour: None,
            is_settling: false,
        };
        let mut capacity = self.amounts(
            |node| node.status.as_ref()?.capacity.as_ref(),
            |claim| claim.status.as_ref()?.capacity.as_ref(),
            interner,
        );
        capacity.set(interner.get(NODES), 1);
        NodeDraft { node, capacity, is_deleting: self.is_deleting(), node_at: None, claim_at: None }
    }

    fn node_label(&self, key: &str) -> Option<&str> {
        self.node?.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn node_has_label(&self, key: &str) -> bool {
        self.node_label(key).is_some_and(|value| !value.is_empty())
    }

    fn is_registered(&self) -> bool {
        self.claim.is_none() || self.node_label(labels::REGISTERED) == Some("true")
    }

    fn is_initialized(&self) -> bool {
        self.claim.is_none() || self.node_label(labels::INITIALIZED) == Some("true")
    }

    fn claim_condition_is_true(&self, condition: &str) -> bool {
        let conditions =
            self.claim.and_then(|claim| claim.status.as_ref()).map_or(&[][..], |s| &s.conditions);
        conditions.iter().any(|one| one.type_ == condition && one.status == ConditionStatus::True)
    }

    fn is_deleting(&self) -> bool {
        match (self.claim, self.node) {
            (Some(claim), _) => {
                claim.metadata.deletion_timestamp.is_some()
                    || self.claim_condition_is_true("InstanceTerminating")
            }
            (None, Some(node)) => node.metadata.deletion_timestamp.is_some(),
            (None, None) => false,
        }
    }

    fn label_source(&self) -> Option<&BTreeMap<String, String>> {
        match (self.node, self.claim) {
            (Some(node), _) if self.is_registered() => node.metadata.labels.as_ref(),
            (_, Some(claim)) => claim.metadata.labels.as_ref(),
            (Some(node), None) => node.metadata.labels.as_ref(),
            (None, None) => None,
        }
    }

    fn taints(&self, interner: &mut Interner) -> Vec<Taint> {
        let spec = self.node.and_then(|node| node.spec.as_ref());
        let mut found = match (self.node, self.claim) {
            (Some(_), _) if self.is_registered() => {
                taints(spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten(), interner)
            }
            (_, Some(claim)) => taints(claim.spec.taints.iter().flatten(), interner),
            _ => Vec::new(),
        };
        let is_cordoned = spec.is_some_and(|spec| spec.unschedulable == Some(true));
        if is_cordoned && !found.iter().any(|taint| &*taint.key == UNSCHEDULABLE) {
            let (key, value) = (interner.get(UNSCHEDULABLE), interner.get(""));
            found.push(Taint { key, value, effect: Effect::NoSchedule });
        }
        // The pods that the reboot removed from the node wait for it, so the node is converted as it will be after the
        // reboot.
        let is_rebooting = self.claim_condition_is_true("Rebooting");
        if !self.is_initialized() || is_rebooting {
            let startup: &[RawTaint] =
                self.claim.and_then(|claim| claim.spec.startup_taints.as_deref()).unwrap_or(&[]);
            found.retain(|taint| {
                let is_startup =
                    startup.iter().any(|one| *one.key == *taint.key && one.effect == taint.effect.as_str());
                !(is_startup || is_ephemeral(taint) || (is_rebooting && &*taint.key == REBOOTING))
            });
        }
        found
    }

    /// The amounts of the node; until it is initialized, missing amounts come from the claim.
    fn amounts(
        &self,
        of_node: impl Fn(
            &RawNode,
        )
            -> Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
        of_claim: impl Fn(&NodeClaim) -> Option<&BTreeMap<String, Quantity>>,
        interner: &mut Interner,
    ) -> ResourceList {
        let reported = self.node.and_then(of_node).into_iter().flatten();
        let reported = reported.filter_map(|(name, amount)| Some((name.as_str(), amount.0.parse().ok()?)));
        let mut amounts = capacity(reported, interner);
        if self.node.is_none() || !self.is_initialized() {
            let claimed = self.claim.and_then(of_claim).into_iter().flatten();
            let claimed = capacity(claimed.map(|(name, amount)| (name.as_str(), *amount)), interner);
            for (name, amount) in claimed.iter() {
                if amounts.get(name) == 0 {
                    amounts.set(name.clone(), amount);
                }
            }
        }
        amounts
    }
}

fn is_ephemeral(taint: &Taint) -> bool {
    taint.key.starts_with(READINESS_PREFIX)
        || EPHEMERAL_TAINTS.iter().any(|(key, effect)| *key == &*taint.key && *effect == taint.effect)
}

/// The maximum number of volumes per CSI driver; a driver without a count has no limit.
fn volume_limits(csi: Option<&CSINode>, interner: &mut Interner) -> BTreeMap<Arc<str>, u32> {
    let drivers = csi.map_or(&[][..], |csi| &csi.spec.drivers);
    drivers
        .iter()
        .filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((interner.get(&driver.name), u32::try_from(count).ok()?))
        })
        .collect()
}

/// The drivers that each node has registered, with or without a limit.
pub(crate) fn published_drivers<S: Borrow<CSINode>>(csi_nodes: &[S]) -> FxHashMap<&str, &[CSINodeDriver]> {
    let published = csi_nodes.iter().map(Borrow::<CSINode>::borrow);
    published.filter_map(|csi| Some((csi.metadata.name.as_deref()?, csi.spec.drivers.as_slice()))).collect()
}
