//! Tags instances with the names of their Node, NodeClaim and cluster, as soon as the Node is known.
//!
//! Each instance is tagged once; annotations of the NodeClaim record this. Calls are rate limited, because `CreateTags`
//! shares EC2's request limit with launches.
//!
//! Upstream: `pkg/controllers/nodeclaim/tagging`

mod controller;

use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{annotation, is_deleting, name_of};

use crate::api::Tags;

pub use controller::Tagging;

pub const ANNOTATION_TAGGED: &str = "karpenter.k8s.aws/tagged";
pub const ANNOTATION_CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
pub const TAG_NAME: &str = "Name";
pub const TAG_NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
pub const TAG_CLUSTER: &str = "eks:eks-cluster-name";

/// Whether the instance of a NodeClaim still has to be tagged and its Node is known.
pub fn is_due(claim: &NodeClaim) -> bool {
    let is_tagged = [ANNOTATION_TAGGED, ANNOTATION_CLUSTER_NAME_TAGGED]
        .iter()
        .all(|key| annotation(claim, key) == Some("true"));
    !is_tagged && node_name(claim).is_some() && !is_deleting(claim)
}

fn node_name(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The tags that the instance lacks. A tag that it has is not changed, whatever its value.
pub fn missing(claim: &NodeClaim, cluster: &str, present: &Tags) -> Tags {
    let wanted = [
        (TAG_NAME, node_name(claim).unwrap_or_default()),
        (TAG_NODE_CLAIM, name_of(claim)),
        (TAG_CLUSTER, cluster),
    ];
    wanted
        .into_iter()
        .filter(|(key, value)| !value.is_empty() && !present.contains_key(*key))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(node: Value, annotations: Value, deleted: Value) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "default-x", "annotations": annotations, "deletionTimestamp": deleted},
            "spec": {"nodeClassRef": {}},
            "status": {"nodeName": node},
        }))
        .expect("a claim")
    }

    #[test]
    fn instance_is_tagged_once_node_is_known() {
        let both = json!({ANNOTATION_TAGGED: "true", ANNOTATION_CLUSTER_NAME_TAGGED: "true"});
        let table = [
            (json!("node"), json!({}), json!(null), true),
            (json!(null), json!({}), json!(null), false),
            (json!(""), json!({}), json!(null), false),
            (json!("node"), both, json!(null), false),
            (json!("node"), json!({ANNOTATION_TAGGED: "true"}), json!(null), true),
            (json!("node"), json!({ANNOTATION_CLUSTER_NAME_TAGGED: "true"}), json!(null), true),
            (
                json!("node"),
                json!({ANNOTATION_TAGGED: "false", ANNOTATION_CLUSTER_NAME_TAGGED: "true"}),
                json!(null),
                true,
            ),
            (json!("node"), json!({}), json!("2026-01-01T00:00:00Z"), false),
        ];
        for (node, annotations, deleted, expected) in table {
            let claim = claim(node.clone(), annotations.clone(), deleted.clone());
            assert_eq!(is_due(&claim), expected, "{node} {annotations} {deleted}");
        }
    }

    #[test]
    fn only_missing_tags_are_added() {
        let claim = claim(json!("ip-10-0-0-1"), json!({}), json!(null));
        let tags = |pairs: &[(&str, &str)]| -> Tags {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let all = tags(&[(TAG_NAME, "ip-10-0-0-1"), (TAG_NODE_CLAIM, "default-x"), (TAG_CLUSTER, "shop")]);
        assert_eq!(missing(&claim, "shop", &Tags::new()), all);
        let present = tags(&[(TAG_NAME, "mine"), (TAG_CLUSTER, "shop"), ("other", "1")]);
        assert_eq!(missing(&claim, "shop", &present), tags(&[(TAG_NODE_CLAIM, "default-x")]));
        assert_eq!(missing(&claim, "shop", &all), Tags::new());
    }
}
