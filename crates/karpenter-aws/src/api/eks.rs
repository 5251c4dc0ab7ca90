//! EKS: properties of the cluster that the Kubernetes API server does not expose.

use super::AwsFuture;

/// The EKS calls in use.
pub trait Eks: Send + Sync {
    /// `eks:DescribeCluster`.
    fn describe_cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster>;
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    pub arn: String,
    pub endpoint: Option<String>,
    /// The Kubernetes minor version of the cluster, such as `1.35`.
    pub version: Option<String>,
    /// The CA certificate of the API server in base64, as EKS returns it.
    pub certificate_authority: Option<String>,
    pub service_ipv4_cidr: Option<String>,
    pub service_ipv6_cidr: Option<String>,
}
