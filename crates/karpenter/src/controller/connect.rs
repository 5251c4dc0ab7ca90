//! Connects to the cluster, and determines the identity of this replica.

use std::path::Path;

use anyhow::{Context, Result, bail};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_controllers::metrics::client::ClientMetrics;
use karpenter_controllers::operator::Options;
use karpenter_controllers::operator::throttle::ThrottleLayer;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::client::ClientBuilder;

/// The file in which a pod finds its namespace.
const OWN_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// This file returns a new random UUID each time it is read.
const RANDOM_TEXT_FILE: &str = "/proc/sys/kernel/random/uuid";

pub(super) struct Connected {
    pub(super) client: Client,
    /// Metrics of the client.
    pub(super) metrics: ClientMetrics,
    /// URL of the API server.
    pub(super) server: String,
    /// The namespace of the pod, if the process runs in one.
    pub(super) own_namespace: Option<String>,
}

/// Connects, and checks that the API server responds and has Karpenter's CustomResourceDefinitions.
pub(super) async fn connect(kubeconfig: Option<&Path>, options: &Options) -> Result<Connected> {
    let config = crate::connect::config(kubeconfig).await?;
    let server = config.cluster_url.to_string();
    let own_namespace = std::fs::read_to_string(OWN_NAMESPACE_FILE)
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    let metrics = ClientMetrics::new(&config.cluster_url);
    let throttle = ThrottleLayer::new(options.kube_client_qps, options.kube_client_burst, metrics.on_wait());
    let client = ClientBuilder::try_from(config).context("cannot create the Kubernetes client")?;
    let client = client.with_layer(&throttle).with_layer(&metrics).build();
    client
        .apiserver_version()
        .await
        .with_context(|| format!("the API server at {server} does not respond"))?;
    let one = ListParams::default().limit(1);
    known("NodePool", Api::<NodePool>::all(client.clone()).list(&one).await.map(drop))?;
    known("NodeClaim", Api::<NodeClaim>::all(client.clone()).list(&one).await.map(drop))?;
    Ok(Connected { client, metrics, server, own_namespace })
}

fn known(kind: &str, answer: kube::Result<()>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            bail!(
                "the cluster has no CustomResourceDefinition for {kind}; install it: karpenter crds | kubectl apply -f -"
            )
        }
        answer => answer.with_context(|| format!("cannot list {kind}s")),
    }
}

/// The identity `<pod name>_<unique text>`: the part before the underscore shows which pod is the leader.
pub(super) fn identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "karpenter".to_owned());
    let unique = std::fs::read_to_string(RANDOM_TEXT_FILE)
        .map(|text| text.trim().to_owned())
        .unwrap_or_else(|_| format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond()));
    format!("{host}_{unique}")
}
