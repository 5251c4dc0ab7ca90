//! Sets the condition `NodeClassReady` of a NodePool.
//!
//! Upstream: pkg/controllers/nodepool/readiness.

use karpenter_api::conditions::ConditionSet;
use kube::api::DynamicObject;
use serde_json::Value;

pub(crate) const NODE_CLASS_READY: &str = "NodeClassReady";

/// The state of a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeClassState {
    Missing,
    Terminating,
    /// The condition `Ready` of the node class is missing or `Unknown`.
    Undecided,
    NotReady {
        reason: String,
        message: String,
    },
    Ready,
}

impl NodeClassState {
    pub fn of(class: Option<&DynamicObject>) -> Self {
        let Some(class) = class else { return Self::Missing };
        if class.metadata.deletion_timestamp.is_some() {
            return Self::Terminating;
        }
        let conditions = class.data.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
        match text("status") {
            "True" => Self::Ready,
            "False" => {
                Self::NotReady { reason: text("reason").to_owned(), message: text("message").to_owned() }
            }
            _ => Self::Undecided,
        }
    }
}

/// Sets the condition `NodeClassReady` from the state of the node class.
pub(crate) fn record(conditions: &mut ConditionSet<'_>, class: &NodeClassState) {
    match class {
        NodeClassState::Missing => {
            conditions.set_false(NODE_CLASS_READY, "NodeClassNotFound", "NodeClass not found on cluster")
        }
        NodeClassState::Terminating => {
            conditions.set_false(NODE_CLASS_READY, "NodeClassTerminating", "NodeClass is Terminating")
        }
        NodeClassState::Undecided => conditions.set_false(
            NODE_CLASS_READY,
            "NodeClassReadinessUnknown",
            "Node Class Readiness Unknown",
        ),
        NodeClassState::NotReady { reason, message } => {
            conditions.set_false(NODE_CLASS_READY, reason, message)
        }
        NodeClassState::Ready => conditions.set_true(NODE_CLASS_READY),
    };
}
