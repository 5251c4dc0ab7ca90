//! The label keys of v1alpha5: aliases, restricted domains, and keys that nodes do not have in v1.
//!
//! Upstream: karpenter-core v0.31 `pkg/apis/v1alpha5/labels.go`.

use karpenter_model::labels;

/// The label with which a node names its Provisioner.
pub const PROVISIONER_NAME: &str = "karpenter.sh/provisioner-name";

pub(crate) const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub(crate) const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub(crate) const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";

/// The well-known label keys of the AWS domain in v0.27 to v0.31.
const AWS_WELL_KNOWN: [&str; 18] = [
    "karpenter.k8s.aws/instance-hypervisor",
    INSTANCE_CATEGORY,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-ami-id",
];

/// Label keys that were well known in v1alpha5 and that v1 rejects because it has no such label, each with what to do
/// instead.
const REMOVED_LABELS: [(&str, &str); 3] = [
    (
        "karpenter.k8s.aws/instance-pods",
        "set maxPods in spec.kubelet of the node class, or require instance types or sizes",
    ),
    (
        "karpenter.k8s.aws/instance-accelerator-memory",
        "require karpenter.k8s.aws/instance-accelerator-name or -count instead",
    ),
    ("karpenter.k8s.aws/instance-ami-id", "select AMIs with amiSelectorTerms of the node class"),
];

const WELL_KNOWN: [&str; 7] = [
    labels::ZONE,
    labels::REGION,
    labels::INSTANCE_TYPE,
    labels::ARCH,
    labels::OS,
    labels::CAPACITY_TYPE,
    labels::WINDOWS_BUILD,
];

const RESTRICTED_DOMAINS: [&str; 4] = ["kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws"];
const OPEN_DOMAINS: [&str; 3] = ["kops.k8s.io", "node.kubernetes.io", "node-restriction.kubernetes.io"];
const RESTRICTED: [&str; 2] = [labels::HOSTNAME, "karpenter.sh/emptiness-timestamp"];

/// The v1 key for any alias of it that v1alpha5 accepted; other keys are returned unchanged.
pub fn normalize(key: &str) -> &str {
    labels::undotted(key).unwrap_or_else(|| labels::normalize(key))
}

/// What to do about a label key that nodes do not have in v1; `None` for other keys.
pub(crate) fn removed_label_advice(key: &str) -> Option<&'static str> {
    REMOVED_LABELS.iter().find(|(removed, _)| *removed == key).map(|(_, instead)| *instead)
}

/// Why users may not set this label key; `None` if they may.
pub(crate) fn restriction(key: &str) -> Option<String> {
    if key == PROVISIONER_NAME {
        return Some(format!("{PROVISIONER_NAME} is set by the controller and cannot be configured"));
    }
    if WELL_KNOWN.contains(&key) || AWS_WELL_KNOWN.contains(&key) || removed_label_advice(key).is_some() {
        return None;
    }
    if RESTRICTED.contains(&key) {
        return Some(format!("label {key} is set by the controller and cannot be configured"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if OPEN_DOMAINS.contains(&domain) {
        return None;
    }
    let restricted = RESTRICTED_DOMAINS.iter().find(|one| domain.ends_with(**one))?;
    Some(format!("label domain {restricted} is restricted"))
}

/// Why a string is not a qualified name (`name` or `domain/name`); `None` if it is one.
pub(crate) fn qualified_name_problem(text: &str) -> Option<&'static str> {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    if let Some(domain) = domain
        && !is_dns_subdomain(domain)
    {
        return Some("the part before / is not a lower case DNS name");
    }
    match name {
        "" => Some("the name is empty"),
        name if name.len() > 63 => Some("the name is longer than 63 characters"),
        name if !is_name(name) => {
            Some("only letters, digits, -, _ and . are allowed, with a letter or digit at both ends")
        }
        _ => None,
    }
}

/// Why a string is not a label value; `None` if it is one.
pub(crate) fn label_value_problem(text: &str) -> Option<&'static str> {
    match text {
        "" => None,
        text if text.len() > 63 => Some("is longer than 63 characters"),
        text if !is_name(text) => {
            Some("may contain only letters, digits, -, _ and ., with a letter or digit at both ends")
        }
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !part.is_empty()
            && part.bytes().all(|byte| plain(byte) || byte == b'-')
            && part.bytes().next().is_some_and(plain)
            && part.bytes().next_back().is_some_and(plain)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_normalized() {
        assert_eq!(normalize("beta.kubernetes.io/arch"), labels::ARCH);
        assert_eq!(normalize("karpenter.k8s.aws/instance.gpu.count"), "karpenter.k8s.aws/instance-gpu-count");
        assert_eq!(normalize("example.com/team"), "example.com/team");
    }

    #[test]
    fn domains_are_matched_by_suffix_with_exceptions() {
        for free in
            ["example.com/a", "team", "kops.k8s.io/instancegroup", "node.kubernetes.io/x", INSTANCE_FAMILY]
        {
            assert_eq!(restriction(free), None, "{free}");
        }
        for taken in [
            PROVISIONER_NAME,
            "kubernetes.io/hostname",
            "karpenter.sh/emptiness-timestamp",
            "x.kubernetes.io/y",
            "notkubernetes.io/y",
            "karpenter.k8s.aws/instance-colour",
        ] {
            assert!(restriction(taken).is_some(), "{taken}");
        }
    }

    #[test]
    fn names_and_values() {
        for good in ["a", "a.b_c-D", "example.com/a"] {
            assert_eq!(qualified_name_problem(good), None, "{good}");
        }
        for bad in ["", "a b", "-a", "Example.com/a", "/a", "a/", "a/b/c"] {
            assert!(qualified_name_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value_problem(""), None);
        assert!(label_value_problem("a b").is_some());
        assert!(label_value_problem(&"a".repeat(64)).is_some());
    }
}
