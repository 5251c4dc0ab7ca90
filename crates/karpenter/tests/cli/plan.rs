//! Tests of the binary with `plan`: the examples, exit codes and output streams.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EXAMPLES: [&str; 5] = ["inflate", "three-pools", "spread", "gpu", "wrong-nodepool"];

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(format!("{name}.yaml"))
}

fn karpenter(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_karpenter")).args(arguments), "")
}

/// Runs the binary with the text as its standard input.
pub(crate) fn run(command: &mut Command, stdin: &str) -> Output {
    let mut child = command
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let written = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    // If flags are invalid, the binary ends before it reads its input.
    if let Err(error) = written {
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
    }
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn plan_json(name: &str, more: &[&str]) -> Value {
    let path = example(name);
    let mut arguments = vec!["plan", "-f", path.to_str().expect("UTF-8"), "-o", "json"];
    arguments.extend(more);
    let output = karpenter(&arguments);
    assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(|item| item.as_str().expect("text").to_owned()).collect()
}

fn nodes(plan: &Value) -> &[Value] {
    plan["nodes"].as_array().expect("a list")
}

/// The nodes on which the pods of a workload were planned.
fn placed<'a>(plan: &'a Value, workload: &str) -> BTreeMap<String, &'a Value> {
    let prefix = format!("default/{workload}-");
    let pods = |node: &'a Value| {
        strings(&node["pods"]).into_iter().filter(|pod| pod.starts_with(&prefix)).map(move |pod| (pod, node))
    };
    nodes(plan).iter().flat_map(pods).collect()
}

#[test]
fn every_example_is_consistent_in_both_modes() {
    for name in EXAMPLES {
        for mode in ["cost", "compat"] {
            let plan = plan_json(name, &["--mode", mode]);
            let mut pods = Vec::new();
            let mut hourly = 0.0;
            let mut names = BTreeSet::new();
            for node in nodes(&plan) {
                pods.extend(strings(&node["pods"]));
                hourly += node["price"].as_f64().expect("a number");
                assert!(names.insert(node["name"].to_string()), "{name}: two nodes of one name");
                assert_eq!(node["instanceTypeOptions"][0], node["instanceType"], "{name}: cheapest first");
            }
            let unschedulable = plan["unschedulable"].as_array().expect("a list");
            pods.extend(unschedulable.iter().map(|left| left["pod"].as_str().expect("text").to_owned()));
            let different: BTreeSet<&String> = pods.iter().collect();
            assert_eq!(different.len(), pods.len(), "{name}: a pod is listed twice");
            assert_eq!(plan["stats"]["pods"], pods.len(), "{name}");
            assert_eq!(plan["stats"]["nodes"], nodes(&plan).len(), "{name}");
            let cost = &plan["cost"];
            assert!((cost["hourly"].as_f64().expect("a number") - hourly).abs() < 1e-4, "{name}: {cost}");
            assert!(cost["hourly"].as_f64() <= cost["compatHourly"].as_f64(), "{name}: {cost}");
            assert!(cost["lowerBound"].as_f64() <= cost["hourly"].as_f64(), "{name}: {cost}");
        }
    }
}

#[test]
fn plan_is_deterministic() {
    for name in EXAMPLES {
        let mut plans = [plan_json(name, &[]), plan_json(name, &[])];
        for plan in &mut plans {
            plan["stats"]["timings"].take();
        }
        assert_eq!(plans[0], plans[1], "{name}");
    }
}

#[test]
fn exclusive_pools_keep_their_pods() {
    let plan = plan_json("three-pools", &[]);
    for (workload, pool, pods) in [("api", "cpu", 24), ("cache", "memory", 12), ("model", "gpu", 4)] {
        let placed = placed(&plan, workload);
        assert_eq!(placed.len(), pods, "{workload}");
        for (pod, node) in placed {
            assert_eq!(node["nodePool"], pool, "{pod}");
        }
    }
    for node in placed(&plan, "model").values() {
        assert_eq!(node["instanceType"], "g5.xlarge");
        assert_eq!(node["instanceTypeOptions"], serde_json::json!(["g5.xlarge"]));
    }
    assert!(placed(&plan, "undecided").values().all(|node| node["nodePool"] != "gpu"));
}

