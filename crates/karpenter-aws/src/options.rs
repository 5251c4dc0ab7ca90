//! The options of the AWS provider: upstream's flags and environment variables, with upstream's names and defaults.
//!
//! A flag takes precedence over its environment variable. A variable with an empty value counts as not set, because
//! Helm charts set such variables. Single values are checked during parsing. [`AwsOptions::check`] checks the rest,
//! including options that are required only with `--provider aws`. Credentials are not options, because the SDK finds
//! them.
//!
//! Upstream: `pkg/operator/options/options.go`

mod gates;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::Args;
use karpenter_controllers::operator::options::values::{boolean, duration, text};

pub use gates::AwsFeatureGates;

/// The share of memory that is subtracted for the hypervisor as long as no node of the instance type was seen.
pub const VM_MEMORY_OVERHEAD_PERCENT_DEFAULT: f64 = 0.075;
const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(60);
/// EKS allows 100 characters. The name is also used as a tag value, which may have 256 characters.
const CLUSTER_NAME_BYTES_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "AWS", args_override_self = true)]
pub struct AwsOptions {
    /// Name of the cluster, used in the tags of instances, launch templates and instance profiles (required with
    /// --provider aws)
    #[arg(long, env, default_value = "", value_name = "NAME", value_parser = text, hide_env_values = true)]
    pub cluster_name: String,

    /// URL of the API server that new nodes connect to; by default read from EKS
    #[arg(long, env, default_value = "", value_name = "URL", value_parser = text, hide_env_values = true)]
    pub cluster_endpoint: String,

    /// CA certificates that new nodes trust for the API server, in base64; by default those that this process trusts
    #[arg(long, env, default_value = "", value_name = "BASE64", value_parser = text, hide_env_values = true)]
    pub cluster_ca_bundle: String,

    /// AWS region; by default from AWS_REGION, the AWS profile, or the instance metadata
    #[arg(long = "region", id = "aws_region", default_value = "", value_name = "REGION", value_parser = text)]
    pub region: String,

    /// The VPC reaches AWS only through VPC endpoints: prices are not updated and instance profiles not garbage
    /// collected
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub isolated_vpc: bool,

    /// The control plane is managed by EKS: the Kubernetes version is read from EKS
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub eks_control_plane: bool,

    /// Share of memory that is subtracted for the hypervisor, until a node of the instance type was seen
    #[arg(long, env, default_value = "0.075", value_name = "SHARE", value_parser = memory_overhead,
        allow_negative_numbers = true, hide_env_values = true)]
    pub vm_memory_overhead_percent: f64,

    /// Name of the SQS queue with interruption messages; without it, interruption messages are not handled
    #[arg(long, env, default_value = "", value_name = "QUEUE", value_parser = text, hide_env_values = true)]
    pub interruption_queue: String,

    /// Number of network interfaces per instance that do not provide IP addresses for pods
    #[arg(long = "reserved-enis", env = "RESERVED_ENIS", default_value = "0", value_name = "COUNT",
        value_parser = reserved_enis, allow_negative_numbers = true, hide_env_values = true)]
    pub reserved_enis: u32,

    /// Do not validate nodeclasses with EC2 dry runs
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub disable_dry_run: bool,

    /// Launch no instances in zones that are shifted away by ARC zonal shift
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub enable_zonal_shift: bool,

    /// How often AMIs are resolved again; at least 1m
    #[arg(long, env = "AMI_REFRESH_INTERVAL", default_value = "1m", value_name = "DURATION",
        value_parser = duration::<60>, hide_env_values = true)]
    pub ami_refresh_interval: Duration,

    /// How often subnets are resolved again; at least 1m
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", default_value = "1m", value_name = "DURATION",
        value_parser = duration::<60>, hide_env_values = true)]
    pub subnet_refresh_interval: Duration,

    /// Feature gates of the AWS provider, as Name=true or Name=false, separated by commas: NodeClassCEL
    #[arg(long, env, default_value = gates::DEFAULT_TEXT, value_name = "GATES", value_parser = read_gates,
        hide_env_values = true)]
    pub aws_feature_gates: AwsFeatureGates,
}

impl Default for AwsOptions {
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            cluster_endpoint: String::new(),
            cluster_ca_bundle: String::new(),
            region: String::new(),
            isolated_vpc: false,
            eks_control_plane: false,
            vm_memory_overhead_percent: VM_MEMORY_OVERHEAD_PERCENT_DEFAULT,
            interruption_queue: String::new(),
            reserved_enis: 0,
            disable_dry_run: false,
            enable_zonal_shift: false,
            ami_refresh_interval: REFRESH_INTERVAL_MIN,
            subnet_refresh_interval: REFRESH_INTERVAL_MIN,
            aws_feature_gates: AwsFeatureGates::default(),
        }
    }
}

/// All invalid options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidOptions(pub Vec<String>);

impl AwsOptions {
    /// Checks all options; returns all errors at once.
    pub fn check(&self) -> Result<(), InvalidOptions> {
        let mut wrong = Vec::new();
        if self.cluster_name.is_empty() {
            wrong.push(
                "--cluster-name is missing: set it or CLUSTER_NAME to the name of the cluster; simulated nodes do not need it \
                 (--provider kwok, or KARPENTER_PROVIDER=kwok)"
                    .to_owned(),
            );
        } else if self.cluster_name.len() > CLUSTER_NAME_BYTES_MAX {
            wrong.push(format!("--cluster-name is longer than {CLUSTER_NAME_BYTES_MAX} characters"));
        }
        if !self.cluster_endpoint.is_empty() && !is_absolute_url(&self.cluster_endpoint) {
            wrong.push(format!(
                "--cluster-endpoint {:?} is not a valid URL; valid: https:// and a host",
                self.cluster_endpoint
            ));
        }
        for (flag, interval) in [
            ("--ami-refresh-interval", self.ami_refresh_interval),
            ("--subnet-refresh-interval", self.subnet_refresh_interval),
        ] {
            if interval < REFRESH_INTERVAL_MIN {
                wrong.push(format!("{flag} is too short; valid: 1m or more"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(InvalidOptions(wrong)) }
    }

    /// The name of the interruption queue; `None` if the option is not set.
    pub fn queue(&self) -> Option<&str> {
        Some(self.interruption_queue.as_str()).filter(|name| !name.is_empty())
    }
}

fn is_absolute_url(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else { return false };
    uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty())
}

fn memory_overhead(value: &str) -> Result<f64, String> {
    if value.is_empty() {
        return Ok(VM_MEMORY_OVERHEAD_PERCENT_DEFAULT);
    }
    match value.parse::<f64>() {
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(share),
        _ => Err("valid: a number of zero or more, for example 0.075".to_owned()),
    }
}

fn reserved_enis(value: &str) -> Result<u32, String> {
    if value.is_empty() {
        return Ok(0);
    }
    value.parse().map_err(|_| "valid: a whole number of zero or more".to_owned())
}

fn read_gates(value: &str) -> Result<AwsFeatureGates, String> {
    value.parse()
}
