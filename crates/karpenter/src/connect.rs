//! Which cluster a command means.

use std::path::Path;

use anyhow::{Context, Result};
use http::{HeaderValue, header};
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
    let agent = HeaderValue::from_static(concat!("karpenter/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    // The client would try a 429 again for minutes before it tells anybody, and that is how a disruption budget refuses
    // an eviction. Whoever asks tries again by itself, and may have a deadline.
    config.default_retry = false;
    Ok(config)
}

/// A client for commands of a person, who should not wait long for a server that is not there.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    Client::try_from(config).context("cannot set up a client")
}
