//! Tests of the binary with `crds` and `bench`.

use std::process::{Command, Output};

use serde_json::Value;

fn karpenter(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_karpenter")).args(arguments).output().expect("the binary runs")
}

fn crd_names(output: &Output) -> Vec<String> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    let crds: Vec<Value> = serde_saphyr::from_multiple(text).expect("valid YAML");
    crds.iter().map(|crd| crd["metadata"]["name"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn crds_prints_all_or_one_by_name() {
    let all = crd_names(&karpenter(&["crds"]));
    assert_eq!(all.len(), karpenter_api::crds::all().len());
    for name in ["NodePool", "nodepools", "nodepools.karpenter.sh"] {
        assert_eq!(crd_names(&karpenter(&["crds", name])), ["nodepools.karpenter.sh"]);
    }
    let unknown = karpenter(&["crds", "Provisioner"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(unknown.stdout.is_empty());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("NodePool"));
}

#[test]
fn bench_measures_valid_plans() {
    let output =
        karpenter(&["bench", "--workload", "W2", "W5", "--seeds", "1", "--max-pods", "2000", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(runs.len(), 6, "two grids and one shape, in two modes");
    for run in &runs {
        assert_eq!(run["violations"], serde_json::json!([]), "{run}");
        assert_eq!(run["unschedulable"], 0, "{run}");
        assert!(run["hourly"].as_f64() > Some(0.0), "{run}");
        assert!(run["lowerBound"].as_f64() <= run["hourly"].as_f64(), "{run}");
    }
}
