//! The options of the operator: upstream's flags and environment variables, with upstream's names and defaults.
//!
//! A flag overrides its environment variable. An empty variable counts as not set, because charts leave variables
//! empty. As in upstream, a variable is ignored if its value is not a valid boolean, number or duration
//! ([`without_unreadable`]). Options that make sense only for a Go process are accepted and have no effect; their help
//! says so. Upstream: pkg/operator/options/options.go.

mod environment;
mod gates;
#[cfg(test)]
mod tests;
pub mod values;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::node_count_tolerance::NodeCountTolerance;
use karpenter_model::problem::{self, EFFORT_DEFAULT};
use karpenter_model::spread_share::SpreadShare;

use crate::logs::LogFormat;
pub use crate::settings::FeatureGates;
use crate::settings::Settings;
pub use environment::{IgnoredVariable, without_unreadable};
use values::{
    boolean, choice, duration, float, gates, integer, node_count_tolerance, port, ratio, spread_share, text,
};

/// The log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    /// The levels of upstream's logger above error are read as error.
    #[value(aliases = ["dpanic", "panic", "fatal"])]
    Error,
}

/// The mode of the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlannerMode {
    /// Searches for the cheapest valid fleet.
    Cost,
    /// Follows upstream's order and choices.
    Compat,
}

/// Whether the planner considers preferences of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PreferencePolicy {
    Respect,
    Ignore,
}