#[test]
fn spread_pods_are_on_different_nodes() {
    let plan = plan_json("spread", &[]);
    let mut by_zone: BTreeMap<String, u32> = BTreeMap::new();
    for node in placed(&plan, "web").values() {
        *by_zone.entry(node["zone"].to_string()).or_default() += 1;
    }
    assert_eq!(by_zone.values().copied().collect::<Vec<_>>(), [3, 3, 3], "{by_zone:?}");
    let database = placed(&plan, "database");
    let hosts: BTreeSet<String> = database.values().map(|node| node["name"].to_string()).collect();
    assert_eq!((database.len(), hosts.len()), (3, 3));
}

#[test]
fn gpus_are_not_shared() {
    let plan = plan_json("gpu", &[]);
    let gpus = |node: &Value, field: &str| -> u32 {
        node[field]["nvidia.com/gpu"].as_str().map_or(0, |text| text.parse().expect("a whole number"))
    };
    let requested: u32 = nodes(&plan).iter().map(|node| gpus(node, "requests")).sum();
    assert_eq!(requested, 10);
    for node in nodes(&plan) {
        assert!(gpus(node, "requests") <= gpus(node, "allocatable"), "{node}");
    }
}

#[test]
fn invalid_objects_are_reported_and_others_planned() {
    let path = example("wrong-nodepool");
    let path = path.to_str().expect("UTF-8");
    let output = karpenter(&["plan", "-f", path, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let stderr = text(&output.stderr);
    for field in ["spec.weight", "spec.limits", "spec.template.spec.requirements[0].operator"] {
        let named = stderr
            .lines()
            .any(|line| line.starts_with(&format!("error: {path}: document 1")) && line.contains(field));
        assert!(named, "{field} in {stderr}");
    }
    let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let reasons: BTreeSet<(String, String)> = plan["unschedulable"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|left| {
            let pod = left["pod"].as_str().expect("text");
            let workload = pod.trim_start_matches("default/").split('-').next().expect("a name");
            (workload.to_owned(), left["reasons"][0]["reason"].as_str().expect("text").to_owned())
        })
        .collect();
    let expected = [("greedy", "TooLarge"), ("picky", "Requirement"), ("typo", "UndefinedLabel")];
    let expected = expected.map(|(workload, reason)| (workload.to_owned(), reason.to_owned()));
    assert_eq!(reasons, expected.into());

    let strict = karpenter(&["plan", "-f", path, "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert_eq!(text(&strict.stdout), "");
}

#[test]
fn input_comes_from_files_directories_and_standard_input() {
    let file = std::fs::read_to_string(example("inflate")).expect("readable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let piped = run(command.args(["plan", "-f", "-", "-o", "json"]), &file);
    assert_eq!(piped.status.code(), Some(0), "{}", text(&piped.stderr));
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("valid JSON");
    assert_eq!(piped["nodes"], plan_json("inflate", &[])["nodes"]);

    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan-input");
    std::fs::create_dir_all(directory.join("nested/.hidden")).expect("writable");
    std::fs::write(directory.join("nested/inflate.yml"), &file).expect("writable");
    std::fs::write(directory.join("nested/.hidden/broken.yaml"), "[").expect("writable");
    std::fs::write(directory.join("README.txt"), "not a manifest").expect("writable");
    let output = karpenter(&["plan", "-f", directory.to_str().expect("UTF-8"), "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let from_directory: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(from_directory["nodes"], piped["nodes"]);
}

#[test]
fn yaml_equals_json() {
    let path = example("three-pools");
    let output = karpenter(&["plan", "-f", path.to_str().expect("UTF-8"), "-o", "yaml"]);
    let mut yaml: Value = serde_saphyr::from_str(text(&output.stdout)).expect("valid YAML");
    let mut json = plan_json("three-pools", &[]);
    for plan in [&mut yaml, &mut json] {
        plan["stats"]["timings"].take();
    }
    assert_eq!(yaml, json);
}

#[test]
fn tables_are_plain_when_piped() {
    let path = example("wrong-nodepool");
    for format in ["table", "wide"] {
        let output = karpenter(&["plan", "-f", path.to_str().expect("UTF-8"), "-o", format, "--explain"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_ascii(), "{}", text(&output.stdout));
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
    }
}

const LONE_POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec:\n  containers:\n    - {name: main, image: x, resources: {requests: {cpu: 100m, memory: 64Mi}}}\n";

#[test]
fn without_nodepool_a_built_in_one_is_used_with_a_note() {
    for (more, zone) in [
        (&[][..], "us-east-1"),
        (&["--catalog", "kwok"][..], "test-zone-"),
        (&["--region", "eu-west-1"][..], "eu-west-1"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        let output = run(command.args(["plan", "-f", "-", "-o", "json"]).args(more), LONE_POD);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("built-in"), "{}", text(&output.stderr));
        let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        assert_eq!(plan["nodes"][0]["name"], "default-1");
        assert_eq!(strings(&plan["nodes"][0]["pods"]), ["default/one"]);
        let found = plan["nodes"][0]["zone"].as_str().expect("text");
        assert!(found.starts_with(zone), "{found}");
    }
}

const READY_NODE: &str = r#"
apiVersion: v1
kind: Node
metadata:
  name: old
  labels: {kubernetes.io/hostname: old, kubernetes.io/arch: amd64, kubernetes.io/os: linux}
status:
  capacity: {cpu: "2", memory: 4Gi, pods: "10"}
  allocatable: {cpu: "2", memory: 4Gi, pods: "10"}
  conditions: [{type: Ready, status: "True"}]
---
"#;

#[test]
fn existing_nodes_are_used_first() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let output = run(command.args(["plan", "-f", "-", "-o", "json"]), &format!("{READY_NODE}{LONE_POD}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(plan["existing"], serde_json::json!([{ "node": "old", "pods": ["default/one"] }]));
    assert_eq!(plan["nodes"], serde_json::json!([]));
    assert_eq!(plan["cost"]["hourly"], 0.0);
}

const DAEMONSET_WITH_CLAIMS: &str = r#"
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: devices}
spec:
  selector: {matchLabels: {app: devices}}
  template:
    metadata: {labels: {app: devices}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}, claims: [{name: gpu}]}}]
"#;

#[test]
fn daemonset_with_resource_claims_is_not_counted() {
    let input = format!("{LONE_POD}{DAEMONSET_WITH_CLAIMS}");
    for mode in ["cost", "compat"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        let plan = |input: &str, command: &mut Command| {
            let output = run(command.args(["plan", "-f", "-", "-o", "json", "--mode", mode]), input);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output
        };
        let output = plan(&input, &mut command);
        assert!(text(&output.stderr).contains("not counted: devices"), "{}", text(&output.stderr));
        let with: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        let without = plan(LONE_POD, &mut Command::new(env!("CARGO_BIN_EXE_karpenter")));
        let without: Value = serde_json::from_slice(&without.stdout).expect("valid JSON");
        assert_eq!(with["nodes"], without["nodes"], "{mode}");
    }
}

const TWO_TYPES: &str = r#"[
  {"name": "expensive.large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "4", "memory": "8Gi"},
   "offerings": [{"Price": 2.5, "Available": true, "Requirements": [
     {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
     {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]}]},
  {"name": "cheap.large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "4", "memory": "8Gi"},
   "offerings": [{"Price": 1.5, "Available": true, "Requirements": [
     {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
     {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]}]}
]"#;

#[test]
fn instance_types_are_read_from_a_file() {
    let types = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-types.json");
    std::fs::write(&types, TWO_TYPES).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let command = command.args(["plan", "-f", "-", "-o", "json", "--instance-types"]).arg(&types);
    let output = run(command, LONE_POD);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(plan["nodes"][0]["instanceType"], "cheap.large");
    assert_eq!(plan["nodes"][0]["zone"], "z1");
    assert_eq!(plan["cost"]["hourly"], 1.5);
}

#[test]
fn invalid_input_exits_one_without_stdout() {
    let only_wrong = LONE_POD.replace("100m", "lots");
    let cases: [(&[&str], &str, &str); 5] = [
        (&["-f", "no-such-file.yaml"], "", "no-such-file.yaml"),
        (&["-f", "-"], "a: [", "document 1"),
        (&["-f", "-"], &only_wrong, "requests.cpu"),
        (&["-f", "-", "--instance-types", "no-such-types.json"], LONE_POD, "no-such-types.json"),
        (&["-f", "-", "--region", "atlantis-1"], LONE_POD, "us-east-1"),
    ];
    for (arguments, stdin, named) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        let output = run(command.arg("plan").args(arguments), stdin);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert_eq!(text(&output.stdout), "");
        assert!(stderr.starts_with("error: ") || stderr.starts_with("note: "), "{stderr}");
        assert!(stderr.contains(named), "{named} in {stderr}");
    }
}

#[test]
fn usage_errors_exit_two() {
    for arguments in [&["plan"][..], &["plan", "-f", "-", "--mode", "fast"], &["fly"], &[]] {
        assert_eq!(karpenter(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let version = karpenter(&["--version"]);
    assert_eq!(text(&version.stdout).trim(), concat!("karpenter ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn closed_pipe_is_not_an_error() {
    let many = std::fs::read_to_string(example("inflate"))
        .expect("readable")
        .replace("replicas: 40", "replicas: 900000");
    let many = many.replace("cpu: 1000\n", "cpu: 100000000\n");
    for format in ["json", "yaml", "wide"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_karpenter"))
            .args(["plan", "-f", "-", "-o", format, "--mode", "compat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        child.stdin.take().expect("piped").write_all(many.as_bytes()).expect("the binary reads its input");
        let mut first = [0; 16];
        let mut stdout = child.stdout.take().expect("piped");
        stdout.read_exact(&mut first).expect("some output");
        drop(stdout);
        let output = child.wait_with_output().expect("the binary ends");
        assert_eq!(output.status.code(), Some(0), "{format}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{format}");
    }
}

fn consolidation(more: &[&str]) -> Value {
    let mut arguments = vec!["--consolidate"];
    arguments.extend(more);
    plan_json("fragmented", &arguments)
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn simulated_consolidation_is_consistent_in_both_modes() {
    for mode in ["cost", "compat"] {
        let report = consolidation(&["--mode", mode, "--rounds", "all"]);
        let commands = report["commands"].as_array().expect("a list");
        let saving: f64 = commands.iter().map(|command| number(&command["saving"])).sum();
        let cost = &report["cost"];
        assert!(saving > 0.0 && (number(&cost["saving"]) - saving).abs() < 1e-5, "{mode}");
        let after = number(&cost["hourlyBefore"]) - saving;
        assert!((number(&cost["hourlyAfter"]) - after).abs() < 1e-5, "{mode}");
        if mode == "cost" {
            assert!(number(&cost["lowerBound"]) <= number(&cost["hourlyAfter"]) + 1e-6);
        }
        let moved: usize =
            commands.iter().map(|command| command["moves"].as_array().expect("a list").len()).sum();
        assert_eq!(report["stats"]["podsMoved"], moved, "{mode}");
        // In the first round, only the empty node is deleted, as far as the budgets allow.
        assert_eq!(commands[0]["reason"], "Empty", "{mode}");
        assert_eq!(commands[0]["candidates"][0]["node"], "node-f", "{mode}");
        let stays = |node: &str| {
            let staying = report["staying"].as_array().expect("a list");
            staying.iter().find(|one| one["node"] == node).map(|one| one["reason"].as_str().expect("text"))
        };
        assert_eq!((stays("node-d"), stays("node-e")), (Some("PodAnnotated"), Some("PodBudget")), "{mode}");
        assert_eq!(report["now"], "2026-01-01T12:00:00Z");
    }
    let now = consolidation(&[]);
    assert_eq!(now["stats"]["rounds"], 1);
    let early = consolidation(&["--now", "2026-01-01T09:04:59Z"]);
    assert_eq!(early["commands"], Value::Array(vec![]), "consolidateAfter has not run out");
    assert_eq!(early["staying"][0]["reason"], "Settling");
}

#[test]
fn dump_without_nodeclaims_is_accepted() {
    let text_of = std::fs::read_to_string(example("fragmented")).expect("the example is there");
    let documents = text_of.split("---\n").filter(|document| !document.contains("kind: NodeClaim\n"));
    let without_claims = documents.collect::<Vec<_>>().join("---\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let output = run(command.args(["plan", "--consolidate", "-o", "json", "-f", "-"]), &without_claims);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("note: 6 nodes of a nodepool without a nodeclaim"));
    let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(report["commands"][0]["candidates"][0]["node"], "node-f");
}

#[test]
fn invalid_budget_is_a_warning() {
    let budgets = "  disruption: {budgets: [{nodes: '1', schedule: 61 * * * *, duration: 1h}]}\n";
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: '2026-01-01T12:00:00Z', labels: {karpenter.sh/nodepool: default}}\n";
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let input = format!("{}{budgets}---\n{node}", text_of_pool());
    let output = run(command.args(["plan", "--consolidate", "-f", "-"]), &input);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let warning = "warning: nodepool default: spec.disruption.budgets: budget 0: schedule field minute";
    assert!(text(&output.stderr).contains(warning), "{}", text(&output.stderr));
}

#[test]
fn consolidation_needs_nodes_nodepools_and_a_time() {
    let pool = text_of_pool();
    let timeless = format!(
        "{pool}---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1, labels: {{karpenter.sh/nodepool: default}}}}\n"
    );
    let node =
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: '2026-01-01T12:00:00Z'}\n";
    let cases = [
        (node.to_owned(), "error: the input has no NodePool"),
        (timeless, "error: no object of the input has a timestamp; set the time of the dump with --now"),
        (format!("{pool}---\n{node}"), "error: the input has no node of a NodePool"),
    ];
    for (input, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        let output = run(command.args(["plan", "--consolidate", "-f", "-"]), &input);
        assert_eq!(output.status.code(), Some(1), "{input}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    let output = karpenter(&["plan", "-f", "-", "--now", "2026-01-01T12:00:00Z"]);
    assert_eq!(output.status.code(), Some(2), "--now means nothing without --consolidate");
}

#[test]
fn replicas_with_hostname_spread_get_separate_nodes() {
    let workload = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
      containers: [{name: web, resources: {requests: {cpu: 100m, memory: 128Mi}}}]
";
    let plan = |annotation: &str, more: &[&str]| {
        let pool = text_of_pool().replace("{name: default}", &format!("{{name: default{annotation}}}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        let output =
            run(command.args(["plan", "-o", "json", "-f", "-"]).args(more), &format!("{pool}{workload}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        (nodes(&plan).len(), text(&output.stderr).to_owned())
    };
    let share = |value: &str| format!(", annotations: {{karpenter.sh/hostname-spread-share: {value}}}");
    assert_eq!(plan("", &[]).0, 3);
    assert_eq!(plan("", &["--hostname-spread-share", "100"]).0, 1);
    assert_eq!(plan(&share("'0'"), &["--hostname-spread-share", "100"]).0, 3);
    assert_eq!(plan(&share("'100'"), &[]).0, 1);
    let (count, stderr) = plan(&share("10%"), &[]);
    let warning = "warning: nodepool default: annotation karpenter.sh/hostname-spread-share: \"10%\" is invalid; valid: a whole number of percent from 0 to 100";
    assert!(count == 3 && stderr.contains(warning), "{count} nodes: {stderr}");
}

fn text_of_pool() -> &'static str {
    "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
"
}
