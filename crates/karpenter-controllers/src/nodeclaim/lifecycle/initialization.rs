//! Initialization: a registered node is ready, has no startup and ephemeral taints, and reports every requested resource.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/initialization.go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_model::quantity::Quantity;
use karpenter_runtime::object::label;
use serde_json::{Value, json};

use crate::nodeclaim::{INITIALIZED, REBOOTING, REGISTERED, condition_status, is_node_ready, is_true};

/// The node lifecycle controller removes this taint shortly after the node became ready.
const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Debug)]
pub(super) enum Initialization {
    /// The condition was set in an earlier reconcile.
    AlreadyDecided,
    /// The node is not registered, or it is rebooting.
    NotApplicable,
    NotYet {
        reason: &'static str,
        message: String,
        /// The node, if `not-ready` is its only ephemeral taint: pods can be scheduled to it soon.
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

/// Whether the node reports a quantity of every requested resource.
pub(crate) fn has_all_resources(claim: &NodeClaim, node: &Node) -> bool {
    unregistered_resource(claim, node).is_none()
}

/// The first requested resource that the node does not report; its device plugin is not registered yet.
fn unregistered_resource<'a>(claim: &'a NodeClaim, node: &Node) -> Option<&'a str> {
    let requests = claim.spec.resources.as_ref()?.requests.as_ref()?;
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let has = |name: &str| {
        let amount = allocatable.and_then(|amounts| amounts.get(name));
        amount.and_then(|amount| amount.0.parse::<Quantity>().ok()).is_some_and(|amount| !amount.is_zero())
    };
    requests.iter().find(|(name, amount)| !amount.is_zero() && !has(name)).map(|(name, _)| name.as_str())
}
