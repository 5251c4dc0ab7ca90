//! Tests of the binary without a subcommand, with the environment variables of upstream's charts.

use super::*;

/// The variables that both charts of upstream set by default, in their order. The ports are replaced by free ones.
const BOTH_CHARTS: &[(&str, &str)] = &[
    ("KUBERNETES_MIN_VERSION", "1.19.0-0"),
    ("KARPENTER_SERVICE", "karpenter"),
    ("LOG_LEVEL", "info"),
    ("METRICS_PORT", "0"),
    ("HEALTH_PROBE_PORT", "0"),
    ("SYSTEM_NAMESPACE", "kube-system"),
    ("CPU_REQUESTS", "1000"),
    ("MEMORY_LIMIT", "1073741824"),
    ("BATCH_MAX_DURATION", "10s"),
    ("BATCH_IDLE_DURATION", "1s"),
    ("PREFERENCE_POLICY", "Respect"),
    ("MIN_VALUES_POLICY", "Strict"),
];

/// Variables that only the chart of the kwok provider sets.
const KWOK_CHART: &[(&str, &str)] = &[
    (
        "FEATURE_GATES",
        "StaticCapacity=false,SpotToSpotConsolidation=false,NodeRepair=false,CapacityBuffer=false",
    ),
    (
        "SCHEDULER_CONFIG",
        "podTopologySpread:\n  defaultConstraints:\n    - maxSkew: 1\n      topologyKey: topology.kubernetes.io/zone\n      \
         whenUnsatisfiable: ScheduleAnyway\n",
    ),
];

/// Variables that only the chart of the AWS provider sets, including those that are omitted by default.
const AWS_CHART: &[(&str, &str)] = &[
    ("LOG_OUTPUT_PATHS", "stdout"),
    ("LOG_ERROR_OUTPUT_PATHS", "stderr"),
    (
        "FEATURE_GATES",
        "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false,StaticCapacity=false,\
         CapacityBuffer=false",
    ),
    ("AWS_FEATURE_GATES", "NodeClassCEL=false"),
    ("CLUSTER_CA_BUNDLE", "Y2E="),
    ("CLUSTER_NAME", "swap"),
    ("CLUSTER_ENDPOINT", "https://api.example"),
    ("ISOLATED_VPC", "true"),
    ("EKS_CONTROL_PLANE", "true"),
    ("VM_MEMORY_OVERHEAD_PERCENT", "0.075"),
    ("INTERRUPTION_QUEUE", "swap"),
    ("ENABLE_ZONAL_SHIFT", "true"),
    ("RESERVED_ENIS", "0"),
    ("IGNORE_DRA_REQUESTS", "true"),
    ("DISABLE_CLUSTER_STATE_OBSERVABILITY", "true"),
    ("DISABLE_DRY_RUN", "true"),
    ("AMI_REFRESH_INTERVAL", "1m"),
    ("SUBNET_REFRESH_INTERVAL", "1m"),
];

/// Runs the binary without a subcommand. It gets exactly these environment variables.
fn bare(arguments: &[&str], variables: &[&[(&str, &str)]], kubeconfig: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    command.args(arguments).env_clear().env("KUBECONFIG", kubeconfig);
    command.envs(variables.concat()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// In a build with AWS, this variable selects the kwok provider; a build without AWS needs none.
const KWOK_WORD: &[(&str, &str)] =
    if cfg!(feature = "aws") { &[("KARPENTER_PROVIDER", "kwok")] } else { &[] };

#[tokio::test(flavor = "multi_thread")]
async fn controller_is_implied_with_environment_of_upstream_kwok_chart() {
    let folder = folder("bare");
    let kubeconfig = folder.join("kubeconfig");
    let mut up = Running::start(&["up", "--port", "0", "--without-karpenter"], &kubeconfig);
    up.line_with("Ctrl-C");
    let variables = [BOTH_CHARTS, KWOK_CHART, KWOK_WORD];
    // Upstream's binary accepts flags without a subcommand, and flags with one dash; ours must accept both.
    let mut running = Running::spawn(&mut bare(&["-log-format", "console"], &variables, &kubeconfig));
    let started = running.line_with("starting karpenter");
    assert!(!started.starts_with('{'), "the flag reached the controller: {started}");
    apply_workload(&client(&kubeconfig).await).await;
    running.line_with("initialized nodeclaim");
    assert_eq!(running.terminate(), Some(0));
    drop(up);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn controller_is_implied_with_environment_of_upstream_aws_chart() {
    let nowhere = Path::new("/nowhere/kubeconfig");
    let output = bare(&[], &[BOTH_CHARTS, AWS_CHART], nowhere).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    if cfg!(feature = "aws") {
        assert!(
            said.contains("found neither a kubeconfig"),
            "options were accepted, the cluster was looked for: {said}"
        );
    } else {
        assert!(said.contains("CLUSTER_NAME is set, and this build has no AWS provider"), "{said}");
    }
}

#[test]
fn without_arguments_outside_of_pods_help_is_printed() {
    let nowhere = Path::new("/nowhere/kubeconfig");
    let output = bare(&[], &[], nowhere).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Usage: karpenter <COMMAND>"), "{said}");
}

#[test]
fn variables_are_parsed_as_in_go_and_invalid_ones_ignored_with_warning() {
    let nowhere = Path::new("/nowhere/kubeconfig");
    let variables: &[(&str, &str)] = &[
        ("KARPENTER_PROVIDER", "kwok"),
        ("DISABLE_LEADER_ELECTION", "True"),
        ("ENABLE_PROFILING", "1"),
        ("LEGACY_API", "f"),
        ("IGNORE_DRA_REQUESTS", "yes"),
        ("CPU_REQUESTS", "1 core"),
        ("BATCH_IDLE_DURATION", "soon"),
    ];
    let output = bare(&[], &[variables, &[("KARPENTER_SERVICE", "karpenter")]], nowhere).output();
    let output = output.expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("found neither a kubeconfig"), "{said}");
    let logged = String::from_utf8_lossy(&output.stdout).into_owned();
    let warnings: Vec<Value> = logged.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found: Vec<_> =
        warnings.iter().map(|line| (&line["variable"], &line["value"], &line["default"])).collect();
    let expected = [
        ("CPU_REQUESTS", "1 core", "1000"),
        ("BATCH_IDLE_DURATION", "soon", "1s"),
        ("IGNORE_DRA_REQUESTS", "yes", "true"),
    ];
    let expected = expected.map(|(variable, value, default)| (json!(variable), json!(value), json!(default)));
    assert_eq!(found, expected.iter().map(|(a, b, c)| (a, b, c)).collect::<Vec<_>>(), "{logged}");
    assert!(warnings.iter().all(|line| line["level"] == "WARN"), "{logged}");

    // Values that upstream rejects are rejected here.
    let output =
        bare(&[], &[variables, &[("KARPENTER_SERVICE", "k"), ("LOG_LEVEL", "loud")]], nowhere).output();
    let output = output.expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--log-level"), "{said}");
}
