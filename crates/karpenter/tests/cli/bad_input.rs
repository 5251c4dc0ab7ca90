//! Tests of the binary with invalid input: each error is one line with file, document, object, field and valid values.
//! Valid objects are still planned, but `--strict` fails instead. The exit code distinguishes these results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: good}\nspec: {containers: [{name: main, image: x, resources: {requests: {cpu: 100m}}}]}\n";

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-input").join(name);
    fs::create_dir_all(&directory).expect("writable");
    directory
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = directory("files").join(name);
    fs::write(&path, content).expect("writable");
    path
}

fn plan(path: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let command =
        command.arg("plan").arg("-f").arg(path).args(["--catalog", "kwok", "-o", "json"]).args(more);
    command.output().expect("the binary starts")
}

fn lines(output: &Output) -> Vec<&str> {
    std::str::from_utf8(&output.stderr).expect("UTF-8").lines().collect()
}

fn placed(output: &Output) -> usize {
    let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let nodes = plan["nodes"].as_array().expect("a list");
    nodes.iter().map(|node| node["pods"].as_array().expect("a list").len()).sum()
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{spec}containers: [{{name: main, image: x, resources: {{requests: {{cpu: 100m}}}}}}]}}\n"
    )
}

fn pool(requirement: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: some}}\nspec:\n  template:\n    spec:\n      requirements: [{requirement}]\n      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}\n"
    )
}

