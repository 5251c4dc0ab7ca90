//! The end of a class: it waits for its claims, and takes everything with it that was made for it.

use std::time::Duration;

use karpenter_api::labels::AWS_FINALIZER_TERMINATION;
use kube::api::ObjectMeta;

use super::conditions::Trouble;
use super::remedy::trouble;
use crate::profiles::ProfileError;

pub(crate) const WAITING: &str = "WaitingOnNodeClaimTermination";
/// The event about claims that are still there is told again after this long.
pub(crate) const WAITING_PERIOD: Duration = Duration::from_secs(10 * 60);
const NAMES_MAX: usize = 5;

/// Says which claims are waited for, a few of them by name.
pub(crate) fn waiting_message(claims: &[String]) -> String {
    let named = claims.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    let others = claims.len().saturating_sub(NAMES_MAX);
    let rest = if others > 0 { format!(" and {others} other(s)") } else { String::new() };
    format!("Waiting on NodeClaim termination for {named}{rest}")
}

/// The finalizers with ours among them; `None` if it is there.
pub(crate) fn with_ours(meta: &ObjectMeta) -> Option<Vec<String>> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == AWS_FINALIZER_TERMINATION) {
        return None;
    }
    finalizers.push(AWS_FINALIZER_TERMINATION.to_owned());
    Some(finalizers)
}

/// The finalizers without ours; `None` if it is not there.
pub(crate) fn without_ours(meta: &ObjectMeta) -> Option<Vec<String>> {
    let finalizers = meta.finalizers.clone().unwrap_or_default();
    let kept: Vec<String> =
        finalizers.iter().filter(|name| *name != AWS_FINALIZER_TERMINATION).cloned().collect();
    (kept.len() < finalizers.len()).then_some(kept)
}

/// What stands against the end of a class's profiles.
pub(crate) fn profile_trouble(error: &ProfileError) -> Trouble {
    match error {
        ProfileError::Aws { call, error } => trouble(call, error),
        ProfileError::RoleNotFound { error, .. } => trouble("iam:RemoveRoleFromInstanceProfile", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_claims_are_named() {
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
    fn other_finalizers_are_left_alone() {
        let meta = |names: &[&str]| ObjectMeta {
            finalizers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let ours = AWS_FINALIZER_TERMINATION;
        let owned = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(with_ours(&ObjectMeta::default()), owned(&[ours]));
        assert_eq!(with_ours(&meta(&["a"])), owned(&["a", ours]));
        assert_eq!(with_ours(&meta(&["a", ours])), None);
        assert_eq!(without_ours(&meta(&["a", ours, "b"])), owned(&["a", "b"]));
        assert_eq!(without_ours(&meta(&[ours])), owned(&[]));
        assert_eq!(without_ours(&meta(&["a"])), None);
        assert_eq!(without_ours(&ObjectMeta::default()), None);
    }
}
