//! Label keys and values that the planner interprets.
//!
//! `karpenter-api` has the complete list of labels and annotations.

pub const NODEPOOL: &str = "karpenter.sh/nodepool";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
pub const CAPACITY_TYPE_SPOT: &str = "spot";
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
pub const INITIALIZED: &str = "karpenter.sh/initialized";
pub const REGISTERED: &str = "karpenter.sh/registered";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// The label with the id of a capacity reservation on AWS; other providers may use other keys.
pub const AWS_CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

/// Label keys that a NodePool need not define, with any provider.
pub const WELL_KNOWN: [&str; 8] =
    [NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];

/// Deprecated label keys, each with the stable key that replaces it.
pub const NORMALIZED: [(&str, &str); 6] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("topology.ebs.csi.aws.com/zone", ZONE),
];

/// Label keys that Karpenter used before v0.15, with dots in their names, each with its current key. Only nodes of
/// Provisioners have them. They are not replaced like deprecated keys, because a pod that selects one cannot run on
/// other nodes.
pub const DOTTED: [(&str, &str); 8] = [
    ("karpenter.k8s.aws/instance.family", "karpenter.k8s.aws/instance-family"),
    ("karpenter.k8s.aws/instance.size", "karpenter.k8s.aws/instance-size"),
    ("karpenter.k8s.aws/instance.cpu", "karpenter.k8s.aws/instance-cpu"),
    ("karpenter.k8s.aws/instance.memory", "karpenter.k8s.aws/instance-memory"),
    ("karpenter.k8s.aws/instance.gpu.name", "karpenter.k8s.aws/instance-gpu-name"),
    ("karpenter.k8s.aws/instance.gpu.manufacturer", "karpenter.k8s.aws/instance-gpu-manufacturer"),
    ("karpenter.k8s.aws/instance.gpu.count", "karpenter.k8s.aws/instance-gpu-count"),
    ("karpenter.k8s.aws/instance.gpu.memory", "karpenter.k8s.aws/instance-gpu-memory"),
];

/// The current key for a label key with dots from before v0.15; `None` for any other key.
pub fn undotted(key: &str) -> Option<&'static str> {
    DOTTED.iter().find(|(dotted, _)| *dotted == key).map(|(_, today)| *today)
}

/// The stable key that replaces a deprecated key; any other key is returned unchanged.
pub fn normalize(key: &str) -> &str {
    NORMALIZED.iter().find(|(deprecated, _)| *deprecated == key).map_or(key, |(_, stable)| stable)
}
