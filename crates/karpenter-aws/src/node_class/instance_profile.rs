//! The condition `InstanceProfileReady`.

use super::conditions::{ConditionResult, Failure, INSTANCE_PROFILE_READY, NewStatus, Recheck};
use super::remedy::failure;
use crate::profiles::ProfileError;

const ROLE_NOT_FOUND: &str = "RoleNotFound";
const RESOLUTION_FAILED: &str = "InstanceProfileResolutionFailed";

/// The result for the condition, and the new instance profile for the status; if `None`, the status keeps its profile.
pub(crate) fn evaluate(answer: Result<String, ProfileError>) -> (ConditionResult, Option<String>) {
    let condition = INSTANCE_PROFILE_READY;
    match answer {
        Ok(profile) => (ConditionResult::ready(condition, Recheck::OnChange), Some(profile)),
        Err(ProfileError::RoleNotFound { role, error }) => {
            let message = format!("Role {role:?} not found");
            let remedy =
                "create the role, or correct spec.role; a path before the name does not matter".to_owned();
            let failure = Failure { error: error.to_string(), remedy };
            let new_status = NewStatus::False { reason: ROLE_NOT_FOUND, message };
            (
                ConditionResult { condition, new_status, recheck: Recheck::BackOff, failure: Some(failure) },
                None,
            )
        }
        Err(ProfileError::Aws { call, error }) => {
            (ConditionResult::not_checked(condition, RESOLUTION_FAILED, failure(call, &error)), None)
        }
    }
}
