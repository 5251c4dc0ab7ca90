//! Registration: the finalizer, owner, labels, annotations and taints that a new Node gets from its NodeClaim before pods
//! can be scheduled to it.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/registration.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use karpenter_api::labels::{self, FINALIZER_TERMINATION, TAINT_UNREGISTERED};
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_runtime::object::{is_deleting, label};
use karpenter_state::claim::{REGISTERED, condition_status};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(super) enum Registration {
    /// The condition `Registered` was set in an earlier reconcile, so there is nothing to decide.
    AlreadyDecided,
    NodeMissing,
    MultipleNodes,
    /// The node can be registered. The patch adds what the node lacks and removes the unregistered taint.
    Register {
        node: Arc<Node>,
        patch: Option<Value>,
        lacks_taint: bool,
    },
    /// The node cannot be registered yet, because the hooks `by` are not ready. The patch adds what the node lacks, but
    /// keeps the unregistered taint.
    Held {
        node: Arc<Node>,
        patch: Option<Value>,
        lacks_taint: bool,
        by: Vec<String>,
    },
}

/// Whether the node can be registered if the hooks are ready.
pub(super) fn is_ready_to_register(claim: &NodeClaim, nodes: &[Arc<Node>]) -> bool {
    matches!(decide(claim, nodes, &[]), Registration::Register { .. })
}

/// Decides whether the node can be registered. `held_by` contains the names of the hooks that are not ready.
pub(super) fn decide(claim: &NodeClaim, nodes: &[Arc<Node>], held_by: &[String]) -> Registration {
    if condition_status(claim, REGISTERED) != ConditionStatus::Unknown {
        return Registration::AlreadyDecided;
    }
    match nodes {
        [] => Registration::NodeMissing,
        // A terminating node is treated as missing, because no finalizer can be added to it.
        [node] if is_deleting(&**node) => Registration::NodeMissing,
        [node] => {
            let lacks_taint =
                label(&**node, labels::REGISTERED).is_none() && !taints_of(node).any(is_unregistered);
            let (patch, node) = (patch(claim, node, held_by.is_empty()), node.clone());
            match held_by {
                [] => Registration::Register { node, patch, lacks_taint },
                by => Registration::Held { node, patch, lacks_taint, by: by.to_vec() },
            }
        }
        _ => Registration::MultipleNodes,
    }
}

fn taints_of(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn is_unregistered(taint: &Taint) -> bool {
    taint.key == TAINT_UNREGISTERED && taint.effect == "NoExecute"
}

fn patch(claim: &NodeClaim, node: &Node, opens: bool) -> Option<Value> {
    let mut metadata = Map::new();
    let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER_TERMINATION) {
        finalizers.push(FINALIZER_TERMINATION.to_owned());
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if let Some(owners) = owners(claim, node) {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }
    let annotations = missing(claim.metadata.annotations.as_ref(), node.metadata.annotations.as_ref());
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    let mut wanted = claim.metadata.labels.clone().unwrap_or_default();
    if opens {
        wanted.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    }
    let missing_labels = missing(Some(&wanted), node.metadata.labels.as_ref());
    if !missing_labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(missing_labels));
    }

    let mut patch = Map::new();
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let before: Vec<Taint> = taints_of(node).cloned().collect();
    let mut after = taints(claim, node);
    if opens {
        after.retain(|taint| !is_unregistered(taint));
    }
    if before != after {
        patch.insert("spec".to_owned(), json!({ "taints": after }));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The entries of `wanted` that the node does not have with the same value.
fn missing<'a>(
    wanted: Option<&'a BTreeMap<String, String>>,
    present: Option<&BTreeMap<String, String>>,
) -> BTreeMap<&'a String, &'a String> {
    let wanted = wanted.into_iter().flatten();
    wanted.filter(|(key, value)| present.and_then(|present| present.get(*key)) != Some(*value)).collect()
}

fn owners(claim: &NodeClaim, node: &Node) -> Option<Vec<OwnerReference>> {
    let mut owners = node.metadata.owner_references.clone().unwrap_or_default();
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let is_ours = |owner: &OwnerReference| {
        owner.api_version == claim.api_version && owner.kind == claim.kind && owner.uid == uid
    };
    if owners.iter().any(is_ours) {
        return None;
    }
    owners.push(OwnerReference {
        api_version: claim.api_version.clone(),
        kind: claim.kind.clone(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        uid: uid.clone(),
        block_owner_deletion: Some(true),
        controller: None,
    });
    Some(owners)
}

/// The taints of the node after registration: its own, and those of the claim that it lacks. Taints are compared by key
/// and effect.
fn taints(claim: &NodeClaim, node: &Node) -> Vec<Taint> {
    let mut taints: Vec<Taint> = taints_of(node).cloned().collect();
    if label(node, labels::DO_NOT_SYNC_TAINTS) != Some("true") {
        let wanted = claim.spec.taints.iter().flatten().chain(claim.spec.startup_taints.iter().flatten());
        for taint in wanted {
            if !taints.iter().any(|present| present.key == taint.key && present.effect == taint.effect) {
                taints.push(taint.clone());
            }
        }
    }
    taints
}
