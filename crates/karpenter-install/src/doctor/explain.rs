//! Messages that people meet while installing, recognised by a part that does not change, and what to do about each.

use super::Finding;

const KNOWN: [(&[&str], &str, &str); 8] = [
    (
        &["403", "manifests"],
        "the registry refuses stale credentials",
        "log out of it and try again: helm registry logout HOST, docker logout HOST",
    ),
    (
        &["ServiceLinkedRoleCreationNotPermitted"],
        "the account has no role for spot machines, and the controller may not create it",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com (once per account)",
    ),
    (
        &["cannot be imported into the current release"],
        "Helm does not take over objects that it did not create",
        "delete them first, or give them Helm's label app.kubernetes.io/managed-by=Helm and the annotations \
         meta.helm.sh/release-name and meta.helm.sh/release-namespace",
    ),
    (
        &["conversion webhook", "failed"],
        "a definition converts through a webhook of Karpenter 1.0 that nobody serves",
        "karpenter install --crds-only --take-over",
    ),
    (
        &["no matches for kind"],
        "the cluster does not know the kind",
        "karpenter install --crds-only; for Provisioner and AWSNodeTemplate with --legacy-api",
    ),
    (
        &["sts:AssumeRoleWithWebIdentity"],
        "the role does not trust the controller's service account",
        "its trust policy has to name the cluster's OIDC provider and system:serviceaccount:NAMESPACE:NAME",
    ),
    (
        &["RequestExpired"],
        "AWS refuses requests whose time is wrong",
        "let the machine keep its time with NTP or chrony",
    ),
    (
        &["attempting to grant RBAC permissions not currently held"],
        "whoever installs may give only what they may do themselves",
        "use a kubeconfig of a cluster administrator",
    ),
];

/// What a message means, if it is known.
pub fn explain(message: &str) -> Option<Finding> {
    let lower = message.to_lowercase();
    let found =
        KNOWN.iter().find(|(parts, ..)| parts.iter().all(|part| lower.contains(&part.to_lowercase())))?;
    Some(Finding::fail("message", found.1, found.2))
}
