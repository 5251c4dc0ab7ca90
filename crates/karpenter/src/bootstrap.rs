//! `karpenter bootstrap`: prints what a cloud account needs before Karpenter can work in it. Nothing is asked of anybody.

use std::io::{self, Write};

use anyhow::{Context, Result};
use karpenter_aws::permissions::{self, Target};

use crate::Outcome;
use crate::cli::bootstrap::{BootstrapArguments, BootstrapAwsArguments, BootstrapCloud, BootstrapFormat};

pub(crate) fn run(arguments: &BootstrapArguments) -> Result<Outcome> {
    let BootstrapCloud::Aws(arguments) = &arguments.cloud;
    let text = aws(arguments)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", text.trim_end())?;
    Ok(Outcome::Done)
}

fn aws(arguments: &BootstrapAwsArguments) -> Result<String> {
    let cluster = &arguments.cluster;
    Ok(match arguments.output {
        BootstrapFormat::Json => {
            let account = arguments.account.clone();
            let region = arguments.region.clone().filter(|region| !region.is_empty());
            let target = Target {
                cluster: cluster.clone(),
                partition: arguments.partition.clone(),
                region: region.context("-o json needs --region: documents name the region they are for")?,
                account: account
                    .context("-o json needs --account: documents name the account they are for")?,
                url_suffix: url_suffix(&arguments.partition).to_owned(),
            };
            format!("{:#}", permissions::json(&target))
        }
        BootstrapFormat::Cloudformation => format!("{:#}", permissions::cloudformation(cluster)),
        BootstrapFormat::Terraform => format!("{:#}", permissions::terraform(cluster)),
        BootstrapFormat::Cli => permissions::cli(cluster),
    })
}

fn url_suffix(partition: &str) -> &'static str {
    if partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" }
}
