//! The finalizer of a NodeClaim: it is added before the launch, and removed when the Node and the instance no longer
//! exist.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/controller.go (`finalize`).

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels::{self, ANNOTATION_TERMINATION_TIMESTAMP, FINALIZER_TERMINATION};
use karpenter_api::types::NodeClaim;
use karpenter_cloud::CloudError;
use karpenter_runtime::clock::whole_seconds;
use karpenter_runtime::object::{annotation, is_deleting, label};
use karpenter_state::claim::{REGISTERED, is_true, provider_id};
use serde_json::{Map, Value, json};

/// The interval in which a terminating instance is checked.
pub(super) const RETRY_TERMINATION: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Finalize {
    /// The finalizer was removed already, so there is nothing to do.
    Nothing,
    SetDeadline {
        deadline: String,
    },
    DeleteNodes(Vec<Arc<Node>>),
    AwaitNodes,
    TerminateInstance {
        provider_id: String,
    },
    Release,
}

/// The patch that adds the finalizer, without which no instance is launched, and the node class label.
pub(super) fn protection(claim: &NodeClaim) -> Option<Value> {
    let mut metadata = Map::new();
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER_TERMINATION) {
        finalizers.push(FINALIZER_TERMINATION.to_owned());
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        let class = &claim.spec.node_class_ref;
        let key = labels::node_class_label(&class.group, &class.kind);
        if label(claim, &key) != Some(&class.name) {
            metadata.insert("labels".to_owned(), json!({ key: class.name }));
        }
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

/// Decides the next step of a terminating claim. `unstored` is the provider id of an instance that was launched for the
/// claim but could not be written to its status.
pub(super) fn decide(claim: &NodeClaim, nodes: &[Arc<Node>], unstored: Option<&str>) -> Finalize {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    if !finalizers.into_iter().any(|finalizer| finalizer == FINALIZER_TERMINATION) {
        return Finalize::Nothing;
    }
    if let Some(deadline) = deadline(claim) {
        return Finalize::SetDeadline { deadline };
    }
    // Only the Node of a registered claim is deleted here. The Node of an unregistered claim disappears with its
    // instance.
    if is_true(claim, REGISTERED) && !nodes.is_empty() {
        let alive: Vec<Arc<Node>> = nodes.iter().filter(|node| !is_deleting(&***node)).cloned().collect();
        return if alive.is_empty() { Finalize::AwaitNodes } else { Finalize::DeleteNodes(alive) };
    }
    match provider_id(claim).or(unstored) {
        Some(id) => Finalize::TerminateInstance { provider_id: id.to_owned() },
        None => Finalize::Release,
    }
}

/// The termination deadline to write as annotation; `None` if the claim has the annotation already or no termination
/// grace period.
fn deadline(claim: &NodeClaim) -> Option<String> {
    if annotation(claim, ANNOTATION_TERMINATION_TIMESTAMP).is_some() {
        return None;
    }
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_nanos(claim.spec.termination_grace_period?.nanos);
    Some(whole_seconds(deleted.checked_add(grace).ok()?).to_string())
}

/// How long to wait until the provider is called again to terminate the instance. Depends on the error of the last
/// call.
pub(super) fn retry_after(error: &CloudError) -> Duration {
    match error {
        CloudError::Throttled { .. } | CloudError::Unauthorized { .. } => Duration::from_secs(30),
        _ => RETRY_TERMINATION,
    }
}
