//! Which nodes are sick, and what their provider wants done about each of them now.
//!
//! Only says so: whether a repair is allowed (budgets, too many sick nodes at once) and how it is carried out is the
//! disruption loop's business. The policies are compiled once; what was restarted lately is remembered here.

pub mod diagnosis;
pub mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim};
use karpenter_cloud::{CloudProvider, RepairAction, RepairPolicies};
use karpenter_cluster::controllers::context::{annotation, name_of, uid_of};
use karpenter_disruption::fleet::Repair;

use self::diagnosis::{Diagnosis, Patient, diagnose};
use self::history::RebootHistory;
use super::termination::claim_of;
use crate::context::Context;
use crate::nodeclaim::{REBOOTING, condition};

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Repairs {
    policies: Arc<OnceLock<Option<RepairPolicies>>>,
    pub history: RebootHistory,
}

/// Why node repair cannot be switched on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepairUnavailable {
    #[error("node repair requires the cloud provider to define RepairPolicies, but {provider} defines none")]
    NoPolicies { provider: &'static str },
    #[error("node repair requires valid RepairPolicies, but those of {provider} are not: {mistakes}")]
    Invalid { provider: &'static str, mistakes: String },
}

/// Whether the provider's policies can be worked with; to be asked before anything starts.
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
    /// The policies by which nodes are repaired within the disruption loop; `None` if they are not.
    pub fn repair_policies(&self) -> Option<&RepairPolicies> {
        if !self.gates.node_repair || self.settings.is_node_repair_legacy {
            return None;
        }
        let compile = || RepairPolicies::new(self.cloud.repair_policies()).ok();
        self.repairs.policies.get_or_init(compile).as_ref()
    }
}

/// What policies say about nodes that have been sick for long enough, by node name.
pub fn repairs(context: &Context, now: Timestamp) -> BTreeMap<String, Repair> {
    diagnoses(context, now).into_iter().map(|(node, found)| (node, found.repair)).collect()
}

/// A repair with its grounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub diagnosis: Diagnosis,
    /// A restart that was made a replacement because restarts have not helped.
    pub is_escalated: bool,
    pub repair: Repair,
}

/// The same with the grounds of each, for logs and metrics.
pub fn diagnoses(context: &Context, now: Timestamp) -> BTreeMap<String, Case> {
    let Some(policies) = context.repair_policies() else { return BTreeMap::new() };
    let nodes = context.stores.nodes.list();
    let cases = nodes.iter().filter_map(|node| {
        let claim = claim_of(&context.stores, node)?;
        if !context.is_managed(&claim.spec.node_class_ref) {
            return None;
        }
        let diagnosis = diagnose(policies, &patient(node, &claim), now)?;
        let is_exhausted = context.repairs.history.is_exhausted(uid_of(&*claim), now);
        Some((name_of(&**node).to_owned(), case(diagnosis, is_exhausted, is_vetoed(node, &claim))))
    });
    cases.collect()
}

/// Names of nodes with a condition that some policy names, however long they have had it.
pub fn sick_nodes(context: &Context) -> BTreeSet<String> {
    let Some(policies) = context.repair_policies() else { return BTreeSet::new() };
    let nodes = context.stores.nodes.list();
    let sick = nodes.iter().filter(|node| is_sick(policies, node));
    sick.map(|node| name_of(&**node).to_owned()).collect()
}

fn is_sick(policies: &RepairPolicies, node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| policies.covers(&condition.type_, &condition.status))
}

fn case(diagnosis: Diagnosis, is_exhausted: bool, is_vetoed: bool) -> Case {
    let is_escalated = is_exhausted && diagnosis.action == RepairAction::Reboot;
    let repair = Repair {
        condition: format!("{}/{}", diagnosis.condition_type, diagnosis.reason).into(),
        is_reboot: diagnosis.action == RepairAction::Reboot && !is_escalated,
        termination_grace_period_secs: diagnosis
            .termination_grace_period_secs
            .map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
        score: diagnosis.score,
        is_vetoed,
    };
    Case { diagnosis, is_escalated, repair }
}

fn is_vetoed(node: &Node, claim: &NodeClaim) -> bool {
    let says_so = |value: Option<&str>| value == Some("true");
    says_so(annotation(node, labels::ANNOTATION_DO_NOT_REPAIR))
        || says_so(annotation(claim, labels::ANNOTATION_DO_NOT_REPAIR))
}

/// What matching looks at. A node that was restarted gets its whole toleration again.
pub fn patient<'a>(node: &'a Node, claim: &NodeClaim) -> Patient<'a> {
    let rebooting = condition(claim, REBOOTING).filter(|found| found.status == ConditionStatus::False);
    let rebooted_at = rebooting.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0);
    Patient { rebooted_at, ..Patient::of(node) }
}

#[cfg(test)]
mod tests;
