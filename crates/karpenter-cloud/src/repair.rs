//! Repair policies: which node conditions make a node unhealthy, and which action the provider wants. A set of policies
//! is validated here.
//!
//! This module does not match policies with nodes, and makes no decisions about nodes.
//!
//! Upstream: pkg/cloudprovider/types.go, pkg/controllers/node/health/policy.go

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

/// The highest priority that a policy may have; the lowest priority is 0.
pub const PRIORITY_MAX: u8 = 100;

/// The action for an unhealthy node; the less disruptive action comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepairAction {
    /// The instance is rebooted in place.
    Reboot,
    /// Replace the node.
    Replace,
}

impl RepairAction {
    /// The action by the name that upstream uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reboot => "RebootNode",
            Self::Replace => "ReplaceNode",
        }
    }
}

/// A node condition that makes a node unhealthy, and the action for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairPolicy {
    pub condition_type: String,
    /// The status that the condition must have: `True`, `False` or `Unknown`.
    pub condition_status: String,
    /// A regular expression, not anchored, that must match the condition's reason. Exactly one policy, the fallback,
    /// has none. The fallback applies to every pair of type and status that some policy has, if none of the expressions
    /// for that pair matches.
    pub reason_regex: String,
    /// How many seconds the condition must have lasted.
    pub toleration_secs: u64,
    /// The maximum duration of the drain in seconds. With `None`, the NodeClaim's maximum applies; with a positive
    /// value, the shorter of the two; with 0, the node is not drained.
    pub termination_grace_period_secs: Option<u64>,
    /// The priority from 0 to 100. If several policies apply, the one with the highest priority comes first.
    pub priority: u8,
    pub action: RepairAction,
}

/// All errors in a set of policies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .mistakes.join("; "))]
pub struct InvalidPolicies {
    pub mistakes: Vec<String>,
}

/// A valid policy, with its regular expression compiled.
#[derive(Debug, Clone)]
pub struct CompiledPolicy {
    pub policy: RepairPolicy,
    reason: Option<Regex>,
    /// The rank of the policy's priority among the priorities that the set uses; the lowest priority has rank 0.
    pub rank: u32,
}

impl CompiledPolicy {
    /// Compiles a single policy that is in no set, so its rank has no meaning.
    pub fn compile(policy: RepairPolicy) -> Result<Self, InvalidPolicies> {
        let reason = match policy.reason_regex.as_str() {
            "" => None,
            text => Some(Regex::new(text).map_err(|error| InvalidPolicies {
                mistakes: vec![format!("invalid reason expression {text:?}: {error}")],
            })?),
        };
        Ok(Self { policy, reason, rank: 0 })
    }

    /// Whether the policy's expression matches the reason. For the fallback, this is always true.
    pub fn fits_reason(&self, reason: &str) -> bool {
        self.reason.as_ref().is_none_or(|expression| expression.is_match(reason))
    }

    pub fn is_fallback(&self) -> bool {
        self.reason.is_none()
    }
}

/// A set of policies that is valid.
#[derive(Debug, Clone)]
pub struct RepairPolicies {
    policies: Vec<CompiledPolicy>,
    fallback: usize,
    /// The policies with an expression, by type and status of the condition. If a pair of type and status is only in
    /// the fallback, its list is empty.
    groups: BTreeMap<(String, String), Vec<usize>>,
}

impl RepairPolicies {
    /// Validates a set of policies. An empty set is invalid, because it has no fallback.
    pub fn new(policies: Vec<RepairPolicy>) -> Result<Self, InvalidPolicies> {
        let priorities: BTreeSet<u8> = policies.iter().map(|policy| policy.priority).collect();
        let ranks: BTreeMap<u8, u32> = priorities.into_iter().zip(0..).collect();
        let mut mistakes = Vec::new();
        let mut compiled = Vec::new();
        let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        let mut fallbacks = Vec::new();
        for (index, policy) in policies.into_iter().enumerate() {
            let name =
                format!("repair policy {index} ({}={})", policy.condition_type, policy.condition_status);
            mistakes.extend(mistakes_of(&policy).into_iter().map(|mistake| format!("{name} {mistake}")));
            let reason = match (policy.reason_regex.as_str(), Regex::new(&policy.reason_regex)) {
                ("", _) => None,
                (_, Ok(expression)) => Some(expression),
                (_, Err(error)) => {
                    mistakes.push(format!("{name} has an invalid reason expression: {error}"));
                    continue;
                }
            };
            let pair = (policy.condition_type.clone(), policy.condition_status.clone());
            let group = groups.entry(pair).or_default();
            if reason.is_some() {
                group.push(compiled.len());
            } else {
                fallbacks.push(compiled.len());
                if policy.action != RepairAction::Replace {
                    mistakes.push(format!("{name} is the fallback, whose action must be ReplaceNode"));
                }
            }
            let rank = ranks.get(&policy.priority).copied().unwrap_or_default();
            compiled.push(CompiledPolicy { policy, reason, rank });
        }
        let fallback = match fallbacks[..] {
            [one] => one,
            [] => {
                mistakes
                    .push("no policy is the fallback; exactly one must have no reason expression".to_owned());
                0
            }
            _ => {
                mistakes.push(format!(
                    "{} policies have no reason expression; exactly one must, the fallback",
                    fallbacks.len()
                ));
                0
            }
        };
        if mistakes.is_empty() {
            Ok(Self { policies: compiled, fallback, groups })
        } else {
            Err(InvalidPolicies { mistakes })
        }
    }

    /// The policies that apply to a condition, however long the condition has lasted.
    pub fn matching<'a>(&'a self, kind: &str, status: &str, reason: &str) -> Vec<&'a CompiledPolicy> {
        let Some(group) = self.group(kind, status) else { return Vec::new() };
        let specific: Vec<&CompiledPolicy> = group
            .iter()
            .filter_map(|index| self.policies.get(*index))
            .filter(|policy| policy.fits_reason(reason))
            .collect();
        if specific.is_empty() { self.policies.get(self.fallback).into_iter().collect() } else { specific }
    }

    /// Whether a condition with this type and status makes a node unhealthy, whatever its reason.
    pub fn covers(&self, kind: &str, status: &str) -> bool {
        self.group(kind, status).is_some()
    }

    /// All policies, in the order in which the provider lists them.
    pub fn iter(&self) -> impl Iterator<Item = &CompiledPolicy> {
        self.policies.iter()
    }

    fn group(&self, kind: &str, status: &str) -> Option<&Vec<usize>> {
        self.groups.get(&(kind.to_owned(), status.to_owned()))
    }
}

fn mistakes_of(policy: &RepairPolicy) -> Vec<String> {
    let mut mistakes = Vec::new();
    if policy.condition_type.is_empty() {
        mistakes.push("has an empty condition type".to_owned());
    }
    if !matches!(policy.condition_status.as_str(), "True" | "False" | "Unknown") {
        let status = &policy.condition_status;
        mistakes.push(format!("has condition status {status:?}; valid: True, False, Unknown"));
    }
    if policy.priority > PRIORITY_MAX {
        mistakes.push(format!("has priority {}; valid: 0 to {PRIORITY_MAX}", policy.priority));
    }
    mistakes
}
