//! Matches the conditions of one node with repair policies. This is a pure function.
//!
//! Upstream: pkg/controllers/node/health.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_cloud::repair::CompiledPolicy;
use karpenter_cloud::{RepairAction, RepairPolicies};

/// A node whose toleration passed this long ago gets the same score as one with the next higher priority whose
/// toleration has just passed.
const RANK_SECONDS: f64 = 30.0 * 60.0;

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub since: Option<Timestamp>,
}

/// The input of matching for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthFacts<'a> {
    pub conditions: Vec<NodeCondition<'a>>,
    pub created_at: Timestamp,
    /// When a repair last rebooted the node. Conditions from before the reboot count from this time, because they may
    /// not be updated yet.
    pub rebooted_at: Option<Timestamp>,
}

impl<'a> HealthFacts<'a> {
    pub fn of(node: &'a Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let conditions = conditions.into_iter().map(|condition| NodeCondition {
            kind: &condition.type_,
            status: &condition.status,
            reason: condition.reason.as_deref().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        });
        let created = node.metadata.creation_timestamp.as_ref();
        Self {
            conditions: conditions.collect(),
            created_at: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            rebooted_at: None,
        }
    }
}

/// The repair of a node, and the condition and policy that decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairMatch {
    pub action: RepairAction,
    pub condition_type: String,
    pub condition_status: String,
    pub reason: String,
    pub reason_regex: String,
    pub is_fallback: bool,
    /// When the toleration of the policy that decided the repair passed.
    pub eligible_at: Timestamp,
    /// The shortest termination grace period of all policies that match and whose toleration has passed.
    pub termination_grace_period_secs: Option<u64>,
    /// The urgency of the repair: the rank of the policy's priority, plus the time since the toleration passed in half
    /// hours. Nodes with a higher score are repaired first.
    pub score: f64,
}

struct MatchedPolicy<'a> {
    policy: &'a CompiledPolicy,
    condition: &'a NodeCondition<'a>,
    eligible_at: Timestamp,
}

/// The repair of a node; `None` if no policy matches, or no toleration has passed.
pub fn match_policies(
    policies: &RepairPolicies,
    facts: &HealthFacts<'_>,
    now: Timestamp,
) -> Option<RepairMatch> {
    let matched = matched(policies, facts);
    let due: Vec<&MatchedPolicy<'_>> =
        matched.iter().filter(|matched_policy| matched_policy.eligible_at <= now).collect();
    let decisive = due.iter().min_by_key(|matched_policy| {
        let policy = &matched_policy.policy.policy;
        (
            Reverse(policy.action),
            Reverse(policy.priority),
            matched_policy.eligible_at,
            matched_policy.condition.kind,
        )
    })?;
    let bounds =
        due.iter().filter_map(|matched_policy| matched_policy.policy.policy.termination_grace_period_secs);
    let score = due.iter().map(|matched_policy| score(matched_policy, now)).fold(0.0, f64::max);
    let policy = &decisive.policy.policy;
    Some(RepairMatch {
        action: policy.action,
        condition_type: decisive.condition.kind.to_owned(),
        condition_status: decisive.condition.status.to_owned(),
        reason: decisive.condition.reason.to_owned(),
        reason_regex: policy.reason_regex.clone(),
        is_fallback: decisive.policy.is_fallback(),
        eligible_at: decisive.eligible_at,
        termination_grace_period_secs: bounds.min(),
        score,
    })
}

fn matched<'a>(policies: &'a RepairPolicies, facts: &'a HealthFacts<'a>) -> Vec<MatchedPolicy<'a>> {
    let mut matched = Vec::new();
    for condition in &facts.conditions {
        // A condition counts from the latest of three times: its transition, the creation of the node, and the last
        // reboot.
        let since = [Some(facts.created_at), facts.rebooted_at, condition.since].into_iter().flatten().max();
        let since = since.unwrap_or(facts.created_at);
        for policy in policies.matching(condition.kind, condition.status, condition.reason) {
            let seconds = i64::try_from(policy.policy.toleration_secs).unwrap_or(i64::MAX);
            let eligible_at = since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
            matched.push(MatchedPolicy { policy, condition, eligible_at });
        }
    }
    matched
}

fn score(matched_policy: &MatchedPolicy<'_>, now: Timestamp) -> f64 {
    let age = now.duration_since(matched_policy.eligible_at).as_secs_f64();
    f64::from(matched_policy.policy.rank) + age / RANK_SECONDS
}
