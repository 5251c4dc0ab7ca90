//! Annotations that one controller writes to a NodeClaim and others read: the command of a replacement, and the
//! instance that a claim adopts.

use std::collections::BTreeMap;

pub use karpenter_api::labels::ANNOTATION_REPLACES;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::{ConsolidationPolicy, Reason};
use karpenter_disruption::command::Method;
use karpenter_runtime::object::annotation;
use serde::{Deserialize, Serialize};

/// The provider id of an existing instance, for which the claim was created.
pub const ANNOTATION_ADOPTS: &str = "compatibility.karpenter.sh/adopts";

/// The provider id of the instance that a claim adopts instead of a launch.
pub(crate) fn adopted_provider_id(claim: &NodeClaim) -> Option<&str> {
    annotation(claim, ANNOTATION_ADOPTS).filter(|id| !id.is_empty())
}

/// The value of the annotation that a replacement has: the command that created it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplacementAnnotation {
    pub(crate) command: String,
    pub(crate) method: String,
    /// The number of replacements that the command creates.
    pub(crate) launches: usize,
    /// The uid of each candidate, by the name of its NodeClaim.
    pub(crate) claims: BTreeMap<String, String>,
    /// The termination grace period that the command sets on its candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) termination_grace_period_secs: Option<i64>,
    /// Consolidation policies by NodePool, for metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) policies: BTreeMap<String, String>,
    /// The condition that a repair is for, as `type/reason`; used in metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
}

impl ReplacementAnnotation {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn read(claim: &NodeClaim) -> Option<Self> {
        serde_json::from_str(annotation(claim, ANNOTATION_REPLACES)?).ok()
    }
}

pub(crate) fn is_replacement(claim: &NodeClaim) -> bool {
    annotation(claim, ANNOTATION_REPLACES).is_some()
}

/// The reason of the command that created a claim, if any.
pub(crate) fn created_for(claim: &NodeClaim) -> Option<Reason> {
    ReplacementAnnotation::read(claim)
        .and_then(|annotation_value| method(&annotation_value.method))
        .map(Method::reason)
}

pub(crate) fn method_name(method: Method) -> String {
    format!("{method:?}")
}

pub(crate) fn method(name: &str) -> Option<Method> {
    Method::ORDER.into_iter().find(|method| method_name(*method) == name)
}

pub(crate) fn policy_name(policy: ConsolidationPolicy) -> String {
    format!("{policy:?}")
}

pub(crate) fn policy(name: &str) -> Option<ConsolidationPolicy> {
    let all = [
        ConsolidationPolicy::WhenEmpty,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
    ];
    all.into_iter().find(|policy| policy_name(*policy) == name)
}
