use super::*;
use clap::{CommandFactory, Parser};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let line = Line::try_parse_from(["karpenter"].iter().chain(arguments));
    line.map(|line| line.options).map_err(|error| error.to_string())
}

/// Each row: flag, environment variable and default value in upstream 1.15.
const UPSTREAM: &[(&str, &str, &str)] = &[
    ("karpenter-service", "KARPENTER_SERVICE", ""),
    ("metrics-port", "METRICS_PORT", "8080"),
    ("health-probe-port", "HEALTH_PROBE_PORT", "8081"),
    ("kube-client-qps", "KUBE_CLIENT_QPS", "200"),
    ("kube-client-burst", "KUBE_CLIENT_BURST", "300"),
    ("enable-profiling", "ENABLE_PROFILING", "false"),
    ("disable-controller-warmup", "DISABLE_CONTROLLER_WARMUP", "true"),
    ("disable-leader-election", "DISABLE_LEADER_ELECTION", "false"),
    ("disable-cluster-state-observability", "DISABLE_CLUSTER_STATE_OBSERVABILITY", "false"),
    ("leader-election-name", "LEADER_ELECTION_NAME", "karpenter-leader-election"),
    ("leader-election-namespace", "LEADER_ELECTION_NAMESPACE", ""),
    ("memory-limit", "MEMORY_LIMIT", "-1"),
    ("cpu-requests", "CPU_REQUESTS", "1000"),
    ("log-level", "LOG_LEVEL", "info"),
    ("log-output-paths", "LOG_OUTPUT_PATHS", "stdout"),
    ("log-error-output-paths", "LOG_ERROR_OUTPUT_PATHS", "stderr"),
    ("batch-max-duration", "BATCH_MAX_DURATION", "10s"),
    ("batch-idle-duration", "BATCH_IDLE_DURATION", "1s"),
    ("preference-policy", "PREFERENCE_POLICY", "Respect"),
    ("min-values-policy", "MIN_VALUES_POLICY", "Strict"),
    ("ignore-dra-requests", "IGNORE_DRA_REQUESTS", "true"),
    ("legacy-node-repair", "LEGACY_NODE_REPAIR", "false"),
    ("scheduler-config", "SCHEDULER_CONFIG", ""),
    (
        "feature-gates",
        "FEATURE_GATES",
        "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,NodeOverlay=false,StaticCapacity=false,\
         CapacityBuffer=false,TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false",
    ),
    ("instance-types-file-path", "INSTANCE_TYPES_FILE_PATH", ""),
];

#[test]
fn flags_variables_and_defaults_match_upstream() {
    let command = Line::command();
    for (flag, variable, default) in UPSTREAM {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag));
        let argument = argument.unwrap_or_else(|| panic!("--{flag} is missing"));
        let variable_is = argument.get_env().map(|name| name.to_string_lossy().into_owned());
        assert_eq!(variable_is.as_deref(), Some(*variable), "--{flag}");
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        assert_eq!(defaults, [*default], "--{flag}");
    }
}

#[test]
fn no_arguments_give_the_defaults() {
    assert_eq!(parse(&[]), Ok(Options::default()));
}

