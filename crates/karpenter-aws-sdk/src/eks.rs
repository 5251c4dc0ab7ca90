//! Implements the EKS calls.

use aws_sdk_eks::Client;
use karpenter_aws::api::eks::{Cluster, Eks};
use karpenter_aws::api::{AwsError, AwsFuture};

use crate::error::aws_error;

pub(crate) struct SdkEks(pub(crate) Client);

impl Eks for SdkEks {
    fn describe_cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster> {
        Box::pin(async move {
            let answer = self.0.describe_cluster().name(name).send().await.map_err(aws_error)?;
            let missing =
                || AwsError::new("ResourceNotFoundException", format!("EKS returned no cluster {name}"));
            let cluster = answer.cluster.ok_or_else(missing)?;
            let network = cluster.kubernetes_network_config;
            let authority = cluster.certificate_authority;
            Ok(Cluster {
                name: cluster.name.unwrap_or_default(),
                arn: cluster.arn.unwrap_or_default(),
                endpoint: cluster.endpoint,
                version: cluster.version,
                certificate_authority: authority.and_then(|authority| authority.data),
                service_ipv4_cidr: network.as_ref().and_then(|network| network.service_ipv4_cidr.clone()),
                service_ipv6_cidr: network.and_then(|network| network.service_ipv6_cidr),
            })
        })
    }
}
