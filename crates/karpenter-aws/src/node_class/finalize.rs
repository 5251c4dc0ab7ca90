//! Finalization of a node class: a deleted node class stays until its NodeClaims are gone; then its instance profiles
//! and launch templates are deleted. This file computes finalizer lists and messages; the controller makes the calls.

use std::time::Duration;

use karpenter_api::labels::AWS_FINALIZER_TERMINATION;
use kube::api::ObjectMeta;

use super::conditions::Failure;
use super::remedy::failure;
use crate::profiles::ProfileError;

pub(crate) const WAITING: &str = "WaitingOnNodeClaimTermination";
/// How often an event lists the remaining NodeClaims of a deleted node class.
pub(crate) const WAITING_PERIOD: Duration = Duration::from_secs(10 * 60);
/// How many NodeClaims the event names at most.
const NAMES_MAX: usize = 5;

/// The message of the event for a deleted node class that is still in use. It is upstream's, and names the first
/// NodeClaims.
pub(crate) fn waiting_message(claims: &[String]) -> String {
    let named = claims.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    let others = claims.len().saturating_sub(NAMES_MAX);
    let rest = if others > 0 { format!(" and {others} other(s)") } else { String::new() };
    format!("Waiting on NodeClaim termination for {named}{rest}")
}

/// The finalizers with Karpenter's added; `None` if they include it already.
pub(crate) fn with_finalizer(meta: &ObjectMeta) -> Option<Vec<String>> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == AWS_FINALIZER_TERMINATION) {
        return None;
    }
    finalizers.push(AWS_FINALIZER_TERMINATION.to_owned());
    Some(finalizers)
}

/// The finalizers without Karpenter's; `None` if they do not include it.
pub(crate) fn without_finalizer(meta: &ObjectMeta) -> Option<Vec<String>> {
    let finalizers = meta.finalizers.clone().unwrap_or_default();
    let kept: Vec<String> =
        finalizers.iter().filter(|name| *name != AWS_FINALIZER_TERMINATION).cloned().collect();
    (kept.len() < finalizers.len()).then_some(kept)
}

/// How a failure to delete the instance profiles of a node class is logged.
pub(crate) fn profile_failure(error: &ProfileError) -> Failure {
    match error {
        ProfileError::Aws { call, error } => failure(call, error),
        ProfileError::RoleNotFound { error, .. } => failure("iam:RemoveRoleFromInstanceProfile", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_message_names_five_claims() {
        let names = |count: usize| (1..=count).map(|number| format!("c{number}")).collect::<Vec<_>>();
        let table = [
            (1, "c1"),
            (2, "c1, c2"),
            (5, "c1, c2, c3, c4, c5"),
            (6, "c1, c2, c3, c4, c5 and 1 other(s)"),
            (12, "c1, c2, c3, c4, c5 and 7 other(s)"),
        ];
        for (count, expected) in table {
            assert_eq!(
                waiting_message(&names(count)),
                format!("Waiting on NodeClaim termination for {expected}")
            );
        }
    }

    #[test]
    fn other_finalizers_are_kept() {
        let meta = |names: &[&str]| ObjectMeta {
            finalizers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let ours = AWS_FINALIZER_TERMINATION;
        let owned = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(with_finalizer(&ObjectMeta::default()), owned(&[ours]));
        assert_eq!(with_finalizer(&meta(&["a"])), owned(&["a", ours]));
        assert_eq!(with_finalizer(&meta(&["a", ours])), None);
        assert_eq!(without_finalizer(&meta(&["a", ours, "b"])), owned(&["a", "b"]));
        assert_eq!(without_finalizer(&meta(&[ours])), owned(&[]));
        assert_eq!(without_finalizer(&meta(&["a"])), None);
        assert_eq!(without_finalizer(&ObjectMeta::default()), None);
    }
}