#[test]
fn invalid_object_is_one_line_and_others_are_planned() {
    let bad = |text: &str| GOOD.replace("name: good", "name: bad").replace("cpu: 100m", text);
    let requests = "Pod default/bad: spec.containers[0].resources.requests.cpu: ";
    let huge = "9".repeat(10 << 20);
    let cases: [(&str, String, &[&str]); 8] = [
        ("wrong-type", bad("cpu: [1]"), &[requests, "a quantity such as"]),
        ("impossible-quantity", bad("cpu: 1xyz"), &[requests, "\"xyz\"", "valid suffixes"]),
        ("negative", bad("cpu: -1"), &[requests, "negative", "(valid: 0 or more)"]),
        ("ten-megabytes", bad(&format!("cpu: \"{huge}\"")), &["Pod default/bad: ", "too large", "bytes)"]),
        ("no-terms", pod("bad", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}, "), &["Pod default/bad: spec.affinity.nodeAffinity", "nodeSelectorTerms: is empty", "(valid: at least one term)"]),
        ("broken", "kind: [\n".to_owned(), &["document 1", "line 1", "["]),
        ("too-many", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad}\nspec: {replicas: 2147483647, selector: {}, template: {spec: {containers: [{name: c}]}}}\n".to_owned(), &["Deployment default/bad: spec.replicas: 2147483647", "(valid: 0 to "]),
        ("no-kind", "metadata: {name: bad}\n".to_owned(), &["apiVersion: is missing"]),
    ];
    for (name, text, parts) in cases {
        let path = file(&format!("{name}.yaml"), format!("{text}---\n{GOOD}").as_bytes());
        let output = plan(&path, &[]);
        assert_eq!(output.status.code(), Some(0), "{name}: {:?}", lines(&output));
        let errors: Vec<&str> =
            lines(&output).into_iter().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{name}: {errors:?}");
        assert!(errors[0].starts_with(&format!("error: {}: document 1", path.display())), "{}", errors[0]);
        assert!(errors[0].len() < 1000, "{name}: a line of {} bytes", errors[0].len());
        for part in parts {
            assert!(errors[0].contains(part), "{name}: {part} in {}", errors[0]);
        }
        assert_eq!(placed(&output), 1, "{name}");
        let strict = plan(&path, &["--strict"]);
        assert_eq!((strict.status.code(), strict.stdout.len()), (Some(1), 0), "{name}");
    }
}

#[test]
fn unknown_fields_are_reported_and_object_is_used() {
    for (name, text, part) in [
        ("pod", GOOD.replace("image: x", "image: x, imagee: y"), "spec.containers[0].imagee: unknown field"),
        (
            "pool",
            format!("{}---\n{GOOD}", pool("").replace("spec:\n  template", "spec:\n  wieght: 3\n  template")),
            "did you mean \"weight\"?",
        ),
    ] {
        let path = file(&format!("unknown-{name}.yaml"), text.as_bytes());
        let output = plan(&path, &[]);
        assert_eq!(output.status.code(), Some(0));
        let lines = lines(&output);
        assert!(lines.iter().any(|line| line.starts_with("warning: ") && line.contains(part)), "{lines:?}");
        assert_eq!(placed(&output), 1, "{name}");
        assert_eq!(plan(&path, &["--strict"]).status.code(), Some(1), "{name}");
    }
}

#[test]
fn unschedulable_pod_has_a_reason() {
    let arm = "nodeSelector: {kubernetes.io/arch: arm64}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}]}}}, ";
    let none = pool("{key: karpenter.kwok.sh/instance-cpu, operator: In, values: [\"7\"]}");
    for (name, text, reason) in [
        ("contradiction", pod("bad", arm), None),
        ("empty-pool", format!("{none}---\n{GOOD}"), Some("PoolMatchesNoInstanceType")),
        ("giant", GOOD.replace("100m", "\"100000\""), Some("TooLarge")),
    ] {
        let output = plan(&file(&format!("nowhere-{name}.yaml"), text.as_bytes()), &["--strict"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {:?}", lines(&output));
        let plan: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        let found = &plan["unschedulable"][0]["reasons"][0];
        assert!(!found["message"].as_str().expect("text").is_empty(), "{name}");
        if let Some(reason) = reason {
            assert_eq!(found["reason"], reason, "{name}: {found}");
        }
    }
}

#[test]
fn empty_selector_selects_everything() {
    let output =
        plan(&file("empty-selector.yaml", pod("good", "nodeSelector: {}, ").as_bytes()), &["--strict"]);
    assert_eq!((output.status.code(), placed(&output)), (Some(0), 1));
}

#[test]
fn second_object_of_same_name_is_rejected() {
    let path = file("twice.yaml", format!("{GOOD}---\n{GOOD}").as_bytes());
    let output = plan(&path, &[]);
    let expected = format!("error: {}: document 2", path.display());
    let lines = lines(&output);
    assert!(
        lines.iter().any(|line| line.starts_with(&expected) && line.contains("already used")),
        "{lines:?}"
    );
    assert_eq!((output.status.code(), placed(&output)), (Some(0), 1));
    assert_eq!(plan(&path, &["--strict"]).status.code(), Some(1));
}

#[test]
fn files_with_invalid_utf8_are_errors() {
    let path = file("latin1.yaml", b"name: caf\xe9\n");
    let output = plan(&path, &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(
        lines(&output)[0].starts_with(&format!("error: {}: not UTF-8", path.display())),
        "{:?}",
        lines(&output)
    );

    let mixed = directory("mixed");
    fs::write(mixed.join("bad.yaml"), b"\xff").expect("writable");
    fs::write(mixed.join("broken.yaml"), "a: [").expect("writable");
    fs::write(mixed.join("good.yaml"), GOOD).expect("writable");
    let output = plan(&mixed, &[]);
    assert_eq!((output.status.code(), placed(&output)), (Some(0), 1));
    for name in ["bad.yaml", "broken.yaml"] {
        let named = lines(&output).iter().any(|line| line.starts_with("error: ") && line.contains(name));
        assert!(named, "{name} in {:?}", lines(&output));
    }
    assert_eq!(plan(&mixed, &["--strict"]).status.code(), Some(1));
}

#[test]
fn empty_input_is_an_error() {
    for text in ["", "# only a comment\n", "---\n---\n"] {
        let path = file("empty.yaml", text.as_bytes());
        let output = plan(&path, &[]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{text:?}");
        let expected = format!("error: {}: no object in the input", path.display());
        assert!(lines(&output)[0].starts_with(&expected), "{:?}", lines(&output));
    }

    let empty = directory("empty");
    let output = plan(&empty, &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let expected = format!("error: {}: no manifest in this directory", empty.display());
    assert!(
        lines(&output)[0].starts_with(&expected) && lines(&output)[0].contains(".yaml"),
        "{:?}",
        lines(&output)
    );

    let output = plan(Path::new("https://example.com/pools.yaml"), &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(lines(&output)[0].contains("URLs are not supported"), "{:?}", lines(&output));
}
