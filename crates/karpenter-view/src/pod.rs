//! The document of one pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::{Chain, Outcome};
use crate::meta::{Meta, ObjectRef};
use crate::node_claim::NodeClaimDocument;
use crate::reason::{Reason, Resolution};

/// Why a pod is pending, or where it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodDocument {
    pub meta: Meta,
    pub pod: ObjectRef,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<ObjectRef>,
    /// The number of pending pods with the same spec, including this one.
    pub replicas: u64,
    /// `Pending`, `Bound`, `Nominated`, `Gated`, `Terminating` or `Finished`.
    pub phase: String,
    /// The creation time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
    /// The node that the pod is bound to or nominated for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    pub summary: String,
    pub resolution: Resolution,
    pub requests: BTreeMap<String, String>,
    /// The reasons by NodePool, the closest NodePool first; the reasons of existing nodes come last.
    pub scopes: Vec<Scope>,
    pub chain: Chain,
    /// The plan for a pod that needs no fix.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Outcome>,
    /// The NodeClaim of the node that the pod is nominated for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_claim: Option<Box<NodeClaimDocument>>,
}

/// What a reason applies to: one NodePool, or some of the existing nodes. If neither is set, the pod itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub existing_nodes: Option<u64>,
    /// Whether the blocker chain is the one of this NodePool, which needs the fewest changes.
    pub closest: bool,
    pub reasons: Vec<Reason>,
}
