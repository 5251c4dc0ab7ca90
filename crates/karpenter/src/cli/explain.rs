//! The arguments of `karpenter explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{InputArguments, Knobs, parse_time};

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// Kind of the object
    #[arg(value_enum)]
    pub(crate) kind: ExplainKind,

    /// Name of the object; for a node, the name of its NodeClaim also works
    pub(crate) name: String,

    /// Namespace of the pod
    #[arg(short = 'n', long, default_value = "default")]
    pub(crate) namespace: String,

    #[command(flatten)]
    pub(crate) input: InputArguments,

    /// Kubeconfig of the cluster to read if there is no -f; by default KUBECONFIG, ~/.kube/config or the service
    /// account of the pod
    #[arg(long, value_name = "FILE", conflicts_with = "filenames")]
    pub(crate) kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) knobs: Knobs,

    /// Let spot nodes be replaced by cheaper spot nodes (feature gate SpotToSpotConsolidation)
    #[arg(long)]
    pub(crate) spot_to_spot: bool,

    /// The current time, RFC 3339; by default the newest time in the dump, or the time of this computer for a cluster
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) now: Option<jiff::Timestamp>,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = ExplainFormat::Text)]
    pub(crate) output: ExplainFormat,

    /// Exit with code 1 if a user has to change something
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainKind {
    #[value(alias = "po", alias = "pods")]
    Pod,
    #[value(alias = "no", alias = "nodes")]
    Node,
    #[value(alias = "nodeclaims")]
    Nodeclaim,
    #[value(alias = "nodepools")]
    Nodepool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    Text,
    Json,
    Yaml,
}
