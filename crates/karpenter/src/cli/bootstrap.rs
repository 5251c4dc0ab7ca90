//! Arguments of `karpenter bootstrap`.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct BootstrapArguments {
    #[command(subcommand)]
    pub(crate) cloud: BootstrapCloud,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BootstrapCloud {
    /// Least-privilege IAM policies, the role of nodes, and the interruption queue, for an AWS account
    Aws(BootstrapAwsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BootstrapAwsArguments {
    /// Name of the cluster
    #[arg(long, env = "CLUSTER_NAME", value_name = "NAME", value_parser = parse_cluster)]
    pub(crate) cluster: String,

    /// What to print
    #[arg(short = 'o', long, value_enum, default_value_t = BootstrapFormat::Cloudformation)]
    pub(crate) output: BootstrapFormat,

    /// Number of the account; needed for -o json, found out by the tools otherwise
    #[arg(long, value_name = "NUMBER", value_parser = parse_account)]
    pub(crate) account: Option<String>,

    /// Region of the cluster; needed for -o json, found out by the tools otherwise
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Partition of AWS, for -o json
    #[arg(long, value_name = "PARTITION", default_value = "aws")]
    pub(crate) partition: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BootstrapFormat {
    /// The policies' documents, by name
    Json,
    /// A stack, for `aws cloudformation deploy`
    Cloudformation,
    /// Terraform's JSON syntax, to be saved as karpenter.tf.json
    Terraform,
    /// Commands of the AWS CLI
    Cli,
}

/// What EKS allows: nothing that a shell, a template or an ARN would read as something else.
fn parse_cluster(text: &str) -> Result<String, String> {
    let is_valid = (1..=100).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("valid: up to 100 letters, digits, hyphens and underscores".to_owned()),
    }
}

fn parse_account(text: &str) -> Result<String, String> {
    match text.len() == 12 && text.bytes().all(|digit| digit.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("valid: the 12 digits of an account".to_owned()),
    }
}
