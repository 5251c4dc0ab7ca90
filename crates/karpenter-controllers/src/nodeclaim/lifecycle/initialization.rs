//! Initialization: decides whether a registered node is ready, has no startup or ephemeral taints, and reports every
//! requested resource.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/initialization.go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_runtime::object::label;
use karpenter_state::claim::{
    INITIALIZED, REBOOTING, REGISTERED, condition_status, is_true, unregistered_resource,
};
use karpenter_state::node::is_node_ready;
use serde_json::{Value, json};

/// Kubernetes' node lifecycle controller removes this taint shortly after the node has become ready.
const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Debug)]
pub(super) enum Initialization {
    /// The condition `Initialized` was set in an earlier reconcile, so there is nothing to decide.
    AlreadyDecided,
    /// The node is not registered, or it is rebooting.
    NotApplicable,
    NotYet {
        reason: &'static str,
        message: String,
        /// The node, if `not-ready` is its only ephemeral taint, so that pods can be scheduled to it soon.
        opens: Option<Arc<Node>>,
    },
    Done {
        node: Arc<Node>,
        patch: Option<Value>,
    },
}

pub(super) fn decide(claim: &NodeClaim, nodes: &[Arc<Node>]) -> Initialization {
    if condition_status(claim, INITIALIZED) != ConditionStatus::Unknown {
        return Initialization::AlreadyDecided;
    }
    if is_true(claim, REBOOTING) || !is_true(claim, REGISTERED) {
        return Initialization::NotApplicable;
    }
    let [node] = nodes else {
        return not_yet("NodeNotFound", "Node not registered with cluster".to_owned());
    };
    if !is_node_ready(node) {
        return not_yet("NodeNotReady", "Node status is NotReady".to_owned());
    }
    let taints: Vec<&Taint> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
    let startup = claim.spec.startup_taints.iter().flatten().find_map(|startup| {
        taints.iter().find(|taint| taint.key == startup.key && taint.effect == startup.effect)
    });
    if let Some(taint) = startup {
        return not_yet("StartupTaintsExist", format!("StartupTaint {:?} still exists", text(taint)));
    }
    if let Some(taint) = taints.iter().find(|taint| labels::is_ephemeral_taint(&taint.key, &taint.effect)) {
        let message = format!("KnownEphemeralTaint {:?} still exists", text(taint));
        let is_opening = taints.iter().all(|taint| {
            taint.key == TAINT_NOT_READY || !labels::is_ephemeral_taint(&taint.key, &taint.effect)
        });
        let opens = is_opening.then(|| node.clone());
        return Initialization::NotYet { reason: "KnownEphemeralTaintsExist", message, opens };
    }
    if let Some(name) = unregistered_resource(claim, node) {
        let message = format!("Resource {name:?} was requested but not registered");
        return not_yet("ResourceNotRegistered", message);
    }
    let patch = (label(&**node, labels::INITIALIZED) != Some("true"))
        .then(|| json!({"metadata": {"labels": {labels::INITIALIZED: "true"}}}));
    Initialization::Done { node: node.clone(), patch }
}

fn not_yet(reason: &'static str, message: String) -> Initialization {
    Initialization::NotYet { reason, message, opens: None }
}

fn text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}
