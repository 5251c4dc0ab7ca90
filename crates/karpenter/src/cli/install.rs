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
    /// Cloud provider; required unless --crds-only
    #[arg(long, value_enum, required_unless_present = "crds_only")]
    pub(crate) provider: Option<InstallProvider>,

    /// Kubeconfig to use; by default KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Namespace of the controller; created if it does not exist
    #[arg(long, default_value = "kube-system")]
    pub(crate) namespace: String,

    /// Name of the objects, or the prefix of their names
    #[arg(long, default_value = "karpenter")]
    pub(crate) name: String,

    /// Image of the controller; none is published, docs/install/image.md says how to build one
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// Number of replicas of the controller; one is the leader
    #[arg(long, default_value_t = 2)]
    pub(crate) replicas: u32,

    /// CPU request of each replica
    #[arg(long, value_name = "QUANTITY", default_value = "1")]
    pub(crate) cpu: String,

    /// Memory request and limit of each replica
    #[arg(long, value_name = "QUANTITY", default_value = "1Gi")]
    pub(crate) memory: String,

    /// aws: name of the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// aws: URL of the API server that new nodes connect to; by default read from EKS
    #[arg(long, value_name = "URL")]
    pub(crate) cluster_endpoint: Option<String>,

    /// aws: name of the interruption queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) interruption_queue: Option<String>,

    /// aws: ARN of the controller role, for IRSA; not needed with EKS Pod Identity
    #[arg(long, value_name = "ARN")]
    pub(crate) role_arn: Option<String>,

    /// aws: region; by default that of the instance on which the controller runs
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Feature gates of the controller, as Name=true,Name=false
    #[arg(long, value_name = "GATES")]
    pub(crate) feature_gates: Option<String>,

    /// Log level of the controller: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,

    /// Environment variable of the controller, for any setting that `karpenter controller --help` lists; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,

    /// Annotation of the service account; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) service_account_annotation: Vec<(String, String)>,

    /// Also install and serve Provisioner and AWSNodeTemplate (v1alpha5 API)
    #[arg(long)]
    pub(crate) legacy_api: bool,

    /// Install only the CustomResourceDefinitions
    #[arg(long, conflicts_with_all = ["without_controller", "skip_crds"])]
    pub(crate) crds_only: bool,

    /// Do not install or update the CustomResourceDefinitions
    #[arg(long)]
    pub(crate) skip_crds: bool,

    /// Install only CustomResourceDefinitions and RBAC, for a controller outside of the cluster
    #[arg(long)]
    pub(crate) without_controller: bool,

    /// Replace another Karpenter: it is scaled to zero, and `karpenter uninstall --nodes hand-over` scales it up
    /// again
    #[arg(long)]
    pub(crate) take_over: bool,

    /// Print the changes without making them; with -o, print the objects without connecting to a cluster
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Format of the objects printed by --dry-run
    #[arg(short = 'o', long, value_enum, requires = "dry_run")]
    pub(crate) output: Option<ManifestFormat>,

    /// Wait until the controller is ready
    #[arg(long)]
    pub(crate) wait: bool,

    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::<300>)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodesChoice {
    /// Evict pods and terminate instances while the controller still runs; NodePools and node classes are deleted too
    Drain,
    /// Leave nodes and objects unchanged, for another Karpenter that takes over
    HandOver,
    /// Keep the nodes as plain nodes that Karpenter no longer manages
    Keep,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArguments {
    /// What happens to the nodes; there is no default
    #[arg(long, value_enum)]
    pub(crate) nodes: NodesChoice,

    /// Kubeconfig to use; by default KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The --name that was used for the installation
    #[arg(long, default_value = "karpenter")]
    pub(crate) name: String,

    /// Also delete the CustomResourceDefinitions without objects
    #[arg(long)]
    pub(crate) crds: bool,

    /// First write NodePools and node classes to this file, as manifests
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Continue even if no controller runs (drain), or if instances are being launched (keep)
    #[arg(long)]
    pub(crate) force: bool,

    /// Print the changes without making them
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Maximum time to wait for the termination of instances
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

    /// Cloud provider to check; by default that of the controller in the cluster
    #[arg(long, value_enum)]
    pub(crate) provider: Option<InstallProvider>,

    /// Service account of a controller that runs outside of the cluster
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_account)]
    pub(crate) service_account: Option<(String, String)>,

    /// aws: name of the cluster; by default the controller's
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,

    /// aws: interruption queue; by default the controller's
    #[arg(long, value_name = "QUEUE")]
    pub(crate) interruption_queue: Option<String>,

    /// aws: region; by default from the local AWS configuration
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Explain an error message instead of checking a cluster; - reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) explain: Option<String>,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,

    /// Severity of findings for which the exit code is 1
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
