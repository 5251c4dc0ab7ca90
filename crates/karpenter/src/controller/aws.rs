//! Builds the AWS provider for `karpenter controller`: credentials, region and CA certificates.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use karpenter_aws::assembly::{Assembly, AssemblyInputs};
use karpenter_aws_sdk::Settings;
use karpenter_controllers::operator::options::MinValuesPolicy;
use karpenter_runtime::clock::Clock;
use kube::config::Kubeconfig;

use super::connect::Connected;
use crate::cli::ControllerArguments;

/// The file in which a pod finds the CA certificates of the API server.
const OWN_CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

pub(super) async fn assemble(
    arguments: &ControllerArguments,
    connected: &Connected,
    clock: Clock,
) -> Result<Assembly> {
    let options = &arguments.options;
    // The arguments are checked before any call to AWS.
    arguments.aws.check()?;
    let settings =
        Settings { region: arguments.aws.region.clone(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let aws = karpenter_aws_sdk::connect(&settings).await?;
    let inputs = AssemblyInputs {
        apis: aws.apis,
        region: aws.region,
        client: connected.client.clone(),
        clock,
        options: arguments.aws.clone(),
        gates: options.feature_gates,
        min_values_are_strict: options.min_values_policy == MinValuesPolicy::Strict,
        own_ca_bundle: own_ca_bundle(arguments.kubeconfig.as_deref()),
        calls: aws.calls,
    };
    Assembly::build(inputs).await.context("the AWS provider cannot start")
}

/// The CA certificates with which this process verifies the API server, byte for byte, because the hash of an
/// EC2NodeClass includes them.
fn own_ca_bundle(kubeconfig: Option<&Path>) -> Option<String> {
    let config = match kubeconfig {
        Some(file) => Kubeconfig::read_from(file).ok(),
        None => Kubeconfig::read().ok(),
    };
    match config {
        Some(config) => of_kubeconfig(&config),
        None => std::fs::read(OWN_CA_FILE).ok().map(|bytes| BASE64_STANDARD.encode(bytes)),
    }
}

fn of_kubeconfig(config: &Kubeconfig) -> Option<String> {
    let name = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|context| context.name == *name)?.context.as_ref()?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => {
            let bytes = BASE64_STANDARD.decode(data.trim()).ok()?;
            Some(BASE64_STANDARD.encode(bytes))
        }
        (None, Some(file)) => std::fs::read(file).ok().map(|bytes| BASE64_STANDARD.encode(bytes)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_certificates_of_current_cluster_are_used_unchanged() {
        let config: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "b",
            "contexts": [
                {"name": "a", "context": {"cluster": "one", "user": "u"}},
                {"name": "b", "context": {"cluster": "two", "user": "u"}},
            ],
            "clusters": [
                {"name": "one", "cluster": {"server": "https://one", "certificate-authority-data": "b25l"}},
                {"name": "two", "cluster": {"server": "https://two", "certificate-authority-data": "dHdv"}},
            ],
        }))
        .expect("a kubeconfig");
        assert_eq!(of_kubeconfig(&config).as_deref(), Some("dHdv"));
        assert_eq!(of_kubeconfig(&Kubeconfig::default()), None);
    }
}
