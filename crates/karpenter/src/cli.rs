//! Definition of the command line: all commands, flags and defaults. The commands are implemented in the modules of
//! the same name.

#[cfg(feature = "aws")]
pub(crate) mod bootstrap;
mod explain;
pub(crate) mod go_flags;
pub(crate) mod implied;
mod install;
mod legacy;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_controllers::operator::options::values::choice;
use karpenter_controllers::operator::options::{IgnoredVariable, without_unreadable};
use karpenter_model::node_count_tolerance::NodeCountTolerance;
use karpenter_model::problem::{self, EFFORT_DEFAULT, EFFORT_MAX};
use karpenter_model::quantity::Quantity;
use karpenter_model::spread_share::SpreadShare;

pub(crate) use explain::*;
pub(crate) use install::*;
pub(crate) use legacy::*;

#[derive(Debug, Parser)]
#[command(name = "karpenter", version, about = "Plans the cheapest valid Kubernetes nodes for a set of pods")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the arguments; prints help or an error and exits if there is nothing to run. Also returns the ignored
    /// environment variables of the controller.
    pub(crate) fn read(arguments: Vec<OsString>) -> (Self, Vec<IgnoredVariable>) {
        let mut ignored = Vec::new();
        let command = Self::command().bin_name(implied::program(&arguments)).mut_subcommand(
            go_flags::CONTROLLER,
            |controller| {
                let (controller, found) = without_unreadable(controller, |name| std::env::var(name).ok());
                ignored = found;
                controller
            },
        );
        // Without a file, `explain` reads the cluster.
        let command = command
            .mut_subcommand("explain", |explain| explain.mut_arg("filenames", |files| files.required(false)));
        let matches = command.get_matches_from(arguments);
        (Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), ignored)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan nodes for the pods in a set of manifests, without a cluster or a cloud account
    Plan(PlanArguments),
    /// Explain why a pod is pending or a node is not consolidated, with fixes and their simulated result
    Explain(Box<ExplainArguments>),
    /// Print the CustomResourceDefinitions as YAML, ready for kubectl apply
    Crds(CrdsArguments),
    /// Convert v1alpha5 and v1beta1 manifests (Provisioner, AWSNodeTemplate, NodePool, EC2NodeClass) to v1
    Convert(ConvertArguments),
    /// Check manifests for common mistakes and suggest fixes
    Lint(LintArguments),
    /// Measure the planner on generated workloads
    Bench(BenchArguments),
    /// Run a local Kubernetes cluster with Karpenter in one process
    Up(UpArguments),
    /// Show Karpenter on a simulated cluster: scale-up, interruption and scale-in in a few seconds
    Demo(DemoArguments),
    /// Run the Karpenter controllers
    Controller(Box<ControllerArguments>),
    /// Install CRDs, RBAC and the controller into a cluster
    Install(Box<InstallArguments>),
    /// Remove Karpenter from a cluster; its nodes are drained, handed over or kept
    Uninstall(UninstallArguments),
    /// Diagnose Karpenter in a cluster and suggest fixes
    Doctor(DoctorArguments),
    /// Print the AWS resources and permissions that Karpenter needs
    #[cfg(feature = "aws")]
    Bootstrap(bootstrap::BootstrapArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Seed of names and other random choices; equal seeds give equal output
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print a line for every pod, nodeclaim and node
    #[arg(long, short = 'v')]
    pub(crate) verbose: bool,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = BenchFormat::Table)]
    pub(crate) output: BenchFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderChoice {
    Kwok,
    #[cfg(feature = "aws")]
    Aws,
}

/// `None` means the default of the build. A type alias, so that clap treats it as one value with a default, which may
/// be empty.
pub(crate) type AskedProvider = Option<ProviderChoice>;

fn parse_provider(value: &str) -> Result<AskedProvider, String> {
    match value {
        "" => Ok(None),
        value => choice(value, ProviderChoice::Kwok).map(Some),
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ControllerArguments {
    /// Cloud provider: aws or kwok; the default is aws in builds that have it, else kwok
    #[arg(long, env = "KARPENTER_PROVIDER", default_value = "", value_name = "PROVIDER", value_parser = parse_provider,
        hide_env_values = true, hide_default_value = true)]
    pub(crate) provider: AskedProvider,

    /// Kubeconfig to use; by default KUBECONFIG, ~/.kube/config, or the service account of the pod
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) options: karpenter_controllers::operator::Options,

    #[command(flatten)]
    pub(crate) legacy: LegacyApiArguments,

    #[cfg(feature = "aws")]
    #[command(flatten)]
    pub(crate) aws: karpenter_aws::options::AwsOptions,
}

