//! Error messages that are known to occur in installations, with a fix for each. A message is recognized by a constant
//! part.

use super::Finding;

const KNOWN: [(&[&str], &str, &str); 8] = [
    (
        &["403", "manifests"],
        "the registry rejects expired credentials",
        "log out of it and try again: helm registry logout HOST, docker logout HOST",
    ),
    (
        &["ServiceLinkedRoleCreationNotPermitted"],
        "the account has no role for spot instances, and the controller may not create it",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com (once per account)",
    ),
    (
        &["cannot be imported into the current release"],
        "Helm does not adopt objects that it did not create",
        "delete them first, or give them Helm's label app.kubernetes.io/managed-by=Helm and the annotations \
         meta.helm.sh/release-name and meta.helm.sh/release-namespace",
    ),
    (
        &["conversion webhook", "failed"],
        "a definition has a conversion webhook of Karpenter 1.0 that no controller serves",
        "karpenter install --crds-only --take-over",
    ),
    (
        &["no matches for kind"],
        "the cluster does not have the kind",
        "karpenter install --crds-only; for Provisioner and AWSNodeTemplate with --legacy-api",
    ),
    (
        &["sts:AssumeRoleWithWebIdentity"],
        "the role does not trust the controller's service account",
        "its trust policy has to name the cluster's OIDC provider and system:serviceaccount:NAMESPACE:NAME",
    ),
    (
        &["RequestExpired"],
        "AWS rejects requests with a wrong time",
        "synchronize the clock with NTP or chrony",
    ),
    (
        &["attempting to grant RBAC permissions not currently held"],
        "a user can grant only permissions that the user has",
        "use a kubeconfig of a cluster administrator",
    ),
];

/// The explanation of an error message; `None` if the message is unknown.
pub fn explain(message: &str) -> Option<Finding> {
    let lower = message.to_lowercase();
    let found =
        KNOWN.iter().find(|(parts, ..)| parts.iter().all(|part| lower.contains(&part.to_lowercase())))?;
    Some(Finding::fail("message", found.1, found.2))
}
