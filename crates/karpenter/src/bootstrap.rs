//! `karpenter bootstrap`: prints the AWS resources that Karpenter needs in an account. The command makes no AWS calls.

use std::io::{self, Write};

use anyhow::{Context, Result, anyhow, bail};
use karpenter_aws::permissions::{self, Controller, ResourceOptions, Target, Trust};
use karpenter_catalog::aws::partition;

use crate::Outcome;
use crate::cli::bootstrap::{
    BootstrapArguments, BootstrapAwsArguments, BootstrapCloud, BootstrapFormat, parse_region,
};
use crate::diagnostics::print_note;

/// Maximum number of characters of a managed policy in IAM.
const POLICY_SIZE_MAX: usize = 6_144;

pub(crate) fn run(arguments: &BootstrapArguments) -> Result<Outcome> {
    let BootstrapCloud::Aws(arguments) = &arguments.cloud;
    let text = aws(arguments)?;
    for note in notes(arguments) {
        print_note(&note);
    }
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", text.trim_end())?;
    Ok(Outcome::Done)
}

fn aws(arguments: &BootstrapAwsArguments) -> Result<String> {
    let options = resource_options(arguments);
    check_sizes(&options)?;
    Ok(match arguments.output {
        BootstrapFormat::Json => {
            let is_for_more =
                arguments.no_create_node_role || arguments.oidc_provider.is_some() || arguments.pod_identity;
            if is_for_more {
                bail!(
                    "-o json prints policies only: --no-create-node-role, --oidc-provider and --pod-identity are for the other outputs"
                );
            }
            format!("{:#}", permissions::json(&target(arguments, options)?))
        }
        BootstrapFormat::Cloudformation => format!("{:#}", permissions::cloudformation(&options)),
        BootstrapFormat::Terraform => format!("{:#}", permissions::terraform(&options)),
        BootstrapFormat::Cli => permissions::cli(&options),
    })
}

fn resource_options(arguments: &BootstrapAwsArguments) -> ResourceOptions {
    let trust = match &arguments.oidc_provider {
        Some(provider) => Some(Trust::Oidc(provider.clone())),
        None => arguments.pod_identity.then_some(Trust::PodIdentity),
    };
    let usual = ResourceOptions::of(&arguments.cluster);
    ResourceOptions {
        node_roles: match arguments.node_role.as_slice() {
            [] => usual.node_roles,
            named => named.to_vec(),
        },
        makes_node_roles: !arguments.no_create_node_role,
        queue: arguments.queue.clone().unwrap_or(usual.queue),
        ssm_parameters: arguments.ssm_parameter.clone(),
        controller: trust.map(|trust| Controller {
            trust,
            namespace: arguments.namespace.clone(),
            service_account: arguments.service_account.clone(),
        }),
        cluster: usual.cluster,
    }
}

fn target(arguments: &BootstrapAwsArguments, options: ResourceOptions) -> Result<Target> {
    let region = match &arguments.region {
        Some(region) => region.clone(),
        None => {
            let region = std::env::var("AWS_REGION").ok().filter(|region| !region.is_empty());
            let region = region.context("-o json needs --region, because the policy documents contain it")?;
            parse_region(&region).map_err(|error| anyhow!("AWS_REGION {region:?}: {error}"))?
        }
    };
    let account = arguments.account.clone();
    let account = account.context("-o json needs --account, because the policy documents contain it")?;
    let partition = partition::of_region(&region);
    if let Some(given) = arguments.partition.as_deref().filter(|given| *given != partition) {
        bail!("--partition {given}: the region {region} belongs to {partition}");
    }
    Ok(Target {
        options,
        partition: partition.to_owned(),
        region,
        account,
        url_suffix: if partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" }.to_owned(),
    })
}

/// Each policy must be within the limit, for any number of roles and parameters.
fn check_sizes(options: &ResourceOptions) -> Result<()> {
    let longest = Target {
        options: options.clone(),
        partition: "aws-us-gov".to_owned(),
        region: "ap-southeast-99".to_owned(),
        account: "111122223333".to_owned(),
        url_suffix: "amazonaws.com.cn".to_owned(),
    };
    for policy in permissions::policies(&longest) {
        let size = policy.size();
        if size > POLICY_SIZE_MAX {
            bail!(
                "the policy {} would have {size} characters, IAM allows {POLICY_SIZE_MAX}: name fewer of --node-role and --ssm-parameter",
                policy.name
            );
        }
    }
    Ok(())
}

/// Notes about the printed resources.
fn notes(arguments: &BootstrapAwsArguments) -> Vec<String> {
    let mut notes = Vec::new();
    let cluster = &arguments.cluster;
    let mut note_name = |what: &str, usual: String, name: String, how: &str| {
        if usual != name {
            notes.push(format!(
                "{what} has the name {name}, because {usual:?} is longer than AWS allows{how}"
            ));
        }
    };
    if arguments.node_role.is_empty() {
        let (usual, name) = (format!("KarpenterNodeRole-{cluster}"), permissions::node_role_name(cluster));
        note_name("the node role", usual, name, "; set another name with --node-role");
    }
    if arguments.queue.is_none() {
        let name = permissions::queue_name(cluster);
        note_name("the interruption queue", cluster.clone(), name, "; set another name with --queue");
    }
    if arguments.oidc_provider.is_some() || arguments.pod_identity {
        let usual = format!("KarpenterControllerRole-{cluster}");
        note_name("the controller role", usual, permissions::controller_role_name(cluster), "");
    }
    if arguments.output != BootstrapFormat::Json {
        let given = [
            ("--account", arguments.account.is_some()),
            ("--region", arguments.region.is_some()),
            ("--partition", arguments.partition.is_some()),
        ];
        for (option, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            notes.push(format!(
                "{option} has no effect on this output, which applies to the account and region where it is used"
            ));
        }
    }
    notes
}
