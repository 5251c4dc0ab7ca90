//! What repair policies say about one node at one moment. A pure function; upstream: pkg/controllers/node/health.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use karpenter_cloud::repair::CompiledPolicy;
use karpenter_cloud::{RepairAction, RepairPolicies};

/// Waiting this long past its toleration lifts a node by one rank of priority.
const RANK_SECONDS: f64 = 30.0 * 60.0;

/// A condition of a node as matching sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symptom<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub since: Option<Timestamp>,
}

/// Everything about a node that matching looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patient<'a> {
    pub symptoms: Vec<Symptom<'a>>,
    pub created_at: Timestamp,
    /// When it was last restarted by a repair: conditions may not have caught up with it.
    pub rebooted_at: Option<Timestamp>,
}

impl<'a> Patient<'a> {
    pub fn of(node: &'a Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let symptoms = conditions.into_iter().map(|condition| Symptom {
            kind: &condition.type_,
            status: &condition.status,
            reason: condition.reason.as_deref().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        });
        let created = node.metadata.creation_timestamp.as_ref();
        Self {
            symptoms: symptoms.collect(),
            created_at: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            rebooted_at: None,
        }
    }
}

/// What is to be done about a node, and the condition that decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    pub action: RepairAction,
    pub condition_type: String,
    pub condition_status: String,
    pub reason: String,
    pub reason_regex: String,
    pub is_fallback: bool,
    /// Since when the policy that decided could have been acted on.
    pub eligible_at: Timestamp,
    /// The shortest bound that any policy sets which may be acted on, whether it decided or not.
    pub termination_grace_period_secs: Option<u64>,
    /// Rank of priority and age in half hours; more goes first.
    pub score: f64,
}

struct Finding<'a> {
    policy: &'a CompiledPolicy,
    symptom: &'a Symptom<'a>,
    eligible_at: Timestamp,
}

/// `None` if no policy applies, or none has waited out its toleration.
pub fn diagnose(policies: &RepairPolicies, patient: &Patient<'_>, now: Timestamp) -> Option<Diagnosis> {
    let findings = findings(policies, patient);
    let due: Vec<&Finding<'_>> = findings.iter().filter(|finding| finding.eligible_at <= now).collect();
    let decisive = due.iter().min_by_key(|finding| {
        let policy = &finding.policy.policy;
        (Reverse(policy.action), Reverse(policy.priority), finding.eligible_at, finding.symptom.kind)
    })?;
    let bounds = due.iter().filter_map(|finding| finding.policy.policy.termination_grace_period_secs);
    let score = due.iter().map(|finding| score(finding, now)).fold(0.0, f64::max);
    let policy = &decisive.policy.policy;
    Some(Diagnosis {
        action: policy.action,
        condition_type: decisive.symptom.kind.to_owned(),
        condition_status: decisive.symptom.status.to_owned(),
        reason: decisive.symptom.reason.to_owned(),
        reason_regex: policy.reason_regex.clone(),
        is_fallback: decisive.policy.is_fallback(),
        eligible_at: decisive.eligible_at,
        termination_grace_period_secs: bounds.min(),
        score,
    })
}

fn findings<'a>(policies: &'a RepairPolicies, patient: &'a Patient<'a>) -> Vec<Finding<'a>> {
    let mut findings = Vec::new();
    for symptom in &patient.symptoms {
        // A condition cannot be older than its node, nor is one counted from before the last restart.
        let since =
            [Some(patient.created_at), patient.rebooted_at, symptom.since].into_iter().flatten().max();
        let since = since.unwrap_or(patient.created_at);
        for policy in policies.matching(symptom.kind, symptom.status, symptom.reason) {
            let seconds = i64::try_from(policy.policy.toleration_secs).unwrap_or(i64::MAX);
            let eligible_at = since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
            findings.push(Finding { policy, symptom, eligible_at });
        }
    }
    findings
}

fn score(finding: &Finding<'_>, now: Timestamp) -> f64 {
    let age = now.duration_since(finding.eligible_at).as_secs_f64();
    f64::from(finding.policy.rank) + age / RANK_SECONDS
}
