//! Tests of the example `three-pools` in both API versions: lint has no findings, the plan is as the README of the
//! example states, and unmanaged nodes do not change this.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::legacy::{documents, example, karpenter, path, text};

const FORMS: [&str; 2] = ["v1", "v1alpha5"];

fn planned(form: &str) -> Value {
    let (pools, workloads, group) = (example(form), example("workloads.yaml"), example("node-group.yaml"));
    let files = ["-f", path(&pools), "-f", path(&workloads), "-f", path(&group)];
    let arguments: Vec<&str> = ["plan", "-o", "json"].into_iter().chain(files).collect();
    let output = karpenter(&arguments, "");
    assert_eq!(output.status.code(), Some(0), "{form}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn v1alpha5_and_v1_manifests_have_no_findings() {
    for form in FORMS {
        let (pools, workloads, group) =
            (example(form), example("workloads.yaml"), example("node-group.yaml"));
        let output = karpenter(&["lint", "-f", path(&pools), "-f", path(&workloads), "-f", path(&group)], "");
        assert_eq!(output.status.code(), Some(0), "{form}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn every_workload_is_planned_on_its_nodepool() {
    for form in FORMS {
        let plan = planned(form);
        // Karpenter's own pods must not run on nodes that it manages.
        let left: Vec<&Value> = plan["unschedulable"].as_array().expect("a list").iter().collect();
        assert_eq!(left.len(), 2, "{form}: {left:?}");
        for pod in left {
            assert!(
                pod["pod"].as_str().is_some_and(|pod| pod.starts_with("kube-system/karpenter-")),
                "{pod}"
            );
            assert_eq!(pod["reasons"][0]["reason"], "OptedOut", "{pod}");
        }
        let mut pools: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in plan["nodes"].as_array().expect("a list") {
            for pod in node["pods"].as_array().expect("a list") {
                let name = pod.as_str().expect("text").trim_start_matches("default/");
                let workload = name.rsplit_once('-').expect("numbered").0.to_owned();
                pools
                    .entry(workload)
                    .or_default()
                    .insert(node["nodePool"].as_str().expect("text").to_owned());
                let instance_type = node["instanceType"].as_str().expect("text");
                if name.starts_with("model-") || name.starts_with("notebook-") {
                    assert_eq!(instance_type, "g5.xlarge", "{form}: {name}");
                }
            }
        }
        let expected =
            [("api", "cpu"), ("cache", "memory"), ("model", "gpu"), ("notebook", "gpu"), ("training", "gpu")];
        let expected: BTreeMap<String, BTreeSet<String>> = expected
            .into_iter()
            .map(|(workload, pool)| (workload.to_owned(), [pool.to_owned()].into()))
            .collect();
        assert_eq!(pools, expected, "{form}: and what selects nothing is on the node group");
    }
}

#[test]
fn converted_nodepools_get_the_same_pods() {
    let output = karpenter(&["convert", "-f", path(&example("v1alpha5"))], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let converted = documents(text(&output.stdout));
    let current = documents(&std::fs::read_to_string(example("v1/pools.yaml")).expect("there"));
    let essence = |objects: &[Value]| -> BTreeMap<String, Value> {
        let pools = objects.iter().filter(|object| object["kind"] == "NodePool");
        let of = |pool: &Value| {
            let template = &pool["spec"]["template"];
            let mut requirements = template["spec"]["requirements"].as_array().expect("a list").clone();
            requirements.sort_by_key(ToString::to_string);
            serde_json::json!([
                template["metadata"],
                template["spec"]["taints"],
                requirements,
                pool["spec"]["limits"],
                template["spec"]["nodeClassRef"]
            ])
        };
        pools.map(|pool| (pool["metadata"]["name"].to_string(), of(pool))).collect()
    };
    assert_eq!(essence(&converted), essence(&current));
}