impl ControllerArguments {
    /// The settings for v1alpha5 objects from the flags.
    pub(crate) fn legacy_options(&self) -> karpenter_legacy::Options {
        #[cfg(feature = "aws")]
        let cluster_name = Some(self.aws.cluster_name.as_str());
        #[cfg(not(feature = "aws"))]
        let cluster_name = None;
        self.legacy.options(cluster_name)
    }
}

#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Port to listen on; 0 selects a free port
    #[arg(long, default_value_t = 6443)]
    pub(crate) port: u16,

    /// Address to listen on; anything but loopback also needs --allow-remote
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) address: std::net::IpAddr,

    /// Allow connections from other hosts; clients need the credentials of the kubeconfig
    #[arg(long)]
    pub(crate) allow_remote: bool,

    /// Path of the kubeconfig to write; by default in --data, or a temporary file
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Number of nodes that exist from the start, with 8 CPUs and 32 GiB each
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub(crate) nodes: u32,

    /// Also install and serve Provisioner and AWSNodeTemplate (v1alpha5 API); every EC2NodeClass is then ready, and
    /// nodes have EC2 instance types
    #[arg(long = "legacy-api", alias = "legacy")]
    pub(crate) legacy: bool,

    /// AWS region whose instance types and zones are simulated with --legacy-api
    #[arg(long, requires = "legacy", default_value = "us-east-1")]
    pub(crate) region: String,

    /// Run the cluster without Karpenter
    #[arg(long)]
    pub(crate) without_karpenter: bool,

    /// Speed of the cluster's clock: seconds per real second
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: f64,

    /// Directory in which the cluster's state is kept across restarts
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed <= 1_000.0 => Ok(speed),
        _ => Err("must be a number above 0 and at most 1000, for example 10".to_owned()),
    }
}

fn parse_scheduler_config(text: &str) -> Result<SchedulerConfig, String> {
    SchedulerConfig::parse(text).map_err(|error| error.to_string())
}

/// Manifests or a dump, and the instance types of its NodePools.
#[derive(Debug, Clone, Args)]
pub(crate) struct InputArguments {
    /// Manifest file, directory (searched recursively for .yaml, .yml and .json) or - for standard input; repeatable
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE|DIR|-")]
    pub(crate) filenames: Vec<PathBuf>,

    /// Instance catalog; by default that of the NodePools' node classes
    #[arg(long, value_enum)]
    pub(crate) catalog: Option<CatalogChoice>,

    /// Instance types from a JSON file in kwok's format instead of a built-in catalog
    #[arg(long, value_name = "FILE")]
    pub(crate) instance_types: Option<PathBuf>,

    /// AWS region whose zones and prices are used; us-east-1 by default
    #[arg(long)]
    pub(crate) region: Option<String>,

    /// Default spread constraints of the cluster's scheduler, as YAML or JSON
    #[arg(long, value_name = "YAML", default_value = "", value_parser = parse_scheduler_config)]
    pub(crate) scheduler_config: SchedulerConfig,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) input: InputArguments,

    #[command(flatten)]
    pub(crate) knobs: Knobs,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,

    /// Explain for each group of pods where it was planned, and why not elsewhere
    #[arg(long)]
    pub(crate) explain: bool,

    /// Fail if any object of the input is invalid or has an unknown field
    #[arg(long)]
    pub(crate) strict: bool,

    /// Simulate consolidation of a cluster dump: commands, and why the other nodes stay
    #[arg(long)]
    pub(crate) consolidate: bool,

    /// Time to simulate, RFC 3339; by default the newest time in the dump
    #[arg(long, value_name = "TIME", requires = "consolidate", value_parser = parse_time)]
    pub(crate) now: Option<jiff::Timestamp>,

    /// Number of simulated consolidation passes, each after the commands of the previous one: a number, or all until
    /// no command is left
    #[arg(long, value_name = "NUMBER|all", default_value = "1", requires = "consolidate")]
    pub(crate) rounds: Rounds,

    /// Let spot nodes be replaced by cheaper spot nodes (feature gate SpotToSpotConsolidation)
    #[arg(long, requires = "consolidate")]
    pub(crate) spot_to_spot: bool,

    /// Share of the lowest price of a NodePool's pods that moving all of them has to save, unless its annotation says otherwise
    #[arg(long, value_name = "RATIO", default_value = "0.08", requires = "consolidate", value_parser = parse_ratio)]
    pub(crate) consolidation_saving_ratio: f64,
}

/// The planner's options; docs/knobs.md explains each trade-off.
#[derive(Debug, Clone, Args)]
pub(crate) struct Knobs {
    /// cost: the cheapest fleet found; compat: upstream's order and choices
    #[arg(long, value_enum, default_value_t = ModeChoice::Cost)]
    pub(crate) mode: ModeChoice,

