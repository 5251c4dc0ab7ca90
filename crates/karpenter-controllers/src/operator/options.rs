//! The operator's options: upstream's flags and environment variables, with upstream's names and defaults.
//!
//! A flag wins over its variable, and a variable that is set but empty counts as not set, as charts leave them. A variable
//! that is no boolean, number or duration although it should be one is ignored ([`without_unreadable`]), as upstream does.
//! Options that only mean something to a Go process are accepted and have no effect; each says so.

mod environment;
mod gates;
#[cfg(test)]
mod tests;
pub mod values;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::problem::{self, EFFORT_DEFAULT};
use karpenter_model::spread_share::SpreadShare;

use crate::settings::Settings;
pub use environment::{IgnoredVariable, without_unreadable};
pub use gates::FeatureGates;
use values::{boolean, choice, duration, float, gates, integer, port, ratio, spread_share, text};

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    /// Whoever asks for less than errors, in words of upstream's logger, gets errors.
    #[value(aliases = ["dpanic", "panic", "fatal"])]
    Error,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Console,
}

/// How the planner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlannerMode {
    /// The cheapest fleet found.
    Cost,
    /// Upstream's order and choices.
    Compat,
}

/// Whether preferences of pods are honoured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PreferencePolicy {
    Respect,
    Ignore,
}

