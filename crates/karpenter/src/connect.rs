//! Which cluster a command means.

use std::path::Path;

use anyhow::{Context, Result};
use http::{HeaderValue, Uri, header};
use karpenter_cluster::proxy::ProxyRules;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How to reach the cluster, with our name on every request.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read --kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {} names no usable cluster", file.display()))?
        }
        None => Config::infer()
            .await
            .context("found neither a kubeconfig nor the service account of a pod; give --kubeconfig FILE")?,
    };
    config.proxy_url = proxy(kubeconfig, &config.cluster_url);
    let agent = HeaderValue::from_static(concat!("karpenter/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    // The client would try a 429 again for minutes before it tells anybody, and that is how a disruption budget refuses
    // an eviction. Whoever asks tries again by itself, and may have a deadline.
    config.default_retry = false;
    Ok(config)
}

/// The proxy to the API server, by client-go's rules: that of the kubeconfig, or else that of the environment, which
/// NO_PROXY may exclude. The client's own reading of the environment compares NO_PROXY with the address of the proxy.
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

/// A client for commands of a person, who should not wait long for a server that is not there.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    Client::try_from(config).context("cannot set up a client")
}