/// What happens if `minValues` cannot be satisfied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum MinValuesPolicy {
    Strict,
    BestEffort,
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// Name of Karpenter's Service, for clients of the metrics
    #[arg(long, env = "KARPENTER_SERVICE", default_value = "", value_name = "NAME", hide_env_values = true)]
    pub karpenter_service: String,

    /// Port that serves /metrics; 0 takes any free one
    #[arg(long, env, default_value = "8080", value_name = "PORT", value_parser = port::<8080>, hide_env_values = true)]
    pub metrics_port: u16,

    /// Port that serves /healthz and /readyz; 0 takes any free one
    #[arg(long, env, default_value = "8081", value_name = "PORT", value_parser = port::<8081>, hide_env_values = true)]
    pub health_probe_port: u16,

    /// Requests per second to the API server beyond the burst; below 0 there is no limit
    #[arg(long, env, default_value = "200", value_name = "NUMBER", value_parser = float::<200>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub kube_client_qps: f64,

    /// Requests to the API server that may be sent at once
    #[arg(long, env, default_value = "300", value_name = "NUMBER", value_parser = integer::<300>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub kube_client_burst: i64,

    /// Serve CPU and heap profiles in pprof format on the metrics port, under /debug/pprof/
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub enable_profiling: bool,

    /// Start watches after leader election (accepted, no effect: watches always start first)
    #[arg(long, env, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<true>, hide_env_values = true)]
    pub disable_controller_warmup: bool,

    /// Disable leader election; only safe with a single replica
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub disable_leader_election: bool,

    /// Leave out the metrics of single pods, nodes and pools and of status conditions, and events about these conditions
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub disable_cluster_state_observability: bool,

    /// Name of the lease
    #[arg(long, env, default_value = LEASE_NAME, value_name = "NAME",
        value_parser = text_or_lease_name, hide_env_values = true)]
    pub leader_election_name: String,

    /// Namespace of the lease; by default SYSTEM_NAMESPACE, else the pod's own, else kube-system
    #[arg(long, env, default_value = "", value_name = "NAMESPACE", value_parser = text, hide_env_values = true)]
    pub leader_election_namespace: String,

    /// Memory limit of the container in bytes, -1 for no limit (accepted, no effect: there is no garbage collector)
    #[arg(long, env, default_value = "-1", value_name = "BYTES", value_parser = integer::<-1>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub memory_limit: i64,

    /// CPU request of the container in millicores; it sets the concurrency of controllers
    #[arg(long, env, default_value = "1000", value_name = "MILLICORES", value_parser = integer::<1000>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub cpu_requests: i64,

    /// Log level: debug, info, warn or error
    #[arg(long, env, default_value = "info", value_name = "LEVEL", value_parser = log_level, hide_env_values = true)]
    pub log_level: LogLevel,

    /// Log format: json or console
    #[arg(long, env, default_value = "json", value_name = "FORMAT", value_parser = log_format, hide_env_values = true)]
    pub log_format: LogFormat,

    /// Log output: stdout, stderr or file paths, separated by commas
    #[arg(long, env, default_value = "stdout", value_name = "PATHS", value_parser = text, hide_env_values = true)]
    pub log_output_paths: String,

    /// Output of the logger's own errors (accepted, no effect: they go to stderr)
    #[arg(long, env, default_value = "stderr", value_name = "PATHS", value_parser = text, hide_env_values = true)]
    pub log_error_output_paths: String,

    /// Maximum duration of a batch of pods
    #[arg(long, env, default_value = "10s", value_name = "DURATION", value_parser = duration::<10>, hide_env_values = true)]
    pub batch_max_duration: Duration,

    /// A batch of pods closes if no new pod arrived for this long
    #[arg(long, env, default_value = "1s", value_name = "DURATION", value_parser = duration::<1>, hide_env_values = true)]
    pub batch_idle_duration: Duration,

    /// Whether to consider preferred affinities and ScheduleAnyway topology spread: Respect or Ignore
    #[arg(long, env, default_value = "Respect", value_name = "POLICY", value_parser = preference_policy, hide_env_values = true)]
    pub preference_policy: PreferencePolicy,

    /// What happens if minValues cannot be satisfied: Strict or BestEffort
    #[arg(long, env, default_value = "Strict", value_name = "POLICY", value_parser = min_values_policy, hide_env_values = true)]
    pub min_values_policy: MinValuesPolicy,

    /// Do not plan pods with resource claims (accepted without effect: such pods are never planned)
    #[arg(long, env, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<true>, hide_env_values = true)]
    pub ignore_dra_requests: bool,

    /// Node repair as before 1.15: forceful deletion, without budgets
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub legacy_node_repair: bool,

    /// Default topology spread constraints of the kube-scheduler, as YAML or JSON
    #[arg(long, env, default_value = "", value_name = "YAML", value_parser = scheduler_config, hide_env_values = true)]
    pub scheduler_config: SchedulerConfig,

    /// Feature gates as Name=true,Name=false; unknown names are ignored
    #[arg(long, env, default_value = gates::DEFAULT_TEXT, value_name = "GATES", value_parser = gates, hide_env_values = true)]
    pub feature_gates: FeatureGates,

    /// Mode of the planner: cost (search for the cheapest fleet) or compat (upstream's order and choices)
    #[arg(long, env = "PLANNER_MODE", default_value = "cost", value_name = "MODE", value_parser = planner_mode, hide_env_values = true)]
    pub planner_mode: PlannerMode,

    /// Largest share of the pods of a DoNotSchedule hostname spread constraint that cost mode plans onto one node, in
    /// percent, never below maxSkew. 0: as upstream; 100: no limit beyond the constraint
    #[arg(long, env, default_value = "10", value_name = "PERCENT", value_parser = spread_share, hide_env_values = true)]
    pub hostname_spread_share: SpreadShare,

    /// How much more than the cheapest fleet found a fleet with fewer nodes may cost in cost mode, in percent. 0: price alone
    #[arg(long, env, default_value = "0.5", value_name = "PERCENT", value_parser = node_count_tolerance, hide_env_values = true)]
    pub node_count_tolerance: NodeCountTolerance,

    /// Share of the lowest price of a NodePool's pods that moving all of them has to save (consolidation in cost mode)
    #[arg(long, env, default_value = "0.08", value_name = "RATIO", value_parser = ratio, hide_env_values = true)]
    pub consolidation_saving_ratio: f64,

    /// Do not write status.nominatedNodeName of pods
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub disable_pod_nomination: bool,

    /// Serve recent decisions as JSON on the metrics port under /debug/decisions
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub enable_decision_journal: bool,

    /// aws: publish availability and price of every offering; tens of thousands of series
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub offering_metrics: bool,

    /// kwok: read instance types from a JSON file instead of the built-in catalog
    #[arg(long, env, default_value = "", value_name = "FILE", value_parser = text, hide_env_values = true)]
    pub instance_types_file_path: String,

    /// Namespace that Karpenter runs in
    #[arg(long, env, default_value = "", value_name = "NAMESPACE", value_parser = text, hide = true, hide_env_values = true)]
    pub system_namespace: String,
}

pub const LEASE_NAME: &str = "karpenter-leader-election";
/// The namespace of the lease if no option sets it and the process does not run in a pod.
pub const NAMESPACE_DEFAULT: &str = "kube-system";