#[test]
fn empty_values_give_the_defaults() {
    let flags: Vec<String> = UPSTREAM.iter().map(|(flag, ..)| format!("--{flag}=")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    assert_eq!(
        parse(&flags),
        Ok(Options {
            // These options are free text and may be empty.
            log_output_paths: String::new(),
            log_error_output_paths: String::new(),
            ..Options::default()
        })
    );
}

#[test]
fn values_are_parsed_like_in_go() {
    let options = parse(&[
        "--batch-max-duration=1m30s",
        "--batch-idle-duration",
        "500ms",
        "--preference-policy=Ignore",
        "--min-values-policy=BestEffort",
        "--enable-profiling",
        "--disable-controller-warmup=false",
        "--memory-limit=-1",
        "--metrics-port=1",
        "--metrics-port=2",
        "--feature-gates=NodeRepair=true,Unheard=true,ReservedCapacity=f",
    ])
    .expect("valid");
    assert_eq!(options.batch_max_duration, Duration::from_secs(90));
    assert_eq!(options.batch_idle_duration, Duration::from_millis(500));
    assert_eq!(options.planner().preference_policy, problem::PreferencePolicy::Ignore);
    assert_eq!(options.planner().min_values_policy, problem::MinValuesPolicy::BestEffort);
    assert!(options.enable_profiling && !options.disable_controller_warmup);
    assert_eq!(options.metrics_port, 2, "the last value is used");
    let gates = FeatureGates { node_repair: true, reserved_capacity: false, ..FeatureGates::default() };
    assert_eq!(options.feature_gates, gates);
}

#[test]
fn log_levels_above_error_are_read_as_error() {
    let level = |name: &str| parse(&[&format!("--log-level={name}")]).expect("valid").log_level;
    assert_eq!(level("warn"), LogLevel::Warn);
    for name in ["error", "dpanic", "panic", "fatal"] {
        assert_eq!(level(name), LogLevel::Error, "{name}");
    }
}

#[test]
fn invalid_values_are_reported_with_flag_and_valid_values() {
    for (argument, flag, valid) in [
        ("--metrics-port=http", "--metrics-port", "0 to 65535"),
        ("--metrics-port=70000", "--metrics-port", "0 to 65535"),
        ("--log-level=verbose", "--log-level", "debug, info, warn, error"),
        ("--preference-policy=respect", "--preference-policy", "Respect, Ignore"),
        ("--min-values-policy=Loose", "--min-values-policy", "Strict, BestEffort"),
        ("--batch-idle-duration=1", "--batch-idle-duration", "500ms"),
        ("--batch-idle-duration=-1s", "--batch-idle-duration", "zero or more"),
        ("--disable-leader-election=yes", "--disable-leader-election", "true, false"),
        ("--feature-gates=NodeRepair=", "--feature-gates", "true, false"),
        ("--feature-gates=NodeRepair", "--feature-gates", "Name=true"),
    ] {
        let error = parse(&[argument]).expect_err(argument);
        assert!(error.contains(flag) && error.contains(valid), "{argument}: {error}");
    }
}

#[test]
fn booleans_are_parsed_like_in_go() {
    for (text, is_on) in
        [("1", true), ("t", true), ("T", true), ("TRUE", true), ("true", true), ("True", true)]
            .into_iter()
            .chain(["0", "f", "F", "FALSE", "false", "False"].map(|text| (text, false)))
    {
        let options = parse(&[&format!("--enable-profiling={text}")]).expect(text);
        assert_eq!(options.enable_profiling, is_on, "{text}");
    }
}

#[test]
fn invalid_variables_are_ignored() {
    let environment = [
        ("METRICS_PORT", "http"),
        ("HEALTH_PROBE_PORT", "70000"),
        ("KUBE_CLIENT_QPS", "many"),
        ("KUBE_CLIENT_BURST", ""),
        ("ENABLE_PROFILING", "on"),
        ("DISABLE_LEADER_ELECTION", "T"),
        ("BATCH_MAX_DURATION", "10"),
        ("BATCH_IDLE_DURATION", "2s"),
        ("LOG_LEVEL", "loud"),
        ("HOSTNAME_SPREAD_SHARE", "10%"),
    ];
    let value_of = |name: &str| {
        let found = environment.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let (command, ignored) = without_unreadable(Line::command(), value_of);
    let ignored: Vec<_> =
        ignored.iter().map(|one| (one.variable.as_str(), one.value.as_str(), one.default.as_str())).collect();
    let expected = [
        ("METRICS_PORT", "http", "8080"),
        ("KUBE_CLIENT_QPS", "many", "200"),
        ("ENABLE_PROFILING", "on", "false"),
        ("BATCH_MAX_DURATION", "10", "10s"),
        ("HOSTNAME_SPREAD_SHARE", "10%", "10"),
    ];
    assert_eq!(ignored, expected);
    for (variable, _) in environment {
        let has_variable =
            command.get_arguments().any(|argument| argument.get_env() == Some(variable.as_ref()));
        let is_ignored = expected.iter().any(|(ignored, ..)| *ignored == variable);
        assert_eq!(has_variable, !is_ignored, "{variable}");
    }
}

#[test]
fn node_count_tolerance_reaches_the_planner() {
    let tolerance = |arguments: &[&str]| {
        parse(arguments).map(|options| options.planner().node_count_tolerance.fraction())
    };
    assert_eq!(tolerance(&[]), Ok(0.005));
    assert_eq!(tolerance(&["--node-count-tolerance="]), Ok(0.005));
    assert_eq!(tolerance(&["--node-count-tolerance=0"]), Ok(0.0));
    assert_eq!(tolerance(&["--node-count-tolerance", "2"]), Ok(0.02));
    let error = tolerance(&["--node-count-tolerance=101"]).expect_err("above 100");
    assert!(error.contains("--node-count-tolerance <PERCENT>") && error.contains("from 0 to 100"), "{error}");
}

#[test]
fn share_of_hostname_spreads_reaches_the_planner() {
    let share = |arguments: &[&str]| {
        parse(arguments).map(|options| options.planner().hostname_spread_share.percent())
    };
    assert_eq!(share(&[]), Ok(10));
    assert_eq!(share(&["--hostname-spread-share="]), Ok(10));
    assert_eq!(share(&["--hostname-spread-share=0"]), Ok(0));
    assert_eq!(share(&["--hostname-spread-share", "100"]), Ok(100));
    let error = share(&["--hostname-spread-share=101"]).expect_err("above 100");
    assert!(
        error.contains("--hostname-spread-share <PERCENT>") && error.contains("from 0 to 100"),
        "{error}"
    );
}

#[test]
fn offering_metrics_are_disabled_by_default() {
    assert!(!parse(&[]).expect("valid").offering_metrics);
    assert!(parse(&["--offering-metrics"]).expect("valid").offering_metrics);
}

#[test]
fn lease_namespace_is_first_of_flag_variable_pod_default() {
    let options = |election: &str, system: &str| Options {
        leader_election_namespace: election.to_owned(),
        system_namespace: system.to_owned(),
        ..Options::default()
    };
    assert_eq!(options("a", "b").lease_namespace(Some("c")), "a");
    assert_eq!(options("", "b").lease_namespace(Some("c")), "b");
    assert_eq!(options("", "").lease_namespace(Some("c")), "c");
    assert_eq!(options("", "").lease_namespace(None), "kube-system");
}

#[test]
fn workers_grow_with_cpu_request() {
    let with = |cpu_requests| Options { cpu_requests, ..Options::default() }.workers(10, 1000);
    assert_eq!(with(1000), 10);
    assert_eq!(with(0), 10);
    assert_eq!(with(500), 10);
    assert_eq!(with(60_000), 1000);
    assert_eq!(with(90_000), 1000);
    assert_eq!(with(30_500), 505, "halfway");
}
