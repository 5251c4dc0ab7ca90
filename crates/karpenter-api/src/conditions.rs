//! Status conditions: controllers record their progress as conditions in an object's status, and a root condition
//! summarizes them.
//!
//! This module computes transition times, observed generations, the order of conditions, and the root condition. The
//! caller passes the current time and writes the object.
//!
//! Upstream: `status/condition_set.go` in github.com/awslabs/operatorpkg.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use crate::types::{Condition, ConditionStatus};

const REASON_AWAITING: &str = "AwaitingReconciliation";
const MESSAGE_AWAITING: &str = "object is awaiting reconciliation";
const REASON_UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
const REASON_RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// The root condition of a kind, and the conditions that it depends on. Objects may have further condition types.
#[derive(Clone, Copy, Debug)]
pub struct ConditionTypes {
    pub root: &'static str,
    pub dependents: &'static [&'static str],
}

pub const NODE_POOL_CONDITIONS: ConditionTypes =
    ConditionTypes { root: "Ready", dependents: &["ValidationSucceeded", "NodeClassReady"] };
pub const NODE_CLAIM_CONDITIONS: ConditionTypes =
    ConditionTypes { root: "Ready", dependents: &["Launched", "Registered", "Initialized"] };
pub const NODE_OVERLAY_CONDITIONS: ConditionTypes =
    ConditionTypes { root: "Ready", dependents: &["ValidationSucceeded"] };
/// The condition for capacity reservations counts towards the root condition only if the feature gate ReservedCapacity
/// is on.
pub const fn ec2_node_class_conditions(reserved_capacity: bool) -> ConditionTypes {
    const ALL: &[&str] = &[
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "PlacementGroupReady",
        "CapacityReservationsReady",
    ];
    let dependents = if reserved_capacity { ALL } else { ALL.split_at(ALL.len() - 1).0 };
    ConditionTypes { root: "Ready", dependents }
}

/// Why a condition cannot be removed from an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("condition {condition_type:?} cannot be cleared, because {root:?} depends on it")]
pub struct ClearError {
    pub condition_type: String,
    pub root: &'static str,
}

/// The conditions of one object, to read and change them.
#[derive(Debug)]
pub struct ConditionSet<'a> {
    types: ConditionTypes,
    conditions: &'a mut Vec<Condition>,
    generation: i64,
    created: Option<Time>,
    deleting: bool,
    now: Time,
}

impl<'a> ConditionSet<'a> {
    /// Opens the conditions of an object. If the root condition or one that it depends on is missing, adds it with
    /// status Unknown.
    pub fn open(
        types: ConditionTypes,
        metadata: &ObjectMeta,
        conditions: &'a mut Vec<Condition>,
        now: Timestamp,
    ) -> Self {
        // Stored times are whole seconds. With finer times, the order of conditions would change when the object is
        // stored and read.
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        let mut set = Self {
            types,
            conditions,
            generation: metadata.generation.unwrap_or_default(),
            created: metadata.creation_timestamp.clone(),
            deleting: metadata.deletion_timestamp.is_some(),
            now,
        };
        set.add_missing();
        set
    }

    /// Adds missing conditions. If the root condition exists, its status is computed again; a new root condition has
    /// status Unknown, like those it depends on.
    fn add_missing(&mut self) {
        let types = self.types;
        let had_root = self.root().is_some();
        let mut added = false;
        for condition_type in types.dependents.iter().chain([&types.root]) {
            if self.get(condition_type).is_none() {
                added = true;
                self.put(condition_type, ConditionStatus::Unknown, REASON_AWAITING, MESSAGE_AWAITING);
            }
        }
        if added && had_root {
            self.recompute_root();
        }
    }

