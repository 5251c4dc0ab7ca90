//! Findings about permissions: compares those of the controller's service account with the required ones.

use super::Finding;
use super::facts::Facts;
use crate::owner::listed;

const CHECK: &str = "permissions";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(access) = &facts.access else {
        return vec![Finding::warn(
            CHECK,
            "not checked: no controller of this program was found",
            "name the account with --service-account NAMESPACE/NAME and the provider with --provider",
        )];
    };
    if access.exists == Ok(false) {
        return vec![Finding::fail(
            CHECK,
            format!("service account {} does not exist", access.account),
            "karpenter install --without-controller, or kubectl apply --filename deploy/rbac.yaml",
        )];
    }
    if let Some(error) = &access.unanswered {
        return vec![Finding::warn(
            CHECK,
            format!("cannot review the access of {}: {error}", access.account),
            "use a kubeconfig with permission to create subjectaccessreviews",
        )];
    }
    if access.missing.is_empty() {
        let count = access.checked_count;
        return vec![Finding::ok(CHECK, format!("{} has all {count} permissions", access.account))];
    }
    let missing: Vec<String> = access.missing.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    vec![Finding::fail(
        CHECK,
        format!("{} lacks permissions: {}", access.account, listed(&names)),
        "run karpenter install again, helm upgrade, or kubectl apply --filename deploy/rbac.yaml; docs/permissions.md explains \
         each of them",
    )]
}
