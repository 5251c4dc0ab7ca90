//! Arguments of `convert` and `lint`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use karpenter_controllers::operator::options::values::boolean;

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// Manifest file, directory (searched recursively for .yaml, .yml and .json) or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE|DIR|-")]
    pub(crate) filenames: Vec<PathBuf>,

    /// Has no effect, because directories are always searched recursively; accepted for compatibility
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = ManifestFormat::Yaml)]
    pub(crate) output: ManifestFormat,

    /// Leave out the requirements that the v1alpha5 webhook added to every Provisioner
    #[arg(long)]
    pub(crate) ignore_defaults: bool,

    /// Leave out budgets that keep the v1alpha5 behaviour, so that the v1 defaults apply
    #[arg(long)]
    pub(crate) v1_defaults: bool,

    /// Let drift replace one node at a time, like the v1alpha5 setting featureGates.driftEnabled
    #[arg(long)]
    pub(crate) drift_enabled: bool,

    /// Instance profile for objects without one: the v1alpha5 setting aws.defaultInstanceProfile
    #[arg(long, value_name = "NAME")]
    pub(crate) default_instance_profile: Option<String>,

    /// Node role for objects without an instance profile
    #[arg(long, value_name = "NAME", conflicts_with = "default_instance_profile")]
    pub(crate) role: Option<String>,

    /// Name of the cluster; without --role, the role is then KarpenterNodeRole-<name>
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// Tag for every object, unless the object sets it: the v1alpha5 setting aws.tags; repeatable
    #[arg(long = "default-tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub(crate) default_tags: Vec<(String, String)>,
}

/// Settings of the v1alpha5 API, for commands that serve it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LegacyApiArguments {
    /// Serve Provisioner and AWSNodeTemplate (v1alpha5 API); their CustomResourceDefinitions must be installed
    #[arg(long, env = "LEGACY_API", default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false",
        value_parser = boolean::<false>, hide_env_values = true)]
    pub(crate) legacy_api: bool,

    /// Instance profile for v1alpha5 objects without one: the v1alpha5 setting aws.defaultInstanceProfile
    #[arg(long, env = "LEGACY_DEFAULT_INSTANCE_PROFILE", value_name = "NAME", requires = "legacy_api")]
    pub(crate) legacy_default_instance_profile: Option<String>,

    /// Let drift replace nodes of v1alpha5 objects, one at a time: the v1alpha5 setting featureGates.driftEnabled
    #[arg(long, env = "LEGACY_DRIFT_ENABLED", requires = "legacy_api", default_value = "false", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false",
        value_parser = boolean::<false>, hide_env_values = true)]
    pub(crate) legacy_drift_enabled: bool,

    /// kwok: AWS region whose instance types and zones are simulated with --legacy-api
    #[arg(long, env = "KWOK_REGION", value_name = "REGION", default_value = "us-east-1")]
    pub(crate) kwok_region: String,
}

impl LegacyApiArguments {
    pub(crate) fn options(&self, cluster_name: Option<&str>) -> karpenter_legacy::Options {
        karpenter_legacy::Options {
            default_instance_profile: self.legacy_default_instance_profile.clone(),
            drift_enabled: self.legacy_drift_enabled,
            cluster_name: cluster_name.filter(|name| !name.is_empty()).map(str::to_owned),
            ..karpenter_legacy::Options::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LintArguments {
    /// Manifest file, directory (searched recursively for .yaml, .yml and .json) or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE|DIR|-")]
    pub(crate) filenames: Vec<PathBuf>,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = LintFormat::Text)]
    pub(crate) output: LintFormat,

    /// AWS region whose instance types are checked; us-east-1 by default
    #[arg(long)]
    pub(crate) region: Option<String>,

    /// Severity of findings for which the exit code is 1
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    pub(crate) fail_on: FailOn,

    /// Codes of findings to ignore, e.g. L06; repeatable, or separated by commas
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestFormat {
    Yaml,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Error,
    Warning,
    Never,
}

fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("valid: a key and a value, for example team=payments".to_owned()),
    }
}
