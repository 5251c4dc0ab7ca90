//! Node repair: which nodes are unhealthy by the provider's repair policies, and whether to reboot or replace them.
//!
//! Only matches nodes with policies. Whether a repair is allowed (budgets, too many unhealthy nodes) and its execution are
//! in [`crate::disruption`]. The compiled policies and recent reboots are held here.
//!
//! Upstream: pkg/controllers/disruption/repair.go, pkg/controllers/node/health.

pub mod history;
pub mod matching;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::{CloudProvider, RepairAction, RepairPolicies};
use karpenter_disruption::cluster::Repair;
use karpenter_runtime::object::{annotation, name_of, uid_of};

use self::history::RebootHistory;
use self::matching::{HealthFacts, RepairMatch, match_policies};
use super::termination::claim_of;
use crate::context::Context;
use crate::nodeclaim::{REBOOTING, condition};

/// Compiled policies and recent reboots. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Repairs {
    policies: Arc<OnceLock<Option<RepairPolicies>>>,
    pub history: RebootHistory,
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

impl Context {
    /// The repair policies; `None` if node repair is disabled, or done by [`super::legacy_repair`].
    pub fn repair_policies(&self) -> Option<&RepairPolicies> {
        if !self.gates.node_repair || self.settings.is_node_repair_legacy {
            return None;
        }
        let compile = || RepairPolicies::new(self.cloud.repair_policies()).ok();
        self.repairs.policies.get_or_init(compile).as_ref()
    }
}

/// The repairs of nodes whose toleration has passed, by node name.
pub fn repairs(context: &Context, now: Timestamp) -> BTreeMap<String, Repair> {
    repair_cases(context, now).into_iter().map(|(node, found)| (node, found.repair)).collect()
}

/// A repair, and the condition and policy that caused it.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairCase {
    pub matched: RepairMatch,
    /// Whether the node is replaced instead of rebooted, because recent reboots did not help.
    pub is_escalated: bool,
    pub repair: Repair,
}

/// Like [`repairs`], with the cause of each, for logs and metrics.
pub fn repair_cases(context: &Context, now: Timestamp) -> BTreeMap<String, RepairCase> {
    let Some(policies) = context.repair_policies() else { return BTreeMap::new() };
    let nodes = context.stores.nodes.list();
    let cases = nodes.iter().filter_map(|node| {
        let claim = claim_of(&context.stores, node)?;
        if !context.is_managed(&claim.spec.node_class_ref) {
            return None;
        }
        let matched = match_policies(policies, &health_facts(node, &claim), now)?;
        let is_exhausted = context.repairs.history.is_exhausted(uid_of(&*claim), now);
        Some((name_of(&**node).to_owned(), case(matched, is_exhausted, is_vetoed(node, &claim))))
    });
    cases.collect()
}

/// Names of nodes with a condition of a policy, also before its toleration has passed.
pub fn unhealthy_nodes(context: &Context) -> BTreeSet<String> {
    let Some(policies) = context.repair_policies() else { return BTreeSet::new() };
    let nodes = context.stores.nodes.list();
    let unhealthy = nodes.iter().filter(|node| is_unhealthy(policies, node));
    unhealthy.map(|node| name_of(&**node).to_owned()).collect()
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

/// The input of matching. After a reboot, tolerations count from its end.
pub fn health_facts<'a>(node: &'a Node, claim: &NodeClaim) -> HealthFacts<'a> {
    let rebooting = condition(claim, REBOOTING).filter(|found| found.status == ConditionStatus::False);
    let rebooted_at = rebooting.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0);
    HealthFacts { rebooted_at, ..HealthFacts::of(node) }
}

#[cfg(test)]
mod tests;