    /// How long to search for a cheaper plan: low, default, high, max, or a number of work units
    #[arg(long, default_value = "default", value_name = "LEVEL|NUMBER")]
    pub(crate) effort: Effort,

    /// Respect or ignore preferred affinities and ScheduleAnyway spreads
    #[arg(long, value_enum, default_value_t = PreferencePolicyChoice::Respect)]
    pub(crate) preference_policy: PreferencePolicyChoice,

    /// strict: no node is planned that violates minValues; best-effort: minValues are lowered instead
    #[arg(long, value_enum, default_value_t = MinValuesPolicyChoice::Strict)]
    pub(crate) min_values_policy: MinValuesPolicyChoice,

    /// Dollars per hour added per node during the search, to prefer fewer nodes; not part of the reported price
    #[arg(long, value_name = "DOLLARS", default_value = "0", value_parser = parse_dollars)]
    pub(crate) node_overhead_cost: f64,

    /// How much more than the cheapest fleet found a fleet with fewer nodes may cost, in percent; 0: price alone (cost
    /// mode)
    #[arg(long, value_name = "PERCENT", default_value_t = NodeCountTolerance::default())]
    pub(crate) node_count_tolerance: NodeCountTolerance,

    /// Minimum number of instance type options of a spot node, if the NodePool allows it
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) min_spot_types: usize,

    /// Plan no new node with less CPU than this (cost mode)
    #[arg(long, value_name = "QUANTITY", value_parser = parse_cpu_millis)]
    pub(crate) min_node_cpu: Option<i64>,

    /// Plan no new node with more CPU than this (cost mode)
    #[arg(long, value_name = "QUANTITY", value_parser = parse_cpu_millis)]
    pub(crate) max_node_cpu: Option<i64>,

    /// Maximum share of the pods of a DoNotSchedule hostname spread constraint on one node, in percent, never below
    /// maxSkew (cost mode). 0: as upstream; 100: no limit beyond the constraint
    #[arg(long, value_name = "PERCENT", default_value_t = SpreadShare::default())]
    pub(crate) hostname_spread_share: SpreadShare,
}

impl Knobs {
    pub(crate) fn options(&self) -> problem::Options {
        let defaults = problem::Options::default();
        problem::Options {
            mode: self.mode.into(),
            preference_policy: match self.preference_policy {
                PreferencePolicyChoice::Respect => problem::PreferencePolicy::Respect,
                PreferencePolicyChoice::Ignore => problem::PreferencePolicy::Ignore,
            },
            min_values_policy: match self.min_values_policy {
                MinValuesPolicyChoice::Strict => problem::MinValuesPolicy::Strict,
                MinValuesPolicyChoice::BestEffort => problem::MinValuesPolicy::BestEffort,
            },
            effort: self.effort.0,
            min_spot_types: self.min_spot_types,
            node_overhead_price_per_hour: self.node_overhead_cost,
            node_count_tolerance: self.node_count_tolerance,
            min_node_cpu_millis: self.min_node_cpu.unwrap_or(defaults.min_node_cpu_millis),
            max_node_cpu_millis: self.max_node_cpu.unwrap_or(defaults.max_node_cpu_millis),
            hostname_spread_share: self.hostname_spread_share,
            ..defaults
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CrdsArguments {
    /// Print only this one: kind, plural or full name, e.g. NodePool, nodepools or nodepools.karpenter.sh
    pub(crate) name: Option<String>,

    /// Print those of the v1alpha5 API: Provisioner and AWSNodeTemplate
    #[arg(long = "legacy-api", alias = "legacy")]
    pub(crate) legacy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Workloads to run, e.g. W1 W3; W1 to W6 by default
    #[arg(long = "workload", value_name = "W1..W7", num_args = 1.., value_parser = parse_workload)]
    pub(crate) workloads: Vec<u8>,

    /// Number of seeds per quality workload
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    /// Skip cases with more pods than this
    #[arg(long, value_name = "PODS")]
    pub(crate) max_pods: Option<u32>,

    /// Run only cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) case: Option<String>,

    /// Run only this mode; by default both
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeChoice>,

    /// How long to search for a cheaper plan: low, default, high, max, or a number of work units
    #[arg(long, default_value = "default", value_name = "LEVEL|NUMBER")]
    pub(crate) effort: Effort,

    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t = BenchFormat::Table)]
    pub(crate) output: BenchFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CatalogChoice {
    Aws,
    Kwok,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeChoice {
    Cost,
    Compat,
}

impl From<ModeChoice> for problem::Mode {
    fn from(choice: ModeChoice) -> Self {
        match choice {
            ModeChoice::Cost => Self::Cost,
            ModeChoice::Compat => Self::Compat,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreferencePolicyChoice {
    Respect,
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinValuesPolicyChoice {
    Strict,
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Wide,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchFormat {
    Table,
    Json,
}

/// The number of simulated consolidation passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    AtMost(u32),
    All,
}

impl FromStr for Rounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.parse()) {
            ("all", _) => Ok(Self::All),
            (_, Ok(count)) if count > 0 => Ok(Self::AtMost(count)),
            _ => Err("valid: a whole number above 0, or all".to_owned()),
        }
    }
}

pub(crate) fn parse_time(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "valid: a time with its offset, for example 2026-01-31T12:00:00Z".to_owned())
}

/// Work units for the cost search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort(pub(crate) u64);

impl FromStr for Effort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            "low" => EFFORT_DEFAULT / 10,
            "default" => EFFORT_DEFAULT,
            "high" => EFFORT_DEFAULT * 10,
            "max" => EFFORT_MAX,
            number => number
                .parse()
                .map_err(|_| "valid: low, default, high, max, or a whole number of work units".to_owned())?,
        }))
    }
}

