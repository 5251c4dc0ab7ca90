//! Selects the cloud provider, and starts it.

use std::sync::Arc;

use anyhow::{Context, Result};
use karpenter_cloud::CloudProvider;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::{Ec2Classes, Kwok};
use karpenter_runtime::clock::Clock;
use kube::Client;

use super::connect::Connected;
use crate::cli::{AskedProvider, ControllerArguments, ProviderChoice};
use crate::simulated_ec2;

pub(super) enum Provider {
    Kwok(Kwok),
    /// The kwok provider with EC2 instance types, because v1alpha5 objects refer to EC2.
    KwokAsEc2(Kwok),
    #[cfg(feature = "aws")]
    Aws(Box<karpenter_aws::assembly::Assembly>),
}

impl Provider {
    pub(super) async fn set_up(
        choice: ProviderChoice,
        arguments: &ControllerArguments,
        connected: &Connected,
        clock: Clock,
    ) -> Result<Self> {
        match choice {
            ProviderChoice::Kwok if arguments.legacy.legacy_api => {
                let types = simulated_ec2::types(&arguments.legacy.kwok_region).context("--kwok-region")?;
                Ok(Self::KwokAsEc2(Kwok::with_simulated_ec2(connected.client.clone(), clock, types)))
            }
            ProviderChoice::Kwok => kwok(&connected.client, clock, &arguments.options).map(Self::Kwok),
            #[cfg(feature = "aws")]
            ProviderChoice::Aws => {
                let assembly = super::aws::assemble(arguments, connected, clock).await?;
                Ok(Self::Aws(Box::new(assembly)))
            }
        }
    }

    pub(super) fn cloud(&self) -> Arc<dyn CloudProvider> {
        match self {
            Self::Kwok(kwok) | Self::KwokAsEc2(kwok) => Arc::new(kwok.clone()),
            #[cfg(feature = "aws")]
            Self::Aws(assembly) => Arc::new(assembly.provider()),
        }
    }

    /// Gives the provider access to the stores. Called before any controller starts.
    pub(super) fn attach(&self, _operator: &Operator) {
        match self {
            Self::Kwok(_) | Self::KwokAsEc2(_) => {}
            #[cfg(feature = "aws")]
            Self::Aws(assembly) => assembly.attach(_operator.context()),
        }
    }

    /// Restores the state that an earlier process left.
    pub(super) async fn resume(&self) {
        match self {
            Self::Kwok(kwok) | Self::KwokAsEc2(kwok) => kwok.resume().await,
            // Nothing has to be restored: garbage collection finds the instances that an earlier process launched.
            #[cfg(feature = "aws")]
            Self::Aws(_) => {}
        }
    }

    /// Starts the controllers of the provider. The controllers that all providers need are started before.
    pub(super) async fn start(&self, operator: &mut Operator) {
        match self {
            Self::Kwok(_) => {}
            Self::KwokAsEc2(_) => {
                let context = operator.context();
                let classes = Ec2Classes::start(context.client.clone(), context.clock).await;
                operator.spawn("kwok.ec2nodeclass", classes, Ec2Classes::watch, 1);
            }
            #[cfg(feature = "aws")]
            Self::Aws(assembly) => assembly.start(operator),
        }
    }
}

/// The provider from the options, or the default of this build.
#[cfg(feature = "aws")]
pub(super) fn choice(asked: AskedProvider) -> Result<ProviderChoice> {
    Ok(asked.unwrap_or(ProviderChoice::Aws))
}

/// The provider from the options, or the default of this build. An error if the environment variables are those of
/// another provider.
#[cfg(not(feature = "aws"))]
pub(super) fn choice(asked: AskedProvider) -> Result<ProviderChoice> {
    let is_for_aws = std::env::var_os("CLUSTER_NAME").is_some_and(|name| !name.is_empty());
    match asked {
        None if is_for_aws => anyhow::bail!(
            "CLUSTER_NAME is set, and this build has no AWS provider; use an image built with the feature aws, or use \
             simulated nodes with --provider kwok"
        ),
        asked => Ok(asked.unwrap_or(ProviderChoice::Kwok)),
    }
}

fn kwok(client: &Client, clock: Clock, options: &Options) -> Result<Kwok> {
    let file = &options.instance_types_file_path;
    if file.is_empty() {
        return Ok(Kwok::generic(client.clone(), clock));
    }
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read --instance-types-file-path {file}"))?;
    Kwok::from_json(client.clone(), clock, &text)
        .with_context(|| format!("--instance-types-file-path {file} is not in kwok's format"))
}
