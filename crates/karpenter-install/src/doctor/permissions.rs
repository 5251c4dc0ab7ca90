//! What the controller's account may do, against what it has to.

use super::Finding;
use super::facts::Facts;
use crate::owner::listed;

const CHECK: &str = "permissions";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(access) = &facts.access else {
        return vec![Finding::warn(
            CHECK,
            "not looked at: no controller of ours was found whose account could be asked about",
            "name the account with --service-account NAMESPACE/NAME and the provider with --provider",
        )];
    };
    if access.exists == Ok(false) {
        return vec![Finding::fail(
            CHECK,
            format!("the service account {} does not exist", access.account),
            "karpenter install --without-controller, or kubectl apply --filename deploy/rbac.yaml",
        )];
    }
    if let Some(error) = &access.unanswered {
        return vec![Finding::warn(
            CHECK,
            format!("cannot ask what {} may do: {error}", access.account),
            "use a kubeconfig of somebody who may create subjectaccessreviews",
        )];
    }
    if access.missing.is_empty() {
        let count = access.checked_count;
        return vec![Finding::ok(CHECK, format!("{} may do all {count} things it has to", access.account))];
    }
    let missing: Vec<String> = access.missing.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    vec![Finding::fail(
        CHECK,
        format!("{} may not: {}", access.account, listed(&names)),
        "run karpenter install again, helm upgrade, or kubectl apply --filename deploy/rbac.yaml; docs/permissions.md says \
         what each is for",
    )]
}
