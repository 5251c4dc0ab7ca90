//! Selects the instance profiles of this cluster that no node class and no NodeClaim uses.

use std::collections::BTreeSet;
use std::time::Duration;

pub const PERIOD: Duration = Duration::from_secs(30 * 60);

/// The names of instance profiles that are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUse {
    /// Profiles named in the status of node classes.
    pub by_classes: BTreeSet<String>,
    /// Profiles named in annotations of NodeClaims.
    pub by_claims: BTreeSet<String>,
    /// Profiles that were created or used recently, because an object that uses them may not be visible yet.
    pub protected: BTreeSet<String>,
}

/// The IAM path under which all instance profiles of a cluster in a region are created.
pub fn cluster_path(region: &str, cluster: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// The names of profiles to delete. Their path is checked here again, so that profiles of others are not deleted even
/// if IAM ignores the path prefix of the list call.
pub fn unused<'a>(
    profiles: impl IntoIterator<Item = (&'a str, &'a str)>,
    cluster_path: &str,
    in_use: &InUse,
) -> Vec<&'a str> {
    profiles
        .into_iter()
        .filter(|(name, path)| {
            path.starts_with(cluster_path)
                && !in_use.by_classes.contains(*name)
                && !in_use.by_claims.contains(*name)
                && !in_use.protected.contains(*name)
        })
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unused_profiles_of_cluster_are_deleted() {
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let in_use = InUse { by_classes: set("class"), by_claims: set("claim"), protected: set("fresh") };
        let path = cluster_path("us-west-2", "shop");
        assert_eq!(path, "/karpenter/us-west-2/shop/");
        let mine = "/karpenter/us-west-2/shop/0c3a/";
        let table = [
            ("class", mine, false),
            ("claim", mine, false),
            ("fresh", mine, false),
            ("old", mine, true),
            ("old", "/karpenter/us-west-2/shop/", true),
            ("old", "/karpenter/us-west-2/shop2/0c3a/", false),
            ("old", "/karpenter/us-east-1/shop/0c3a/", false),
            ("old", "/", false),
        ];
        for (name, of, expected) in table {
            let found = unused([(name, of)], &path, &in_use);
            assert_eq!(found == [name], expected, "{name} {of}");
        }
    }
}
