//! Node repair: which nodes are unhealthy according to the provider's repair policies, and whether to reboot or replace
//! them.
//!
//! This module only matches nodes with policies. [`crate::disruption`] decides whether a repair is allowed (budgets,
//! too many unhealthy nodes) and executes it. [`crate::state`] holds the compiled policies and the recent reboots.
//!
//! Upstream: pkg/controllers/disruption/repair.go, pkg/controllers/node/health.

pub mod matching;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::{CloudProvider, RepairAction, RepairPolicies};
use karpenter_disruption::cluster::Repair;
use karpenter_runtime::object::{annotation, name_of, uid_of};
use karpenter_state::claim::{REBOOTING, condition};

use self::matching::{HealthFacts, RepairMatch, match_policies};
use crate::inputs::Reads;
use crate::state::repairs::Repairs;

/// Matches nodes with the repair policies of the provider. Clones share all state.
#[derive(Clone)]
pub struct NodeHealth {
    pub reads: Reads,
    pub cloud: Arc<dyn CloudProvider>,
    /// State of node repair that is not in any API object.
    pub repairs: Repairs,
    /// `false` if node repair is disabled, or done by [`crate::node::legacy_repair`].
    pub is_enabled: bool,
}

impl NodeHealth {
    /// The repair policies; `None` if node repair is disabled.
    fn policies(&self) -> Option<&RepairPolicies> {
        if !self.is_enabled {
            return None;
        }
        self.repairs.policies(&*self.cloud)
    }

    /// The repairs that are due, by node name: those of nodes with an unhealthy condition for longer than the
    /// toleration of its policy.
    pub fn repairs(&self, now: Timestamp) -> BTreeMap<String, Repair> {
        self.repair_cases(now).into_iter().map(|(node, found)| (node, found.repair)).collect()
    }

    /// Like [`Self::repairs`], with the condition and policy that caused each repair, for logs and metrics.
    pub fn repair_cases(&self, now: Timestamp) -> BTreeMap<String, RepairCase> {
        let Some(policies) = self.policies() else { return BTreeMap::new() };
        let nodes = self.reads.stores.nodes.list();
        let cases = nodes.iter().filter_map(|node| {
            let claim = self.reads.stores.claim_of_node(node)?;
            if !self.reads.is_managed(&claim.spec.node_class_ref) {
                return None;
            }
            let matched = match_policies(policies, &health_facts(node, &claim), now)?;
            let is_exhausted = self.repairs.history.is_exhausted(uid_of(&*claim), now);
            Some((name_of(&**node).to_owned(), case(matched, is_exhausted, is_vetoed(node, &claim))))
        });
        cases.collect()
    }

    /// Names of nodes with a condition that a policy matches, whether or not its toleration has passed.
    pub fn unhealthy_nodes(&self) -> BTreeSet<String> {
        let Some(policies) = self.policies() else { return BTreeSet::new() };
        let nodes = self.reads.stores.nodes.list();
        let unhealthy = nodes.iter().filter(|node| is_unhealthy(policies, node));
        unhealthy.map(|node| name_of(&**node).to_owned()).collect()
    }
}

/// Why node repair cannot be enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepairUnavailable {
    #[error("node repair requires the cloud provider to define RepairPolicies, but {provider} defines none")]
    NoPolicies { provider: &'static str },
    #[error("node repair requires valid RepairPolicies, but those of {provider} are not: {mistakes}")]
    Invalid { provider: &'static str, mistakes: String },
}

/// Checks the provider's policies; called before any controller starts.
pub fn check_policies(cloud: &dyn CloudProvider) -> Result<(), RepairUnavailable> {
    let policies = cloud.repair_policies();
    let provider = cloud.name();
    if policies.is_empty() {
        return Err(RepairUnavailable::NoPolicies { provider });
    }
    match RepairPolicies::new(policies) {
        Ok(_) => Ok(()),
        Err(error) => Err(RepairUnavailable::Invalid { provider, mistakes: error.to_string() }),
    }
}

/// A repair, and the condition and policy that caused it.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairCase {
    pub matched: RepairMatch,
    /// Whether the node is replaced instead of rebooted, because recent reboots did not help.
    pub is_escalated: bool,
    pub repair: Repair,
}

fn is_unhealthy(policies: &RepairPolicies, node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| policies.covers(&condition.type_, &condition.status))
}

fn case(matched: RepairMatch, is_exhausted: bool, is_vetoed: bool) -> RepairCase {
    let is_escalated = is_exhausted && matched.action == RepairAction::Reboot;
    let repair = Repair {
        condition: format!("{}/{}", matched.condition_type, matched.reason).into(),
        is_reboot: matched.action == RepairAction::Reboot && !is_escalated,
        termination_grace_period_secs: matched
            .termination_grace_period_secs
            .map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
        score: matched.score,
        is_vetoed,
    };
    RepairCase { matched, is_escalated, repair }
}

fn is_vetoed(node: &Node, claim: &NodeClaim) -> bool {
    let says_so = |value: Option<&str>| value == Some("true");
    says_so(annotation(node, labels::ANNOTATION_DO_NOT_REPAIR))
        || says_so(annotation(claim, labels::ANNOTATION_DO_NOT_REPAIR))
}

/// The health of a node for the matching with policies. If a repair rebooted the node, tolerations start again when the
/// reboot ended.
pub fn health_facts<'a>(node: &'a Node, claim: &NodeClaim) -> HealthFacts<'a> {
    let rebooting = condition(claim, REBOOTING).filter(|found| found.status == ConditionStatus::False);
    let rebooted_at = rebooting.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0);
    HealthFacts { rebooted_at, ..HealthFacts::of(node) }
}

#[cfg(test)]
mod tests;
