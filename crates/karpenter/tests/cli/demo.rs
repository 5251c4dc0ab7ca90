//! Tests of the binary: `karpenter demo` ends, is complete, and has the same output every time.

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_karpenter")).arg("demo").args(arguments).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[test]
fn scenario_is_complete_and_deterministic_for_a_seed() {
    let first = demo(&["--seed", "7", "-o", "json"]);
    assert_eq!(
        first.stdout,
        demo(&["--seed", "7", "-o", "json"]).stdout,
        "the same seed must give the same output"
    );
    let output: Value = serde_json::from_slice(&first.stdout).expect("JSON");

    let timeline = output["timeline"].as_array().expect("a list");
    let times: Vec<f64> = timeline.iter().map(|entry| number(&entry["seconds"])).collect();
    assert!(times.is_sorted(), "time runs backwards: {times:?}");
    let mut rest = timeline.iter();
    for (actor, part) in [
        ("you", "apply a NodePool"),
        ("you", "from 0 to 10"),
        ("karpenter", "launches"),
        ("cluster", "ready"),
        ("cluster", "bound"),
        ("cluster", "10 running"),
        ("you", "from 10 to 100"),
        ("karpenter", "launches"),
        ("cluster", "100 running"),
        ("cloud", "without notice"),
        ("karpenter", "deletes 1 node"),
        ("karpenter", "launches"),
        ("cluster", "100 running"),
        ("you", "from 100 to 0"),
        ("karpenter", "deletes"),
        ("cluster", "deleted"),
    ] {
        let found = rest.any(|entry| {
            entry["actor"] == actor && entry["text"].as_str().is_some_and(|text| text.contains(part))
        });
        assert!(found, "{actor}: {part:?} is missing or comes too early in {timeline:#?}");
    }

    let summary = &output["summary"];
    let (price, bound) = (number(&summary["pricePerHour"]), number(&summary["lowerBoundPerHour"]));
    assert!(bound > 0.0 && bound <= price + 1e-9, "{bound} {price}");
    assert!(number(&summary["nodesAtPeak"]) > 1.0);
    assert!(number(&summary["nodesLaunched"]) > number(&summary["nodesAtPeak"]), "one was replaced");
    for step in summary["scaleOuts"].as_array().expect("a list") {
        let waited = &step["podToRunningSeconds"];
        let (median, slowest) = (number(&waited["median"]), number(&waited["slowest"]));
        // Instances appear after 25 s and boot for 5 s, and a pod takes 2 s to start.
        assert!((32.0..=60.0).contains(&median) && median <= slowest, "{step}");
    }
}

#[test]
fn scenario_runs_with_other_seeds_and_formats() {
    let short = demo(&["--seed", "1"]);
    let short = String::from_utf8(short.stdout).expect("UTF-8");
    let full = demo(&["--seed", "2", "--verbose"]);
    let full = String::from_utf8(full.stdout).expect("UTF-8");
    for text in [&short, &full] {
        assert!(text.contains("lower bound") && text.contains("scale inflate from 10 to 100"), "{text}");
    }
    assert!(full.contains("creates nodeclaim default-") && !short.contains("creates nodeclaim"), "{full}");
    assert!(full.lines().count() > 400, "each of some 230 pods is bound, runs and goes");
}
