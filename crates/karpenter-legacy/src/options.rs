//! Options of a conversion, from global settings and command line flags. This module does not read them.

use std::collections::BTreeMap;

/// Role of a node class if neither role nor instance profile is known. It is not a valid role name, so the API server
/// rejects manifests in which it was not replaced.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";

/// On derived NodePools: the TTL in seconds after which nodes are replaced gracefully.
pub const TTL_UNTIL_EXPIRED_ANNOTATION: &str =
    "compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired";

/// On derived EC2NodeClasses: comma-separated ids that restrict the subnets and security groups that the terms select.
pub const SUBNET_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-subnet-ids";
pub const SECURITY_GROUP_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-security-group-ids";

/// How to convert a selector with ids and tags, which are ANDed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MixedSelectors {
    /// Such a selector is an error, because v1 cannot express it.
    #[default]
    Refused,
    /// The selector becomes terms for the tags and an annotation with the ids, which our AWS provider reads.
    Annotated,
}

/// Conversion of `ttlSecondsUntilExpired`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiration {
    /// `expireAfter` as in v1: forceful, and fixed for each NodeClaim at its creation.
    #[default]
    Forceful,
    /// `expireAfter: Never`, and an annotation that our disruption controller reads.
    Graceful,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether to omit the requirements that the v1alpha5 defaulting webhook would have added.
    pub ignore_defaults: bool,
    /// Whether to omit budgets that keep the v1alpha5 behaviour, so that the default budget of v1 applies.
    pub v1_defaults: bool,
    /// The global setting `aws.defaultInstanceProfile`.
    pub default_instance_profile: Option<String>,
    /// The IAM role of classes without an instance profile.
    pub role: Option<String>,
    /// The name of the cluster, for the role name that the getting-started guides use.
    pub cluster_name: Option<String>,
    /// The global setting `aws.tags`. They are added to the tags of every class; tags of the class take precedence.
    pub tags: BTreeMap<String, String>,
    /// The global setting `featureGates.driftEnabled`.
    pub drift_enabled: bool,
    /// `maxPods` of classes that do not set it, if the global setting `aws.enableENILimitedPodDensity` is off.
    pub max_pods: Option<i64>,
    pub expiration: Expiration,
    pub mixed_selectors: MixedSelectors,
}