fn parse_dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(dollars) if dollars.is_finite() && dollars >= 0.0 => Ok(dollars),
        _ => Err("valid: a number of dollars per hour, zero or more, e.g. 0.01".to_owned()),
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| "valid: a number from 0, such as 0.08".to_owned())
}

fn parse_cpu_millis(text: &str) -> Result<i64, String> {
    match text.parse::<Quantity>() {
        Ok(quantity) if !quantity.is_negative() => Ok(quantity.milli_ceil()),
        Ok(_) => Err("valid: zero or more".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_workload(text: &str) -> Result<u8, String> {
    text.strip_prefix(['W', 'w'])
        .and_then(|digits| digits.parse().ok())
        .filter(|number| (1..=7).contains(number))
        .ok_or_else(|| "valid: W1, W2, W3, W4, W5, W6, W7".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn effort_has_names_and_numbers() {
        assert_eq!("default".parse::<Effort>(), Ok(Effort(EFFORT_DEFAULT)));
        assert_eq!("42".parse::<Effort>(), Ok(Effort(42)));
        assert!("-1".parse::<Effort>().is_err());
        let mut levels = ["low", "default", "high", "max"].map(|name| name.parse::<Effort>().unwrap().0);
        levels.sort_unstable();
        assert_eq!(levels[3], EFFORT_MAX);
        assert!(levels.windows(2).all(|pair| pair[0] < pair[1]), "{levels:?}");
    }

    #[test]
    fn flags_become_planner_options() {
        let cli = Cli::try_parse_from([
            "karpenter",
            "plan",
            "-f",
            "-",
            "--mode",
            "compat",
            "--preference-policy",
            "ignore",
            "--min-values-policy",
            "best-effort",
            "--node-overhead-cost",
            "0.02",
            "--node-count-tolerance",
            "1.5",
            "--min-spot-types",
            "3",
            "--min-node-cpu",
            "1500m",
            "--max-node-cpu",
            "32",
            "--effort",
            "high",
            "--hostname-spread-share",
            "25",
        ])
        .unwrap();
        let Command::Plan(arguments) = cli.command else { panic!("not plan") };
        let options = arguments.knobs.options();
        assert_eq!(options.mode, problem::Mode::Compat);
        assert_eq!(options.preference_policy, problem::PreferencePolicy::Ignore);
        assert_eq!(options.min_values_policy, problem::MinValuesPolicy::BestEffort);
        assert_eq!((options.min_node_cpu_millis, options.max_node_cpu_millis), (1500, 32_000));
        assert_eq!(options.min_spot_types, 3);
        assert_eq!(options.effort, EFFORT_DEFAULT * 10);
        assert_eq!(options.hostname_spread_share.percent(), 25);
        assert!((options.node_overhead_price_per_hour - 0.02).abs() < 1e-12);
        assert_eq!(options.node_count_tolerance.to_string(), "1.5");
    }

    #[test]
    fn invalid_values_are_usage_errors() {
        for wrong in [
            vec!["karpenter", "plan"],
            vec!["karpenter", "plan", "-f", "-", "--node-overhead-cost", "-1"],
            vec!["karpenter", "plan", "-f", "-", "--node-count-tolerance", "101"],
            vec!["karpenter", "plan", "-f", "-", "--min-node-cpu", "many"],
            vec!["karpenter", "plan", "-f", "-", "--hostname-spread-share", "101"],
            vec!["karpenter", "bench", "--workload", "W9"],
        ] {
            let error = Cli::try_parse_from(&wrong).expect_err("must be refused");
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }
}
