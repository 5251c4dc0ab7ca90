//! Arguments of `karpenter bootstrap`.

use clap::{Args, Subcommand, ValueEnum};
use karpenter_aws::permissions::{OidcProvider, RoleName, parse_queue};
use karpenter_catalog::aws::partition::PARTITIONS;

#[derive(Debug, Args)]
pub(crate) struct BootstrapArguments {
    #[command(subcommand)]
    pub(crate) cloud: BootstrapCloud,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BootstrapCloud {
    /// Print IAM policies with least privilege, the node role and the interruption queue for an AWS account
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

    /// Account id; required for -o json, otherwise detected by the tools
    #[arg(long, value_name = "NUMBER", value_parser = parse_account)]
    pub(crate) account: Option<String>,

    /// Region of the cluster, by default AWS_REGION; required for -o json, otherwise detected by the tools
    #[arg(long, value_name = "REGION", value_parser = parse_region)]
    pub(crate) region: Option<String>,

    /// AWS partition, for -o json; by default that of the region
    #[arg(long, value_name = "PARTITION", value_parser = PARTITIONS)]
    pub(crate) partition: Option<String>,

    /// Node role, with its path if it has one, such as team/nodes; repeatable. The controller may pass only these
    /// roles to nodes. By default KarpenterNodeRole-CLUSTER
    #[arg(long, value_name = "ROLE", value_parser = RoleName::parse)]
    pub(crate) node_role: Vec<RoleName>,

    /// Do not create the node roles; they exist already
    #[arg(long)]
    pub(crate) no_create_node_role: bool,

    /// Name of the interruption queue; by default the cluster name
    #[arg(long, value_name = "NAME", value_parser = parse_queue)]
    pub(crate) queue: Option<String>,

    /// Custom SSM parameter from which node classes take AMIs, by name or ARN; repeatable
    #[arg(long, value_name = "PARAMETER", value_parser = parse_parameter)]
    pub(crate) ssm_parameter: Vec<String>,

    /// Create the controller role for a service account with IRSA: issuer URL of the cluster, or ARN of its OIDC
    /// provider in IAM
    #[arg(long, value_name = "URL|ARN", value_parser = OidcProvider::parse, conflicts_with = "pod_identity")]
    pub(crate) oidc_provider: Option<OidcProvider>,

    /// Create the controller role for a service account with EKS Pod Identity
    #[arg(long)]
    pub(crate) pod_identity: bool,

    /// Namespace of the controller's service account, for the controller role
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = parse_object)]
    pub(crate) namespace: String,

    /// Name of the controller's service account, for the controller role
    #[arg(long, value_name = "NAME", default_value = "karpenter", value_parser = parse_object)]
    pub(crate) service_account: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BootstrapFormat {
    /// Policy documents by name
    Json,
    /// A template for `aws cloudformation deploy`
    Cloudformation,
    /// Terraform's JSON syntax, to be saved as karpenter.tf.json
    Terraform,
    /// An idempotent shell script of AWS CLI commands
    Cli,
}

/// Accepts only the characters that EKS allows in a cluster name; none of them has a meaning in a shell, a template or
/// an ARN.
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
        false => Err("valid: an account id of 12 digits".to_owned()),
    }
}

pub(crate) fn parse_region(text: &str) -> Result<String, String> {
    let is_valid = text.contains('-')
        && text.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("valid: the name of a region, such as us-west-2".to_owned()),
    }
}

fn parse_parameter(text: &str) -> Result<String, String> {
    let is_arn = text.starts_with("arn:") && text.contains(":ssm:") && text.contains(":parameter/");
    let allowed = if is_arn { "/_.-:" } else { "/_.-" };
    let is_valid = (is_arn || !text.trim_start_matches('/').is_empty())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || allowed.contains(letter));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("valid: the name of a parameter such as /images/nodes, or its ARN".to_owned()),
    }
}

/// Checks a Kubernetes object name.
fn parse_object(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_valid = (1..=253).contains(&text.len())
        && text.starts_with(is_letter)
        && text.ends_with(is_letter)
        && text.chars().all(|letter| is_letter(letter) || "-.".contains(letter));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("valid: lower case letters, digits and hyphens".to_owned()),
    }
}
