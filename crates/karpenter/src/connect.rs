//! Connects commands to a cluster: kubeconfig, proxy and client settings.

use std::path::Path;

use anyhow::{Context, Result};
use http::{HeaderValue, Uri, header};
use karpenter_runtime::proxy::ProxyRules;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The configuration of the client, with Karpenter's user agent.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read --kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {} has no usable cluster", file.display()))?
        }
        None => Config::infer()
            .await
            .context("found neither a kubeconfig nor the service account of a pod; set --kubeconfig FILE")?,
    };
    config.proxy_url = proxy(kubeconfig, &config.cluster_url);
    let agent = HeaderValue::from_static(concat!("karpenter/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    // The client itself would retry a request for minutes after the status 429, but this status also means that a
    // PodDisruptionBudget rejects an eviction. Callers retry themselves and may have a deadline.
    config.default_retry = false;
    Ok(config)
}

/// The proxy to the API server, by the rules of client-go: the proxy of the kubeconfig, or that of the environment
/// unless NO_PROXY excludes the API server. The kube client's own code is not used, because it compares NO_PROXY with
/// the address of the proxy.
fn proxy(kubeconfig: Option<&Path>, server: &Uri) -> Option<Uri> {
    let read = match kubeconfig {
        Some(file) => Kubeconfig::read_from(file).ok(),
        None => Kubeconfig::read().ok(),
    };
    if let Some(url) = read.as_ref().and_then(proxy_of_kubeconfig) {
        return Some(url);
    }
    ProxyRules::from_environment().proxy_for(server).cloned()
}

fn proxy_of_kubeconfig(config: &Kubeconfig) -> Option<Uri> {
    let name = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|context| context.name == *name)?.context.as_ref()?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.as_ref().filter(|url| !url.is_empty())?.parse().ok()
}

/// A client for interactive commands, with short timeouts.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    Client::try_from(config).context("cannot create the Kubernetes client")
}
