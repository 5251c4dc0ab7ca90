//! What the old settings and the caller's flags decide about a conversion. Values only; nothing is read here.

use std::collections::BTreeMap;

/// Where a node class names no IAM identity and none is known: a value that no account has, so that it stands out.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";

/// On pools that are derived live: the TTL by which their nodes are replaced gracefully, in seconds.
pub const TTL_UNTIL_EXPIRED_ANNOTATION: &str =
    "compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired";

/// On classes that are derived live: only these of the subnets and security groups that the terms select are meant.
pub const SUBNET_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-subnet-ids";
pub const SECURITY_GROUP_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-security-group-ids";

/// What becomes of a selector with ids and tags, both of which had to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MixedSelectors {
    /// v1 cannot say it.
    #[default]
    Refused,
    /// Terms for the tags, and an annotation with the ids that a provider of the old rules reads.
    Annotated,
}

/// What becomes of `ttlSecondsUntilExpired`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiration {
    /// v1's `expireAfter`: forceful, and frozen into every node at its birth.
    #[default]
    Forceful,
    /// Never by v1's rules, and an annotation that a controller of the old rules reads.
    Graceful,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Leaves out the requirements that the old mutating webhook would have added.
    pub ignore_defaults: bool,
    /// Leaves out budgets that keep the old behaviour, so that those of v1 apply.
    pub v1_defaults: bool,
    /// The old setting `aws.defaultInstanceProfile`.
    pub default_instance_profile: Option<String>,
    /// The IAM role for classes that name no instance profile.
    pub role: Option<String>,
    /// The cluster's name, from which the role of the getting-started guides follows.
    pub cluster_name: Option<String>,
    /// The old setting `aws.tags`: put beneath the tags of every class.
    pub tags: BTreeMap<String, String>,
    /// The old setting `featureGates.driftEnabled`.
    pub drift_enabled: bool,
    /// Pods per node for classes that do not say, where the old setting `aws.enableENILimitedPodDensity` was off.
    pub max_pods: Option<i64>,
    pub expiration: Expiration,
    pub mixed_selectors: MixedSelectors,
}