/// What becomes of `minValues` that cannot be met.
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

    /// Serve CPU and heap profiles in pprof's format on the metrics port, under /debug/pprof/
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub enable_profiling: bool,

    /// Start watching only once elected (accepted; stores always fill first)
    #[arg(long, env, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<true>, hide_env_values = true)]
    pub disable_controller_warmup: bool,

    /// Work without asking for the lease; only where no second copy can run
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

    /// Bytes of memory the container may use, -1 for no limit (accepted; there is no collector to steer)
    #[arg(long, env, default_value = "-1", value_name = "BYTES", value_parser = integer::<-1>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub memory_limit: i64,

    /// Thousandths of a CPU the container asks for; controllers do more at once with more
    #[arg(long, env, default_value = "1000", value_name = "MILLICORES", value_parser = integer::<1000>,
        allow_negative_numbers = true, hide_env_values = true)]
    pub cpu_requests: i64,

    /// What is logged: debug, info, warn or error
    #[arg(long, env, default_value = "info", value_name = "LEVEL", value_parser = log_level, hide_env_values = true)]
    pub log_level: LogLevel,

    /// How log lines look: json or console
    #[arg(long, env, default_value = "json", value_name = "FORMAT", value_parser = log_format, hide_env_values = true)]
    pub log_format: LogFormat,

    /// Where logs go: stdout, stderr or files, separated by commas
    #[arg(long, env, default_value = "stdout", value_name = "PATHS", value_parser = text, hide_env_values = true)]
    pub log_output_paths: String,

    /// Where errors of logging itself go (accepted; they go to stderr)
    #[arg(long, env, default_value = "stderr", value_name = "PATHS", value_parser = text, hide_env_values = true)]
    pub log_error_output_paths: String,

    /// The longest that pods gather before nodes are planned for them
    #[arg(long, env, default_value = "10s", value_name = "DURATION", value_parser = duration::<10>, hide_env_values = true)]
    pub batch_max_duration: Duration,

    /// How long no new pod must have come before nodes are planned
    #[arg(long, env, default_value = "1s", value_name = "DURATION", value_parser = duration::<1>, hide_env_values = true)]
    pub batch_idle_duration: Duration,

    /// Whether preferred affinities and ScheduleAnyway spreads count: Respect or Ignore
    #[arg(long, env, default_value = "Respect", value_name = "POLICY", value_parser = preference_policy, hide_env_values = true)]
    pub preference_policy: PreferencePolicy,

    /// What becomes of minValues that cannot be met: Strict or BestEffort
    #[arg(long, env, default_value = "Strict", value_name = "POLICY", value_parser = min_values_policy, hide_env_values = true)]
    pub min_values_policy: MinValuesPolicy,

    /// Leave pods without a node that ask for devices through resource claims (accepted; they are left either way)
    #[arg(long, env, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<true>, hide_env_values = true)]
    pub ignore_dra_requests: bool,

    /// Repair nodes as before 1.15: by force, past budgets
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub legacy_node_repair: bool,

    /// Default spread constraints of the cluster's scheduler, as YAML or JSON
    #[arg(long, env, default_value = "", value_name = "YAML", value_parser = scheduler_config, hide_env_values = true)]
    pub scheduler_config: SchedulerConfig,

    /// Gates as Name=true,Name=false; names that are not known are ignored
    #[arg(long, env, default_value = gates::DEFAULT_TEXT, value_name = "GATES", value_parser = gates, hide_env_values = true)]
    pub feature_gates: FeatureGates,

    /// cost: the cheapest fleet found; compat: upstream's order and choices
    #[arg(long, env = "PLANNER_MODE", default_value = "cost", value_name = "MODE", value_parser = planner_mode, hide_env_values = true)]
    pub planner_mode: PlannerMode,

    /// Largest share of the pods of a DoNotSchedule hostname spread constraint that cost mode plans onto one node, in
    /// percent, never below maxSkew. 0: as upstream; 100: no limit beyond the constraint
    #[arg(long, env, default_value = "10", value_name = "PERCENT", value_parser = spread_share, hide_env_values = true)]
    pub hostname_spread_share: SpreadShare,

    /// Share of a NodePool's price that moving all its pods has to save (consolidation in cost mode)
    #[arg(long, env, default_value = "0.05", value_name = "RATIO", value_parser = ratio, hide_env_values = true)]
    pub consolidation_saving_ratio: f64,

    /// Leave it to the kube-scheduler alone where planned pods go
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub disable_pod_nomination: bool,

    /// Serve the last decisions as JSON on the metrics port under /debug/decisions
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub enable_decision_journal: bool,

    /// aws: tell whether every single offering is available, and its price; tens of thousands of series
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "true|false", value_parser = boolean::<false>, hide_env_values = true)]
    pub offering_metrics: bool,

    /// kwok: instance types from a JSON file instead of the built-in ones
    #[arg(long, env, default_value = "", value_name = "FILE", value_parser = text, hide_env_values = true)]
    pub instance_types_file_path: String,

    /// Namespace that Karpenter runs in
    #[arg(long, env, default_value = "", value_name = "NAMESPACE", value_parser = text, hide = true, hide_env_values = true)]
    pub system_namespace: String,
}

pub const LEASE_NAME: &str = "karpenter-leader-election";
/// Where the lease is if nobody says anything.
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
            consolidation_saving_ratio: 0.05,
            disable_pod_nomination: false,
            enable_decision_journal: false,
            offering_metrics: false,
            instance_types_file_path: String::new(),
            system_namespace: String::new(),
        }
    }
}

impl Options {
    /// The planner's part of it.
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
            ..problem::Options::default()
        }
    }

    /// What all controllers share of it.
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

    /// Where the lease is kept, given the namespace of the pod this runs in, if it runs in one.
    pub fn lease_namespace(&self, own: Option<&str>) -> String {
        [self.leader_election_namespace.as_str(), self.system_namespace.as_str(), own.unwrap_or_default()]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or(NAMESPACE_DEFAULT)
            .to_owned()
    }

    /// How many keys a controller works on at once: `least` with one CPU, growing in a line to `most` with sixty.
    pub fn workers(&self, least: usize, most: usize) -> usize {
        let millis = if self.cpu_requests <= 0 { 1000 } else { self.cpu_requests };
        let share = ((millis - 1000) as f64 / 59_000.0).clamp(0.0, 1.0);
        least + ((most.saturating_sub(least)) as f64 * share).round() as usize
    }
}
