//! The options of a conversion, whose values come from global settings and command line flags. Other modules read
//! these.

use std::collections::BTreeMap;

/// The role of a node class for which neither role nor instance profile is known. It is not a valid role name, so the
/// API server rejects manifests in which it was not replaced.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";

/// An annotation of derived NodePools: the TTL in seconds after which nodes are replaced gracefully.
pub const TTL_UNTIL_EXPIRED_ANNOTATION: &str =
    "compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired";

/// Annotations of derived EC2NodeClasses: ids, separated by commas. Of the subnets or security groups that the terms
/// select, only those with these ids are used.
pub const SUBNET_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-subnet-ids";
pub const SECURITY_GROUP_IDS_ANNOTATION: &str = "compatibility.karpenter.sh/v1alpha1-security-group-ids";

/// How to convert a selector that has both ids and tags, which must both match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MixedSelectors {
    /// The selector is an error, because v1 cannot express it.
    #[default]
    Refused,
    /// The selector becomes terms for the tags and an annotation with the ids, which our AWS provider reads.
    Annotated,
}

/// Conversion of `ttlSecondsUntilExpired`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiration {
    /// `expireAfter` has v1's meaning: expiration is forceful, and its time is fixed when a NodeClaim is created.
    #[default]
    Forceful,
    /// `expireAfter` is `Never`, and an annotation has the time, which our disruption controller reads.
    Graceful,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether to leave out the requirements that the defaulting webhook of v1alpha5 would have added.
    pub ignore_defaults: bool,
    /// Whether to leave out the budgets that keep the behaviour of v1alpha5, so that v1's default budget applies.
    pub v1_defaults: bool,
    /// The instance profile in the global setting `aws.defaultInstanceProfile`.
    pub default_instance_profile: Option<String>,
    /// The IAM role for classes that have no instance profile.
    pub role: Option<String>,
    /// The name of the cluster, from which the role name in the getting-started guides is made.
    pub cluster_name: Option<String>,
    /// The tags in the global setting `aws.tags`, which are added to every class. If a class sets the same tag, its
    /// value is used.
    pub tags: BTreeMap<String, String>,
    /// Whether the global setting `featureGates.driftEnabled` is on.
    pub drift_enabled: bool,
    /// The `maxPods` of classes that set none, if the global setting `aws.enableENILimitedPodDensity` is off.
    pub max_pods: Option<i64>,
    pub expiration: Expiration,
    pub mixed_selectors: MixedSelectors,
}
