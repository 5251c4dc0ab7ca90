//! Arguments of `karpenter install`, `uninstall` and `doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use karpenter_controllers::operator::options::values::duration;

use super::{FailOn, ManifestFormat};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InstallProvider {
    Kwok,
    Aws,
}

impl From<InstallProvider> for karpenter_api::labels::Provider {
    fn from(provider: InstallProvider) -> Self {
        match provider {
            InstallProvider::Kwok => Self::Kwok,
            InstallProvider::Aws => Self::Aws,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// Where nodes come from; needed unless --crds-only
    #[arg(long, value_enum, required_unless_present = "crds_only")]
    pub(crate) provider: Option<InstallProvider>,

    /// Kubeconfig to use; by default KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Namespace of the controller; created if it is not there
    #[arg(long, default_value = "kube-system")]
    pub(crate) namespace: String,

    /// What all objects are called, or begin with
    #[arg(long, default_value = "karpenter")]
    pub(crate) name: String,

    /// Image of the controller; none is published, docs/install/image.md says how to build one
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// Copies of the controller, of which one works at a time
    #[arg(long, default_value_t = 2)]
    pub(crate) replicas: u32,

    /// CPU that each copy asks for
    #[arg(long, value_name = "QUANTITY", default_value = "1")]
    pub(crate) cpu: String,

    /// Memory that each copy asks for and may use
    #[arg(long, value_name = "QUANTITY", default_value = "1Gi")]
    pub(crate) memory: String,

    /// aws: name of the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// aws: address of the API server that new nodes connect to; by default EKS is asked for it
    #[arg(long, value_name = "URL")]
    pub(crate) cluster_endpoint: Option<String>,

    /// aws: name of the queue that interruption messages come through
    #[arg(long, value_name = "QUEUE")]
    pub(crate) interruption_queue: Option<String>,

    /// aws: the IAM role of the controller, for IAM roles for service accounts; not needed with pod identity
    #[arg(long, value_name = "ARN")]
    pub(crate) role_arn: Option<String>,

    /// aws: region of the machines; by default that of the machine the controller runs on
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Gates of the controller, as Name=true,Name=false
    #[arg(long, value_name = "GATES")]
    pub(crate) feature_gates: Option<String>,

    /// What the controller logs: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,

    /// Any other setting of the controller, by the variable that `karpenter controller --help` lists; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,

    /// Annotation of the service account; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) service_account_annotation: Vec<(String, String)>,

    /// Also install and serve Provisioner and AWSNodeTemplate of the API before v1
    #[arg(long)]
    pub(crate) legacy_api: bool,

    /// Only the CustomResourceDefinitions
    #[arg(long, conflicts_with_all = ["without_controller", "skip_crds"])]
    pub(crate) crds_only: bool,

    /// Leave the CustomResourceDefinitions as they are
    #[arg(long)]
    pub(crate) skip_crds: bool,

    /// Definitions and permissions, for a controller that runs outside of the cluster
    #[arg(long)]
    pub(crate) without_controller: bool,

    /// Take the place of another Karpenter: it is scaled to zero, and `karpenter uninstall --nodes hand-over` scales it up again
    #[arg(long)]
    pub(crate) take_over: bool,

    /// Only say what would be done; with -o print the objects, without asking any cluster
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Format of the objects that --dry-run prints
    #[arg(short = 'o', long, value_enum, requires = "dry_run")]
    pub(crate) output: Option<ManifestFormat>,

    /// Wait until the controller is ready
    #[arg(long)]
    pub(crate) wait: bool,

    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::<300>)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodesChoice {
    /// Evict pods and end machines while the controller still runs; pools and classes are deleted too
    Drain,
    /// Leave everything as it is, for another Karpenter that takes over
    HandOver,
    /// Make plain nodes of them that run on with nobody looking after them
    Keep,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArguments {
    /// What becomes of the nodes; there is no default, because none fits everybody
    #[arg(long, value_enum)]
    pub(crate) nodes: NodesChoice,

    /// Kubeconfig to use; by default KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The name that it was installed under
    #[arg(long, default_value = "karpenter")]
    pub(crate) name: String,

    /// Also remove the CustomResourceDefinitions that have no objects left
    #[arg(long)]
    pub(crate) crds: bool,

    /// Write pools and classes to this file first, as manifests
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Go on although no controller seems to work (drain), or although machines are on their way (keep)
    #[arg(long)]
    pub(crate) force: bool,

    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// How long to wait for machines to end
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::<900>)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Kubeconfig to use; by default KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Provider to look at; by default that of the controller in the cluster
    #[arg(long, value_enum)]
    pub(crate) provider: Option<InstallProvider>,

    /// Account of a controller that runs outside of the cluster
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_account)]
    pub(crate) service_account: Option<(String, String)>,

    /// aws: name of the cluster; by default the controller's
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// aws: interruption queue; by default the controller's
    #[arg(long, value_name = "QUEUE")]
    pub(crate) interruption_queue: Option<String>,

    /// aws: region; by default that of the credentials found here
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Say what a message means that you met, instead of looking at a cluster; - reads standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) explain: Option<String>,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,

    /// Which findings make the command end with exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    pub(crate) fail_on: FailOn,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("valid: a name and a value, for example LOG_FORMAT=console".to_owned()),
    }
}

fn parse_account(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("valid: a namespace and a name, for example kube-system/karpenter".to_owned()),
    }
}
