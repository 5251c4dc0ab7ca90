//! The condition `InstanceProfileReady`.

use super::conditions::{Finding, INSTANCE_PROFILE_READY, Next, Trouble, Verdict};
use super::remedy::trouble;
use crate::profiles::ProfileError;

const ROLE_NOT_FOUND: &str = "RoleNotFound";
const RESOLUTION_FAILED: &str = "InstanceProfileResolutionFailed";

/// What an answer means, and which profile the status names then; `None` leaves it as it is.
pub(crate) fn judge(answer: Result<String, ProfileError>) -> (Finding, Option<String>) {
    let condition = INSTANCE_PROFILE_READY;
    match answer {
        Ok(profile) => (Finding::good(condition, Next::OnChange), Some(profile)),
        Err(ProfileError::RoleNotFound { role, error }) => {
            let message = format!("Role {role:?} not found");
            let remedy =
                "create the role, or correct spec.role; a path before the name does not matter".to_owned();
            let trouble = Trouble { error: error.to_string(), remedy };
            let verdict = Verdict::False { reason: ROLE_NOT_FOUND, message };
            (Finding { condition, verdict, next: Next::BackOff, trouble: Some(trouble) }, None)
        }
        Err(ProfileError::Aws { call, error }) => {
            (Finding::unseen(condition, RESOLUTION_FAILED, trouble(call, &error)), None)
        }
    }
}