    pub fn get(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == condition_type)
    }

    pub fn root(&self) -> Option<&Condition> {
        self.get(self.types.root)
    }

    /// Whether the condition is true and was observed for the current generation.
    pub fn is_true(&self, condition_type: &str) -> bool {
        self.get(condition_type).is_some_and(|condition| {
            condition.status == ConditionStatus::True
                && condition.observed_generation == Some(self.generation)
        })
    }

    /// Sets the condition to true, with the condition type as the reason. Returns whether the condition changed.
    pub fn set_true(&mut self, condition_type: &str) -> bool {
        self.set(condition_type, ConditionStatus::True, condition_type, "")
    }

    pub fn set_true_with_reason(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, ConditionStatus::True, reason, message)
    }

    pub fn set_false(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, ConditionStatus::False, reason, message)
    }

    pub fn set_unknown(&mut self, condition_type: &str) -> bool {
        self.set(condition_type, ConditionStatus::Unknown, REASON_AWAITING, MESSAGE_AWAITING)
    }

    pub fn set_unknown_with_reason(&mut self, condition_type: &str, reason: &str, message: &str) -> bool {
        self.set(condition_type, ConditionStatus::Unknown, reason, message)
    }

    /// Removes a condition; returns whether the object had it. The root condition and those it depends on cannot be
    /// removed.
    pub fn clear(&mut self, condition_type: &str) -> Result<bool, ClearError> {
        if self.is_root_or_dependent(condition_type) {
            return Err(ClearError { condition_type: condition_type.to_owned(), root: self.types.root });
        }
        if self.get(condition_type).is_none() {
            return Ok(false);
        }
        self.conditions.retain(|condition| condition.type_ != condition_type);
        self.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        Ok(true)
    }

    fn is_root_or_dependent(&self, condition_type: &str) -> bool {
        condition_type == self.types.root || self.types.dependents.contains(&condition_type)
    }

    /// Sets a condition; returns whether it changed.
    fn set(&mut self, condition_type: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let changed = self.put(condition_type, status, reason, message);
        if changed && condition_type != self.types.root {
            self.recompute_root();
        }
        changed
    }

    fn put(&mut self, condition_type: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let last_transition_time = match self.get(condition_type) {
            Some(present) if present.status == status && present.last_transition_time.is_some() => {
                present.last_transition_time.clone()
            }
            Some(_) => Some(self.now.clone()),
            // The root condition and those it depends on have been Unknown since the object was created, so their
            // transition time is the creation time.
            None if self.is_root_or_dependent(condition_type) && self.created.is_some() => {
                self.created.clone()
            }
            None => Some(self.now.clone()),
        };
        let condition = Condition {
            type_: condition_type.to_owned(),
            status,
            observed_generation: Some(self.generation),
            last_transition_time,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        if self.get(condition_type) == Some(&condition) {
            return false;
        }
        self.conditions.retain(|present| present.type_ != condition_type);
        if self.deleting {
            for other in self.conditions.iter_mut() {
                other.observed_generation = Some(self.generation);
            }
        }
        self.conditions.push(condition);
        let root = self.types.root;
        self.conditions.sort_by(|a, b| {
            let order_key =
                |condition: &Condition| (condition.type_ == root, condition.last_transition_time.clone());
            order_key(a).cmp(&order_key(b))
        });
        true
    }

    fn recompute_root(&mut self) {
        let mut unhealthy = Vec::new();
        let mut any_false = false;
        for dependent in self.types.dependents {
            if self.is_true(dependent) {
                continue;
            }
            let condition = self.get(dependent);
            let status = condition.map_or(ConditionStatus::Unknown, |condition| condition.status);
            let is_current =
                condition.is_some_and(|condition| condition.observed_generation == Some(self.generation));
            any_false |= status == ConditionStatus::False && is_current;
            unhealthy.push(format!("{dependent}={}", status.as_str()));
        }
        let message = unhealthy.join(", ");
        if unhealthy.is_empty() {
            self.set_true(self.types.root);
        } else if any_false {
            self.set(self.types.root, ConditionStatus::False, REASON_UNHEALTHY_DEPENDENTS, &message);
        } else {
            self.set(self.types.root, ConditionStatus::Unknown, REASON_RECONCILING_DEPENDENTS, &message);
        }
    }
}