fn text_or_lease_name(value: &str) -> Result<String, String> {
    Ok(if value.is_empty() { LEASE_NAME.to_owned() } else { value.to_owned() })
}

fn log_level(value: &str) -> Result<LogLevel, String> {
    choice(value, LogLevel::Info)
}

fn log_format(value: &str) -> Result<LogFormat, String> {
    choice(value, LogFormat::Json)
}

fn preference_policy(value: &str) -> Result<PreferencePolicy, String> {
    choice(value, PreferencePolicy::Respect)
}

fn min_values_policy(value: &str) -> Result<MinValuesPolicy, String> {
    choice(value, MinValuesPolicy::Strict)
}

fn scheduler_config(value: &str) -> Result<SchedulerConfig, String> {
    SchedulerConfig::parse(value).map_err(|error| error.to_string())
}

fn planner_mode(value: &str) -> Result<PlannerMode, String> {
    choice(value, PlannerMode::Cost)
}

impl Default for Options {
    fn default() -> Self {
        Self {
            karpenter_service: String::new(),
            metrics_port: 8080,
            health_probe_port: 8081,
            kube_client_qps: 200.0,
            kube_client_burst: 300,
            enable_profiling: false,
            disable_controller_warmup: true,
            disable_leader_election: false,
            disable_cluster_state_observability: false,
            leader_election_name: LEASE_NAME.to_owned(),
            leader_election_namespace: String::new(),
            memory_limit: -1,
            cpu_requests: 1000,
            log_level: LogLevel::Info,
            log_format: LogFormat::Json,
            log_output_paths: "stdout".to_owned(),
            log_error_output_paths: "stderr".to_owned(),
            batch_max_duration: Duration::from_secs(10),
            batch_idle_duration: Duration::from_secs(1),
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            ignore_dra_requests: true,
            legacy_node_repair: false,
            scheduler_config: SchedulerConfig::default(),
            feature_gates: FeatureGates::default(),
            planner_mode: PlannerMode::Cost,
            hostname_spread_share: SpreadShare::default(),
            node_count_tolerance: NodeCountTolerance::default(),
            consolidation_saving_ratio: 0.08,
            disable_pod_nomination: false,
            enable_decision_journal: false,
            offering_metrics: false,
            instance_types_file_path: String::new(),
            system_namespace: String::new(),
        }
    }
}

impl Options {
    /// The options of the planner.
    pub fn planner(&self) -> problem::Options {
        problem::Options {
            mode: match self.planner_mode {
                PlannerMode::Cost => problem::Mode::Cost,
                PlannerMode::Compat => problem::Mode::Compat,
            },
            preference_policy: match self.preference_policy {
                PreferencePolicy::Respect => problem::PreferencePolicy::Respect,
                PreferencePolicy::Ignore => problem::PreferencePolicy::Ignore,
            },
            min_values_policy: match self.min_values_policy {
                MinValuesPolicy::Strict => problem::MinValuesPolicy::Strict,
                MinValuesPolicy::BestEffort => problem::MinValuesPolicy::BestEffort,
            },
            effort: EFFORT_DEFAULT,
            hostname_spread_share: self.hostname_spread_share,
            node_count_tolerance: self.node_count_tolerance,
            ..problem::Options::default()
        }
    }

    /// The settings of all controllers.
    pub fn settings(&self) -> Settings {
        Settings {
            planner: self.planner(),
            saving_ratio: self.consolidation_saving_ratio,
            batch_idle: self.batch_idle_duration,
            batch_max: self.batch_max_duration,
            scheduler_config: Arc::new(self.scheduler_config.clone()),
            is_node_repair_legacy: self.legacy_node_repair,
        }
    }

    /// The namespace of the lease; `own` is the namespace of this pod, if it runs in one.
    pub fn lease_namespace(&self, own: Option<&str>) -> String {
        [self.leader_election_namespace.as_str(), self.system_namespace.as_str(), own.unwrap_or_default()]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or(NAMESPACE_DEFAULT)
            .to_owned()
    }

    /// The maximum number of concurrent reconciles of a controller: `least` with a CPU request of one core, growing
    /// linearly to `most` with sixty cores.
    pub fn workers(&self, least: usize, most: usize) -> usize {
        let millis = if self.cpu_requests <= 0 { 1000 } else { self.cpu_requests };
        let share = ((millis - 1000) as f64 / 59_000.0).clamp(0.0, 1.0);
        least + ((most.saturating_sub(least)) as f64 * share).round() as usize
    }
}
