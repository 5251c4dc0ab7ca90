//! The tags of all AWS resources that Karpenter creates for a node class, and the tag keys that a node class may not
//! set.

use karpenter_api::labels;
use karpenter_api::types::EC2NodeClass;

use crate::api::Tags;

/// The error of a node class whose `spec.tags` has keys by which Karpenter identifies its instances.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tags failed validation requirements (tags={})", quoted(.keys))]
pub struct RestrictedTags {
    pub keys: Vec<String>,
}

fn quoted(keys: &[String]) -> String {
    keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ")
}

/// The tags for instances, volumes, fleets, launch templates and network interfaces. In a dry run, `nodepool` is empty.
pub fn launch_tags(class: &EC2NodeClass, nodepool: &str, cluster: &str) -> Result<Tags, RestrictedTags> {
    let mut tags = class.spec.tags.clone().unwrap_or_default();
    let keys: Vec<String> = tags.keys().filter(|key| is_restricted(key)).cloned().collect();
    if !keys.is_empty() {
        return Err(RestrictedTags { keys });
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    tags.extend([
        (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        (labels::NODEPOOL.to_owned(), nodepool.to_owned()),
        ("eks:eks-cluster-name".to_owned(), cluster.to_owned()),
        (labels::AWS_NODE_CLASS.to_owned(), name.to_owned()),
    ]);
    Ok(tags)
}

/// Adds the tags that instances of a v1alpha5 Provisioner have. If the node class sets the tag `Name`, it is kept.
pub fn add_provisioner(tags: &mut Tags, provisioner: &str) {
    let name = format!("{}/{provisioner}", labels::PROVISIONER_NAME);
    tags.entry("Name".to_owned()).or_insert(name);
    tags.insert(labels::PROVISIONER_NAME.to_owned(), provisioner.to_owned());
}

fn is_restricted(key: &str) -> bool {
    let exact = ["eks:eks-cluster-name", labels::NODEPOOL, "karpenter.sh/nodeclaim", labels::AWS_NODE_CLASS];
    exact.contains(&key) || key.strip_prefix("kubernetes.io/cluster/").is_some_and(is_cluster_name)
}

/// Whether EKS allows the name: letters, digits, `-` and `_`, starting with a letter or digit.
fn is_cluster_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && characters.all(|rest| rest.is_ascii_alphanumeric() || rest == '-' || rest == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(key: &str) -> EC2NodeClass {
        serde_json::from_value(
            json!({"metadata": {"name": "default"}, "spec": {"tags": {key: "x", "team": "a"}}}),
        )
        .expect("a class")
    }

    #[test]
    fn tag_keys_that_identify_instances_are_restricted() {
        let table = [
            ("Name", true),
            ("karpenter.sh/discovery", true),
            ("kubernetes.io/cluster/", true),
            ("kubernetes.io/cluster/-x", true),
            ("kubernetes.io/cluster/a b", true),
            ("kubernetes.io/clusters/a", true),
            ("kubernetes.io/cluster/shop", false),
            ("kubernetes.io/cluster/0_other-one", false),
            ("eks:eks-cluster-name", false),
            ("karpenter.sh/nodepool", false),
            ("karpenter.sh/nodeclaim", false),
            ("karpenter.k8s.aws/ec2nodeclass", false),
        ];
        for (key, is_allowed) in table {
            let answer = launch_tags(&class(key), "general", "shop");
            assert_eq!(answer.is_ok(), is_allowed, "{key}");
            if let Err(error) = answer {
                assert_eq!(
                    error.to_string(),
                    format!("tags failed validation requirements (tags=\"{key}\")")
                );
            }
        }
    }

    #[test]
    fn instances_of_a_provisioner_get_its_name_tag_unless_class_sets_one() {
        for (key, name) in [("Name", "x"), ("other", "karpenter.sh/provisioner-name/old")] {
            let mut tags = launch_tags(&class(key), "old", "shop").expect("tags");
            add_provisioner(&mut tags, "old");
            assert_eq!(
                (tags["Name"].as_str(), tags["karpenter.sh/provisioner-name"].as_str()),
                (name, "old")
            );
        }
    }

    #[test]
    fn launch_tags_have_class_tags_cluster_nodepool_and_nodeclass() {
        let tags = launch_tags(&class("Name"), "general", "shop").expect("tags");
        let found: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("Name", "x"),
            ("eks:eks-cluster-name", "shop"),
            ("karpenter.k8s.aws/ec2nodeclass", "default"),
            ("karpenter.sh/nodepool", "general"),
            ("kubernetes.io/cluster/shop", "owned"),
            ("team", "a"),
        ];
        assert_eq!(found, expected);
    }
}
