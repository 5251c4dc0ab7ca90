//! Properties of the cluster that user data of nodes contains: API server endpoint, CA bundle and address of the
//! cluster DNS. They are read once at start.
//!
//! The properties do not change during the life of a cluster, so they are not watched. The service CIDR is read only
//! when it is first needed, because only AL2023 needs it.
//!
//! Upstream: `pkg/operator/operator.go`

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::Api;

use crate::api::{AwsError, Eks};
use crate::options::AwsOptions;

/// The properties of a cluster that nodes need to join it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    pub name: String,
    pub region: String,
    /// URL of the API server.
    pub endpoint: String,
    /// The CA certificates of the API server, in base64; absent if unknown.
    pub ca_bundle: Option<String>,
    /// The address of the cluster DNS; absent if there is no service kube-dns.
    pub dns_ip: Option<IpAddr>,
}

impl ClusterFacts {
    /// Whether Services, and therefore nodes, have IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.dns_ip.is_some_and(|ip| ip.is_ipv6())
    }
}

/// Reads the properties of the cluster. `own_ca_bundle` are the CA certificates, in base64, with which this process
/// verifies the API server.
pub async fn discover(
    options: &AwsOptions,
    region: &str,
    own_ca_bundle: Option<String>,
    client: &Client,
    eks: &dyn Eks,
) -> Result<ClusterFacts, AwsError> {
    let name = &options.cluster_name;
    let endpoint = match options.cluster_endpoint.as_str() {
        "" => endpoint_from_eks(name, eks).await?,
        endpoint => endpoint.to_owned(),
    };
    let given = Some(options.cluster_ca_bundle.clone()).filter(|bundle| !bundle.is_empty());
    let facts = ClusterFacts {
        name: name.clone(),
        region: region.to_owned(),
        endpoint,
        ca_bundle: given.or(own_ca_bundle).filter(|bundle| !bundle.is_empty()),
        dns_ip: dns_ip(client).await,
    };
    tracing::debug!(cluster_endpoint = facts.endpoint, "discovered cluster endpoint");
    if let Some(address) = facts.dns_ip {
        tracing::debug!(kube_dns_ip = %address, "discovered kube dns");
    }
    Ok(facts)
}

async fn endpoint_from_eks(name: &str, eks: &dyn Eks) -> Result<String, AwsError> {
    let endpoint = eks.describe_cluster(name).await?.endpoint.filter(|endpoint| !endpoint.is_empty());
    endpoint.ok_or_else(|| {
        AwsError::new(
            "",
            format!("EKS has no endpoint of cluster {name} yet; set --cluster-endpoint, or wait until the cluster is active"),
        )
    })
}

/// Reads the address of the service kube-dns. A cluster with another DNS has no such service, which is not an error.
async fn dns_ip(client: &Client) -> Option<IpAddr> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let service = match services.get_opt("kube-dns").await {
        Ok(service) => service,
        Err(error) => {
            tracing::debug!(%error, "unable to detect the IP of the kube-dns service");
            None
        }
    };
    service?.spec?.cluster_ip?.parse().ok()
}

/// The service CIDR of the cluster, which is read from EKS once.
#[derive(Clone)]
pub struct ClusterCidr {
    eks: Arc<dyn Eks>,
    cluster: String,
    known: Arc<Mutex<Option<String>>>,
}

impl ClusterCidr {
    pub fn new(eks: Arc<dyn Eks>, cluster: &str) -> Self {
        Self { eks, cluster: cluster.to_owned(), known: Arc::default() }
    }

    /// The CIDR; `None` if it was not read yet.
    pub fn get(&self) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub async fn resolve(&self) -> Result<String, AwsError> {
        if let Some(known) = self.get() {
            return Ok(known);
        }
        let cluster = self.eks.describe_cluster(&self.cluster).await?;
        let given = |cidr: Option<String>| cidr.filter(|cidr| !cidr.is_empty());
        let cidr = given(cluster.service_ipv4_cidr).or_else(|| given(cluster.service_ipv6_cidr));
        let cidr = cidr.ok_or_else(|| {
            AwsError::new("", format!("EKS returned no service CIDR of cluster {}", self.cluster))
        })?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(cidr.clone());
        Ok(cidr)
    }
}
